"""What a program finds of its checkpoints when it starts: variables, arguments, the helper file.

Called in the process that becomes the program, so that looking through hashes holds up nobody.
"""

from __future__ import annotations

import os
import sys

from fleetctl.guest.checkpoints.disk import Disk
from fleetctl.guest.checkpoints.mirror import PROGRAM, brought_back, clean, hidden
from fleetctl.guest.checkpoints.prepare import Missing, has_any, prepare, step_of
from fleetctl.guest.supervision.pace import STACKS_SIGNAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, Sequence

PLACEHOLDER = "${checkpoint}"
NO_CHECKPOINT = "NoCheckpoint"


def begin(
    order: Mapping[str, Any],
    root: str,
    library: str,
    variables: Mapping[str, str],
    tell: Callable[[dict[str, Any]], None],
) -> tuple[dict[str, str], list[str]]:
    """(variables to add, arguments to append) of an order with `checkpoint` or `progress`. Ends the
    process when the checkpoint that was asked for is not there.

    order: where another node has looked already, its `resumed` says what that found;
    root: where `checkpoint.path` is for us; library: a directory of the run's own, for the helper;
    variables: that it has anyway; tell: one event to whoever keeps the run.
    """
    added = _with_library(order["library"], library, variables)
    if order.get("progress"):
        _show_stacks()
    asked = order.get("checkpoint")
    if not asked:
        return added, []
    place = _as_known(asked["path"], root)
    added["FLEETCTL_CHECKPOINT"] = place
    if "resumed" in order:
        resumed = order["resumed"]
    else:
        restore = _restorer(order, root, {**variables, **added}, tell)
        resumed = _looked_for(asked, root, place, tell, restore)
    if resumed is None:
        return added, []
    path = resumed["path"]
    added.update({"FLEETCTL_RESUME_FROM": path, "FLEETCTL_RESUME_STEP": str(resumed["step"])})
    return added, with_path(asked["args"], path)


def _restorer(
    order: Mapping[str, Any],
    root: str,
    variables: Mapping[str, str],
    tell: Callable[[dict[str, Any]], None],
) -> Callable[[], None]:
    """Brings a checkpoint back from the mirror, if it can."""

    def restore() -> None:
        asked = order["checkpoint"]
        if not asked["mirror"] or asked["resume"] == "None" or asked["anew"]:
            return
        step = step_of(asked["resume"])
        program = order["library"][PROGRAM]
        name, problem = brought_back(asked["mirror"], root, program, variables, step)
        if problem:
            why = clean(problem, hidden(order, variables))
            text = f"nothing was brought back from the mirror: {why}"
            os.write(1, f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))
            tell({"e": "unmirrored", "message": text})
        elif name is not None:
            os.write(
                1, f"fleetctl: checkpoint `{name}` was brought back from the mirror\n".encode()
            )

    return restore


def _looked_for(
    asked: Mapping[str, Any],
    root: str,
    place: str,
    tell: Callable[[dict[str, Any]], None],
    restore: Callable[[], None],
) -> Optional[dict[str, Any]]:
    """`step` and `path` of what to go on from, with what misleads out of its way. restore: called
    where there is nothing.
    """
    disk = Disk(root)
    try:
        if not has_any(asked, disk):
            restore()
        beginning = prepare(asked, disk)
    except Missing as error:
        tell({"e": "error", "reason": NO_CHECKPOINT, "message": str(error)})
        os.write(2, f"fleetctl: {error}\n".encode())
        os._exit(1)
    for text in beginning.remarks:
        os.write(1, f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))
        tell({"e": "aside", "message": text})
    for text in beginning.left:
        os.write(1, f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))
        tell({"e": "left", "message": text})
    found = beginning.resumed
    if found is None:
        return None
    resumed = {"step": found.step, "path": f"{place}/{found.name}"}
    tell({"e": "resumed", **resumed})
    return resumed


def _as_known(path: str, root: str) -> str:
    """How the program finds the directory: by its path, or where nothing could be mounted there by
    the volume's own.
    """
    return path if os.path.realpath(path) == os.path.realpath(root) else root


def with_path(arguments: Sequence[str], path: str) -> list[str]:
    """`resumeArgs` of a command for one checkpoint."""
    return [one.replace(PLACEHOLDER, path) for one in arguments]


def place_of(path: str, volumes: Sequence[Mapping[str, Any]]) -> str:
    """Where a path of the program's is: below the deepest of these mounts (`mount`, `links` and
    `root`) that holds it, else the path itself.
    """
    places = [(at, one["root"]) for one in volumes for at in (one["mount"], *one["links"])]
    for at, root in sorted(places, key=lambda place: len(place[0]), reverse=True):
        if path == at or path.startswith(f"{at}/"):
            return str(root + path[len(at) :])
    return path


def holding(path: str, volumes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The mounts of the volumes that a path of the program's is on, by a link or not."""
    return [
        one["mount"]
        for one in volumes
        if any(path == at or path.startswith(f"{at}/") for at in (one["mount"], *one["links"]))
    ]


def _with_library(
    files: Mapping[str, str], library: str, variables: Mapping[str, str]
) -> dict[str, str]:
    """The helper at the end of PYTHONPATH, so that nothing of theirs is shadowed."""
    try:
        os.makedirs(library, exist_ok=True)
        for name, text in files.items():
            with open(os.path.join(library, name), "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        os.write(2, f"fleetctl: `{library}` cannot be written: {error.strerror}\n".encode())
        return {}
    # A sandbox that is kept has had it since its first task.
    if library not in sys.path:
        sys.path.append(library)
    theirs = [one for one in variables.get("PYTHONPATH", "").split(os.pathsep) if one]
    return {"PYTHONPATH": os.pathsep.join([one for one in theirs if one != library] + [library])}


def _show_stacks() -> None:
    """Let a task of Python, which is this process, show where it hangs when it is asked; a program
    has library/sitecustomize.py.
    """
    import faulthandler

    try:
        faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True, chain=False)
    except (AttributeError, OSError, RuntimeError, ValueError):
        return  # no such signal on this machine
