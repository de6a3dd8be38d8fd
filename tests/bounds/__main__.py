"""`python -m tests.bounds [SDK ...]`: an environment for each end of each range, its tests there.

At the oldest end all that fleetctl itself requires is the oldest as well, as `uv pip install
--resolution lowest-direct` has it. Environments are kept below .bounds, so that a second time is
quick. Not part of `make test`: it asks a registry for packages and takes minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[2]
PLACE = HERE / ".bounds"
UV = HERE / ".venv/bin/uv"
ENDS = ("lowest-direct", "highest")
# What runs the tests, in whatever versions go with the rest.
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "setuptools>=77", "wheel", "uv")


@dataclass(frozen=True, slots=True)
class Sdk:
    """tests: patterns. beside: what the other cloud's emulator is made of, which they import."""

    extra: str
    tests: tuple[str, ...]
    beside: tuple[str, ...] = ()


SDKS = (
    Sdk(
        "modal",
        (
            "tests/unit/providers/modal",
            "tests/contracts/test_provider_modal*.py",
            "tests/servers/test_modal_*.py",
            "tests/emulators/suite/test_modal_*.py",
        ),
    ),
    Sdk(
        "daytona",
        (
            "tests/unit/providers/daytona",
            "tests/contracts/test_provider_daytona*.py",
            "tests/servers/test_daytona_*.py",
            "tests/emulators/suite/test_daytona_[!t]*.py",  # not of the toolbox
        ),
        beside=("modal",),
    ),
    Sdk(
        "kubernetes",
        (
            "tests/unit/providers/kubernetes",
            "tests/contracts/test_provider_kubernetes.py",
            "tests/servers/test_kubernetes_*.py",
        ),
    ),
)


def main(words: list[str]) -> int:
    chosen = [sdk for sdk in SDKS if not words or sdk.extra in words]
    if words and len(chosen) < len(set(words)):
        print(f"error: the SDKs are {', '.join(sdk.extra for sdk in SDKS)}", file=sys.stderr)
        return 2
    lines, failed = [], False
    for sdk in chosen:
        for end in ENDS:
            python = _environment(sdk, end)
            code = _tested(sdk, python)
            failed |= code != 0
            message = "ok" if code == 0 else f"FAILED ({code})"
            lines.append(f"{sdk.extra} {_version(sdk, python)}  {end}: {message}")
    print("\n".join(lines))
    return int(failed)


def _environment(sdk: Sdk, end: str) -> Path:
    place = PLACE / f"{sdk.extra}-{end}"
    python = place / "bin/python"
    if not python.exists():
        _uv("venv", "-q", "--python", sys.executable, str(place))
    install = ("pip", "install", "-q", "--python", str(python))
    _uv(*install, "--resolution", end, "--upgrade", "-e", f"{HERE}[{sdk.extra}]")
    frozen = place / "frozen.txt"
    told = _uv("pip", "freeze", "--python", str(python), "--exclude-editable")
    frozen.write_text(told)
    _uv(*install, "-c", str(frozen), *TOOLS, *sdk.beside)
    return python


def _tested(sdk: Sdk, python: Path) -> int:
    files = [str(file) for one in sdk.tests for file in sorted(HERE.glob(one))]
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    argv = [str(python), "-m", "pytest", "-n", "2", "--dist", "loadgroup", *files]
    return subprocess.run(argv, cwd=HERE, check=False, env={**os.environ, "PATH": path}).returncode


def _version(sdk: Sdk, python: Path) -> str:
    code = f"import importlib.metadata as m; print(m.version({sdk.extra!r}))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _uv(*words: str) -> str:
    done = subprocess.run([UV, *words], check=False, capture_output=True, text=True, cwd=HERE)
    if done.returncode:
        raise SystemExit(f"uv {' '.join(words)}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
