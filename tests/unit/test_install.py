"""How an extra is added: by the way that this copy was installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common import install
from fleetctl.common.install import install_hint


class Installed:
    """A distribution that was installed from there."""

    def __init__(self, record: Any) -> None:
        self._record = record

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return json.dumps(self._record) if self._record else None


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    install._find_origin.cache_clear()
    yield
    install._find_origin.cache_clear()


@pytest.mark.parametrize(
    ("record", "hint"),
    [
        ({"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}},
         "pip install -e '/home/me/my clone[bayes]'"),
        ({"url": "file:///home/me/clone", "dir_info": {}}, "pip install '/home/me/clone[bayes]'"),
        ({"url": "https://git.example.org/f", "vcs_info": {"vcs": "git", "commit_id": "c"}},
         "pip install 'fleetctl[bayes] @ git+https://git.example.org/f'"),
        ({"url": "file:///tmp/fleetctl-1-py3-none-any.whl", "archive_info": {}},
         "pip install 'fleetctl[bayes] @ file:///tmp/fleetctl-1-py3-none-any.whl'"),
        (None, "pip install 'fleetctl[bayes]'"),
    ],
)  # fmt: skip
def test_the_hint_names_what_is_there(
    monkeypatch: pytest.MonkeyPatch, record: Any, hint: str
) -> None:
    monkeypatch.setattr(install, "distribution", lambda _: Installed(record))
    assert install_hint("bayes") == hint


def test_a_tool_of_uv_is_installed_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"url": "file:///home/me/clone", "dir_info": {}}
    monkeypatch.setattr(install, "distribution", lambda _: Installed(record))
    monkeypatch.setattr(sys, "prefix", "/home/me/.local/share/uv/tools/fleetctl")
    assert install_hint("plot") == "uv tool install '/home/me/clone[plot]'"


def test_without_a_record_the_name_is_all_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(install, "distribution", missing)
    assert install_hint("plot", upgrade=True) == "pip install --upgrade 'fleetctl[plot]'"


def test_an_old_pydantic_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert install.old_dependency() == ("", "")
    monkeypatch.setattr(install, "version", lambda _: "1.10.24")
    why, fix = install.old_dependency()
    assert why == "fleetctl needs pydantic 2, and this environment has 1.10.24"
    assert "pip install 'pydantic>=2'" in fix


def test_the_python_client_and_the_command_line_name_it(tmp_path: Path) -> None:
    old = tmp_path / "pydantic"
    old.mkdir()
    (old / "__init__.py").write_text("VERSION = '1.10.24'\n")
    about = tmp_path / "pydantic-1.10.24.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pydantic\nVersion: 1.10.24\n")
    known = {**os.environ, "PYTHONPATH": str(tmp_path), "FLEETCTL_HOME": str(tmp_path / "home")}
    (tmp_path / "a.yaml").write_text("kind: BatchJob\n")
    command = ["-m", "fleetctl.cli.main", "validate", "-f", str(tmp_path / "a.yaml")]
    for words in (["-c", "from fleetctl import Fleet"], command):
        done = subprocess.run(
            [sys.executable, *words], env=known, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "needs pydantic 2, and this environment has 1.10.24" in done.stderr


def test_an_environment_without_pip_is_filled_by_uv(tmp_path: Path) -> None:
    place = tmp_path / "env"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    code = "from fleetctl.common.install import install_hint; print(install_hint('server'))"
    command = [str(python), "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(Path(install.__file__).parents[2])}

    def hint() -> str:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    wanted = f"pip install --python {python}"
    assert hint() == f"uv {wanted} 'fleetctl[server]'"
    (place / "bin" / "uv").touch()
    assert hint() == f"{place}/bin/uv {wanted} 'fleetctl[server]'"
