"""Where tests of interpreters run: one entry a provider, so that every test runs on each.

A place makes its provider ready for the test and for programs that it starts, and gives the
environment variables that lead there.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.stores.sqlite.store import open_store
from tests.contracts.local_worlds import stop_supervisors
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.modal.running import ModalEmulator
from tests.machines.slurm_cluster import SlurmCluster
from tests.machines.ssh_server import SshServer

Variables = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """name: of the provider; read_volume: a file's text, looked at from outside of sandboxes;
    sandboxes: how many there are; serve: the url under which a repository here is cloned there.
    """

    name: str
    variables: Variables
    read_volume: Callable[[str, str], str]
    sandboxes: Callable[[], int]
    serve: Callable[[Path], str]


@contextmanager
def local(directory: Path) -> Iterator[Place]:
    layout = LocalLayout(directory / "home")
    sessions = layout.root / "sessions"

    def count() -> int:
        return len([one for one in sessions.glob("*") if one.is_dir()])

    yield Place(
        "local",
        {"FLEETCTL_HOME": str(layout.home)},
        lambda volume, path: (layout.volume(volume) / path).read_text(encoding="utf-8"),
        count,
        lambda repository: f"file://{repository}",
    )
    stop_supervisors(directory / "home")


@contextmanager
def modal(directory: Path) -> Iterator[Place]:
    """One emulated Modal for all tests of a process: its images are built once."""
    emulator = _emulated_modal()

    def read(volume: str, path: str) -> str:
        [found] = [one for one in emulator.state()["volumes"] if one["name"] == volume]
        return (Path(found["directory"]) / path).read_text(encoding="utf-8")

    with _served(directory / "served") as serve:
        variables = {"FLEETCTL_HOME": str(directory / "home"), **emulator.env}
        yield Place("modal", variables, read, lambda: len(emulator.live()), serve)
    for volume in emulator.state()["volumes"]:
        shutil.rmtree(volume["directory"])
        Path(volume["directory"]).mkdir()


@contextmanager
def daytona(directory: Path) -> Iterator[Place]:
    """One emulated Daytona for all tests of a process: its images are built once."""
    emulator = _emulated_daytona()

    def volumes() -> list[dict[str, Any]]:
        return [one for one in emulator.state()["volumes"] if one["state"] != "deleted"]

    def read(volume: str, path: str) -> str:
        [found] = [one for one in volumes() if one["name"] == volume]
        return (Path(found["directory"]) / path).read_text(encoding="utf-8")

    with _served(directory / "served") as serve:
        variables = {"FLEETCTL_HOME": str(directory / "home"), **emulator.env}
        yield Place("daytona", variables, read, lambda: len(emulator.state()["present"]), serve)
    for volume in volumes():
        shutil.rmtree(volume["directory"])
        Path(volume["directory"]).mkdir()


@contextmanager
def ssh(directory: Path) -> Iterator[Place]:
    """One server for all tests of a process; a machine of its own for each."""
    server = _ssh_server()
    root = Path(os.path.realpath(directory)) / "machine"
    host = {**server.host, "directory": str(root), "slots": 16}
    spec: dict[str, object] = {"hosts": [host], "config": str(server.config)}
    with _machines(directory, "ssh", spec, root) as place:
        yield place


@contextmanager
def slurm(directory: Path) -> Iterator[Place]:
    """One cluster for all tests of a process; a shared directory of its own for each."""
    cluster = _slurm_cluster()
    root = Path(os.path.realpath(directory)) / "shared"
    with _machines(directory, "slurm", {"sharedDir": str(root)}, root) as place:
        yield replace(place, variables={**place.variables, **cluster.env})


@contextmanager
def _machines(directory: Path, sort: str, spec: dict[str, object], root: Path) -> Iterator[Place]:
    home = directory / "home"
    declare_provider(home, sort, {sort: spec})

    def read(volume: str, path: str) -> str:
        return (root / "volumes" / volume / path).read_text(encoding="utf-8")

    def count() -> int:
        return len([it for it in (root / "boxes").glob("[!.]*") if it.is_dir()])

    with _served(directory / "served") as serve, hold_machine_paths():
        yield Place(sort, {"FLEETCTL_HOME": str(home)}, read, count, serve)


@contextmanager
def hold_machine_paths() -> Iterator[None]:
    """Waits until no other test, of any run, has volumes of machines at their paths: these are the
    paths of the one machine that all tests share.
    """
    with Path(tempfile.gettempdir(), "fleetctl-tests-machine-paths.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in map(Path, MACHINE_PATHS):
            if path.is_symlink() and not path.exists():
                path.unlink()  # of a run that was killed
        yield


def declare_provider(home: Path, name: str, spec: dict[str, object]) -> None:
    """Stores a Provider object as `fleetctl apply` does, without a controller."""
    store = open_store(home, SystemClock())
    with store.transaction():
        text = json.dumps(spec)
        row = Resource(f"uid-{name}", "Provider", name, 1, 0, text, "{}", {}, {}, time.time())
        store.resources.put(row, expected_version=None)
    store.close()


@cache
def _ssh_server() -> SshServer:
    directory = Path(tempfile.mkdtemp(prefix="fleetctl-sshd-"))
    server = SshServer(directory / "server")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # after the next
    atexit.register(server.stop)
    return server


@cache
def _slurm_cluster() -> SlurmCluster:
    directory = Path(tempfile.mkdtemp(prefix="fleetctl-slurm-"))
    cluster = SlurmCluster(directory / "cluster")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # after the next
    atexit.register(cluster.stop)
    return cluster


@cache
def _emulated_daytona() -> DaytonaEmulator:
    emulator = DaytonaEmulator()
    emulator.start()
    atexit.register(emulator.stop)
    return emulator


@cache
def _emulated_modal() -> ModalEmulator:
    emulator = ModalEmulator()
    emulator.start()
    atexit.register(emulator.stop)
    return emulator


@contextmanager
def _served(directory: Path) -> Iterator[Callable[[Path], str]]:
    """Repositories over plain HTTP on loopback, as the last call saw them."""
    directory.mkdir(parents=True)
    handler = functools.partial(_Quiet, directory=str(directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def serve(repository: Path) -> str:
        bare = directory / f"{repository.name}.git"
        shutil.rmtree(bare, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", "--bare", str(repository), str(bare)], check=True)
        subprocess.run(["git", "-C", str(bare), "update-server-info"], check=True)
        return f"http://127.0.0.1:{server.server_port}/{bare.name}"

    try:
        yield serve
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "local": local,
    "modal": modal,
    "daytona": daytona,
    "ssh": ssh,
    "slurm": slurm,
}

MACHINES = ("ssh", "slurm")
MACHINE_PATHS = ("/data", "/root/data", "/home/daytona/memory")
# As parameters of a fixture: on a machine without their programs they are left out, with a line.
MACHINE_PARAMS = [
    pytest.param("ssh", marks=pytest.mark.needs("sshd")),
    pytest.param("slurm", marks=pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged")),
]
PLACE_PARAMS = [*MACHINE_PARAMS, *sorted(set(PLACES) - {*MACHINES})]


def make_repository(directory: Path) -> Path:
    """A git repository with two commits, a branch and a tag."""
    tree = directory / "sample-repo"
    tree.mkdir()
    (tree / "README.md").write_text("# Sample\nfirst line\nERROR second line\n")
    (tree / "code.py").write_text('class A:\n    """An A."""\n    def m(self): ...\ndef f(): ...\n')
    (tree / "deep").mkdir()
    (tree / "deep" / "inner.txt").write_text("inner\n")
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-q", "-m", "first"],
        ["tag", "v1"],
    ):
        _git(tree, arguments)
    _git(tree, ["checkout", "-q", "-b", "feature/one"])
    (tree / "new.txt").write_text("new\n")
    _git(tree, ["add", "."])
    _git(tree, ["commit", "-q", "-m", "second"])
    _git(tree, ["checkout", "-q", "main"])
    return tree


def _git(tree: Path, arguments: list[str]) -> None:
    who = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    subprocess.run(["git", *arguments], cwd=tree, check=True, env={**os.environ, **who})
