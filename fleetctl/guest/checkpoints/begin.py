"""Gives a program that starts its checkpoints: variables, arguments, the helper file.

Called in the process that becomes the program, so that hashing files holds up no other work.
"""

from __future__ import annotations

import os
import sys

from fleetctl.guest.checkpoints.disk import Disk
from fleetctl.guest.checkpoints.mirror import PROGRAM, clean_text, list_secrets, restore_copy
from fleetctl.guest.checkpoints.prepare import Missing, has_any, prepare_checkpoint, step_of
from fleetctl.guest.supervision.pace import STACKS_SIGNAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, Sequence

PLACEHOLDER = "${checkpoint}"
NO_CHECKPOINT = "NoCheckpoint"


def begin_training(
    order: Mapping[str, Any],
    root: str,
    library: str,
    variables: Mapping[str, str],
    tell: Callable[[dict[str, Any]], None],
) -> tuple[dict[str, str], list[str]]:
    """Returns (variables to add, arguments to append) for an order with `checkpoint` or `progress`.
    Ends the process when the requested checkpoint does not exist.

    order: its `resumed` is the choice of another node, where one has chosen already;
    root: our path of `checkpoint.path`; library: a directory of the run's own, for the helper;
    variables: the program's other variables; tell: sends one event to the run's supervisor.
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
        restore = _build_restorer(order, root, {**variables, **added}, tell)
        resumed = _looked_for(
            asked,
            root,
            place,
            tell,
            restore,
        )
    if resumed is None:
        return added, []
    path = resumed["path"]
    added.update({"FLEETCTL_RESUME_FROM": path, "FLEETCTL_RESUME_STEP": str(resumed["step"])})
    return added, with_path(asked["args"], path)


def _build_restorer(
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
        name, problem = restore_copy(
            asked["mirror"],
            root,
            program,
            variables,
            step,
        )
        if problem:
            why = clean_text(problem, list_secrets(order, variables))
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
    """Returns `step` and `path` of the checkpoint to resume from, and moves misleading ones out of
    the way. restore: called where there is no checkpoint.
    """
    disk = Disk(root)
    try:
        if not has_any(asked, disk):
            restore()
        beginning = prepare_checkpoint(asked, disk)
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
    """Returns the path by which the program finds the directory: its own, or the volume's where
    no mount was possible at that path.
    """
    if os.path.realpath(path) == os.path.realpath(root):
        return path
    return root


def with_path(arguments: Sequence[str], path: str) -> list[str]:
    """Returns `resumeArgs` of a command for one checkpoint."""
    return [one.replace(PLACEHOLDER, path) for one in arguments]


def place_of(path: str, volumes: Sequence[Mapping[str, Any]]) -> str:
    """Maps a path of the program to a real one: below the deepest of these mounts (`mount`, `links`
    and `root`) that holds it, else the path itself.
    """
    places = [(at, one["root"]) for one in volumes for at in (one["mount"], *one["links"])]
    for at, root in sorted(places, key=lambda place: len(place[0]), reverse=True):
        if path == at or path.startswith(f"{at}/"):
            return str(root + path[len(at) :])
    return path


def find_mounts(path: str, volumes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the mounts of the volumes that hold a path of the program, by a link or not."""
    return [
        one["mount"]
        for one in volumes
        if any(path == at or path.startswith(f"{at}/") for at in (one["mount"], *one["links"]))
    ]


def _with_library(
    files: Mapping[str, str],
    library: str,
    variables: Mapping[str, str],
) -> dict[str, str]:
    """Puts the helper at the end of PYTHONPATH, so that it shadows no module of the program."""
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
    """Lets a Python task, which is this process, show on request where it hangs; a program has
    library/sitecustomize.py.
    """
    import faulthandler

    try:
        faulthandler.register(
            STACKS_SIGNAL,
            file=2,
            all_threads=True,
            chain=False,
        )
    except (AttributeError, OSError, RuntimeError, ValueError):
        return  # no such signal on this machine
