"""Images for tests with a real podman, made of this machine's own programs: no registry is asked.

`shell_image` has a shell and a few programs, and no Python; `python_image` has a Python as well.
Podman's own options here are those that this machine needs, if any.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

# Those of a shell's image, and what scripts of the contract suite use beyond that.
PROGRAMS = (
    *("sh", "cat", "echo", "env", "grep", "id", "ls", "mkdir", "nproc", "sleep", "touch", "tr"),
)
MORE_PROGRAMS = (
    *("bash", "chmod", "cksum", "cp", "cut", "date", "dirname", "find", "head", "ln", "mv", "od"),
    *("printf", "readlink", "rm", "sed", "seq", "setsid", "sort", "stat", "stty", "tail", "tar"),
    *("test", "true", "false", "uname", "wc"),
)
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")


def podman_command() -> list[str]:
    """Returns the words that begin podman's commands: its cgroups need no systemd here."""
    return ["podman", "--cgroup-manager=cgroupfs"]


def container_settings() -> dict[str, object]:
    """Returns `container` of a Provider object. A container may not ask for more than the limits
    of the one that the tests may run in.
    """
    return {"command": podman_command(), "args": list(LIMITS)}


def podman(*words: str) -> str:
    done = subprocess.run([*podman_command(), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def containers_of(root: Path) -> list[str]:
    """Returns the names of the containers whose boxes are below this directory."""
    words = ("--filter", f"label=fleetctl.root={root}", "--format", "{{.Names}}")
    return podman("ps", "--all", *words).split()


@functools.cache
def shell_image() -> str:
    return _import_image("localhost/fleetctl-test-shell:1", python=False)


@functools.cache
def python_image() -> str:
    return _import_image("localhost/fleetctl-test-python:1", python=True)


def _import_image(name: str, *, python: bool) -> str:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        for part in ("bin", "tmp", "etc", "usr/bin"):
            (root / part).mkdir(parents=True)
        (root / "etc" / "made-for").write_text("tests of fleetctl\n")
        for program in (*PROGRAMS, *(MORE_PROGRAMS if python else ())):
            _copy_program(root, Path(shutil.which(program) or f"/bin/{program}"), f"bin/{program}")
        if python:
            _copy_python(root)
        archive = Path(directory) / "image.tar"
        with tarfile.open(archive, "w") as file:
            file.add(root, arcname=".")
        podman("import", "--change", "ENV=MADE_FOR=tests", str(archive), name)
    return name


def _copy_program(root: Path, program: Path, target: str) -> None:
    (root / target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, root / target)
    _copy_libraries(root, program)


def _copy_libraries(root: Path, program: Path) -> None:
    shown = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
    for word in shown.split():
        if word.startswith("/") and not (root / word.lstrip("/")).exists():
            place = root / word.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, place)


def _copy_python(root: Path) -> None:
    program = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    _copy_program(root, program, str(program).lstrip("/"))
    skipped = shutil.ignore_patterns("test", "site-packages", "__pycache__", "idlelib", "config-*")
    shutil.copytree(library, root / str(library).lstrip("/"), ignore=skipped)
    for module in (library / "lib-dynload").glob("*.so"):
        _copy_libraries(root, module)
    (root / "usr" / "bin" / "python3").symlink_to(program)
    (root / "usr" / "bin" / "python").symlink_to(program)
