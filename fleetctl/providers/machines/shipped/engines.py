"""The commands of a machine's container engine, `podman` or `docker`: found, called, and asked to
remove containers of ours, also those whose box is gone.

Runs on the machine. A container is named by its box and the box's id, and carries the directory of
all that fleetctl keeps there, by which those of other directories are left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

NAMES = ("podman", "docker")
LABEL = "fleetctl.root"
ENGINES = "engines"  # the directory that names each engine which was used here
CALL_S = 120.0
SWEEP_S = 600.0  # between two searches for containers without a box, beside those of a new line
TAIL_CHARACTERS = 2000
NO_ENGINE = "none"


def find_engine(command: List[str]) -> List[str]:
    """Returns the words that begin each command of the engine; [] where there is none. command:
    those of the Provider object, [] for whichever is installed.
    """
    if command:
        return command if shutil.which(command[0]) else []
    return next(([name] for name in NAMES if shutil.which(name)), [])


def describe_engine(command: List[str]) -> str:
    """Returns the sort of engine that `find_engine` finds, or NO_ENGINE."""
    found = find_engine(command)
    if not found:
        return NO_ENGINE
    return "podman" if is_podman(found) else "docker"


def is_podman(command: List[str]) -> bool:
    return any(os.path.basename(word).startswith("podman") for word in command)


def call_engine(words: List[str], *, deadline_s: float = CALL_S) -> Tuple[int, str, str]:
    """Returns (exit code, output, the end of what it wrote on its standard error)."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "", "`%s` does not answer" % words[0]
    except FileNotFoundError:
        return 127, "", "`%s` is not installed" % words[0]
    said = done.stderr.decode("utf-8", "replace").strip()[-TAIL_CHARACTERS:]
    return done.returncode, done.stdout.decode("utf-8", "replace").strip(), said


def container_name(box_name: str, box: Dict[str, Any]) -> str:
    return "fleetctl-%s-%s" % (box_name.partition("@")[0], box["id"])


def remove_container(command: List[str], name: str) -> bool:
    """Removes a container with all of its processes; returns whether it is gone."""
    now = ["--time", "0"] if is_podman(command) else []
    code, _, said = call_engine([*command, "rm", "--force", "--volumes", *now, name])
    return code == 0 or "no such container" in said.lower() or code == 127


def note_engine(root: str, command: List[str]) -> None:
    """Notes that containers may be there, for `sweep_containers`."""
    directory = os.path.join(root, ENGINES)
    os.makedirs(directory, 0o700, exist_ok=True)
    text = json.dumps(command)
    if text not in [json.dumps(it) for _, it in _used_engines(root)]:
        path = os.path.join(directory, os.urandom(4).hex())
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.utime(path, (0, 0))  # it was never swept
        os.replace(path, f"{path}.json")


def sweep_containers(
    root: str, list_wanted: Callable[[], Set[str]], *, every_s: float = SWEEP_S
) -> None:
    """Removes containers of this directory whose box is gone, unless the last search was less than
    `every_s` ago. list_wanted: returns the names of those that have one; called after the
    containers were listed.
    """
    for path, command in _used_engines(root):
        if 0 <= time.time() - os.stat(path).st_mtime < every_s:
            continue
        os.utime(path)
        listing = ["ps", "--all", "--filter", f"label={LABEL}={root}", "--format", "{{.Names}}"]
        code, output, _ = call_engine([*command, *listing])
        names = output.split() if code == 0 else []
        wanted = list_wanted() if names else set()
        for name in names:
            if name not in wanted:
                remove_container(command, name)


def _used_engines(root: str) -> Iterator[Tuple[str, List[str]]]:
    try:
        entries = sorted(os.scandir(os.path.join(root, ENGINES)), key=lambda it: it.name)
    except FileNotFoundError:
        return
    for entry in entries:
        if not entry.name.endswith(".json"):
            continue
        try:
            with open(entry.path, encoding="utf-8") as file:
                yield entry.path, json.load(file)
        except (OSError, ValueError):
            continue  # another process removes it
