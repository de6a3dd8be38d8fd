"""The guests of remote sandboxes as the files that are shipped, each run by what may run it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fleetctl.guest import library
from fleetctl.guest.ship.assemble import posix_source, remote_source
from tests.unit.guest.remote_world import Box

SHELLS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("dash", "bash", "busybox")]
# What both guests must do is asked of the one in shell with `dash`; where shells differ, of each.
ON_DASH = pytest.mark.only_all(
    reason="the guest in shell by further shells", of=("bash", "busybox")
)
LLM_VARIABLES = (
    *("FLEETCTL_LLM_URL", "FLEETCTL_LLM_MODEL", "FLEETCTL_LLM_MAX_FALLBACK_SHARE"),
    *("OPENAI_BASE_URL", "OPENAI_API_KEY"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "box" in getattr(item, "fixturenames", ()):
            item.add_marker(ON_DASH)


@pytest.fixture
def python_box(tmp_path: Path) -> Iterator[Box]:
    """A sandbox whose image has Python."""
    yield from _box(tmp_path, (sys.executable, "-I", "-S"), "guest.py", remote_source())


@pytest.fixture(params=["python", *SHELLS])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    """A sandbox with one guest or another: what both must do."""
    if request.param == "python":
        yield from _box(tmp_path, (sys.executable, "-I", "-S"), "guest.py", remote_source())
    else:
        yield from _posix_box(tmp_path, request.param)


@pytest.fixture(params=SHELLS)
def posix_box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    """A sandbox whose image has no Python."""
    yield from _posix_box(tmp_path, request.param)


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """As a program imports it, with no endpoint."""
    monkeypatch.syspath_prepend(str(Path(library.__file__).parent))
    for name in LLM_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    import fleetctl_llm  # type: ignore[import-not-found]

    yield fleetctl_llm
    for name in [name for name in sys.modules if name.startswith("fleetctl_llm")]:
        del sys.modules[name]


def _posix_box(tmp_path: Path, shell: str) -> Iterator[Box]:
    """Its `sh` is the shell of that name."""
    (tmp_path / "shell").mkdir()
    (tmp_path / "shell" / "sh").symlink_to(str(shutil.which(shell)))
    for box in _box(tmp_path, ("sh",), "guest.sh", posix_source()):
        box.path = f"{tmp_path}/shell:{box.path}"
        yield box


def _box(tmp_path: Path, program: tuple[str, ...], name: str, source: str) -> Iterator[Box]:
    guest = tmp_path / name
    guest.write_text(source)
    box = Box((*program, str(guest)), tmp_path / "state", posix=name.endswith(".sh"))
    yield box
    box.clean_up()
