"""Chooses the checkpoint that a program resumes from, and moves aside those that would mislead it.

An entry is moved when it is newer, was being written by this very run when its attempt ended, and
is incomplete: most frameworks take the highest number for the newest. Every other entry stays as it
is and is reported once. No file is removed. Called by begin.py, once an attempt, when no other
attempt lives.
"""

from __future__ import annotations

import os

from fleetctl.guest.checkpoints.disk import DIRECTORY, Disk, notebook_of
from fleetctl.guest.checkpoints.formats import (
    ASIDE,
    AUTO,
    BACK,
    MARKS,
    NONE,
    find_damaged,
    format_of,
    list_unknown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Mapping, Optional

    from fleetctl.guest.checkpoints.disk import Notebook
    from fleetctl.guest.checkpoints.formats import Format, Found


COPY_BYTES = 1024 * 1024
UNKNOWN = (
    "nothing in the directory is a complete checkpoint of a format that is known, so all of it"
    " stays as it is and the program finds its own; name `checkpoint.format`, or `none`"
)


class Missing(Exception):
    """The requested checkpoint does not exist; the message lists those that do."""


class Beginning:
    """A program's start. resumed: the checkpoint that it resumes from, if any; remarks: sentences
    about moved entries, for the user; left: entries that are not watched.
    """

    def __init__(self) -> None:
        self.resumed: Optional[Found] = None
        self.remarks: list[str] = []
        self.left: list[str] = []


class Choice:
    """A choice of checkpoints. resumed: the one to resume from; back, aside: the complete and the
    unfinished ones to move out of its way; left: newer, incomplete ones of other writers.
    """

    def __init__(
        self,
        resumed: Optional[Found],
        later: list[Found],
        writing: Collection[str],
    ):
        self.resumed = resumed
        self.back = [one for one in later if one.complete]
        unfinished = [one for one in later if not one.complete]
        self.aside = [one for one in unfinished if one.name in writing]
        self.left = [one for one in unfinished if one.name not in writing]


def prepare_checkpoint(asked: Mapping[str, Any], disk: Disk) -> Beginning:
    """Chooses the checkpoint and makes way for it. Raises Missing.

    asked: `format`; `verify`; `resume` (Latest, None or step:N); `below`, an exclusive upper bound
    of the step, or None; `anew`, true if a start without a checkpoint is better than from a step at
    or above that bound; and `owner`, the object that the checkpoints belong to.
    """
    beginning = Beginning()
    wanted = step_of(asked["resume"])
    kind = format_of(disk, asked["format"] or AUTO)
    if kind is None and wanted is not None:
        raise Missing(f"`checkpoint.resume` is `step:{wanted}`, and there is no checkpoint")
    if asked["resume"] == "None":
        return beginning
    if kind is None:
        if list_unknown(disk) and asked["format"] != NONE:
            beginning.left = [UNKNOWN]
        return beginning
    notebook = notebook_of(disk, asked["owner"])
    found = kind.find(disk)
    _check_found(kind, disk, found, whole=asked["verify"] == "Full")
    choice = choose_checkpoint(
        found,
        wanted,
        asked["below"],
        anew=asked["anew"],
        writing=notebook.writing,
    )
    beginning.resumed = choice.resumed
    beginning.remarks = _make_way(kind, disk, choice, notebook)
    beginning.left = [
        f"checkpoint `{one.name}` stays as it is, and is not gone on from: {one.problem}"
        for one in choice.left
    ]
    if notebook.writing:
        notebook.writing = set()
        notebook.save(disk)
    return beginning


def _make_way(
    kind: Format,
    disk: Disk,
    choice: Choice,
    notebook: Notebook,
) -> list[str]:
    """Moves entries that would mislead the program; returns sentences about them."""
    resumed = choice.resumed
    remarks = []
    moved = []
    later = f"it is newer than step {resumed.step}" if resumed else "nothing is gone on from"
    for one, prefix in (*((it, BACK) for it in choice.back), *((it, ASIDE) for it in choice.aside)):
        target, what = _move_aside(disk, one.name, prefix)
        remarks.append(f"checkpoint `{one.name}` {what}: {one.problem or later}")
        if target:
            moved.append(one)
            if prefix == ASIDE:
                notebook.moved.append(target)
    if kind.tracker:
        remarks += _set_back(kind, disk, resumed, moved)
    if resumed is not None and any(one.name == kind.copy for one in moved):
        remarks += _copy_newest(disk, resumed.name, kind.copy)
    return remarks


def has_any(asked: Mapping[str, Any], disk: Disk) -> bool:
    """Returns whether a complete checkpoint exists; for `step:N`, that one."""
    kind = format_of(disk, asked["format"] or AUTO)
    wanted = step_of(asked["resume"])
    found = kind.find(disk) if kind is not None else []
    return any(one.complete and wanted in (None, one.step) for one in found)


def choose_checkpoint(
    found: list[Found],
    wanted: Optional[int],
    below: Optional[int],
    *,
    anew: bool,
    writing: Collection[str],
) -> Choice:
    """Chooses among checkpoints, the lowest first. Raises Missing. Pure.

    wanted: the step to resume from; below: an exclusive upper bound, ignored where no checkpoint
    is lower, unless `anew`; writing: names that the run was seen writing.
    """
    whole = [one for one in found if one.complete]
    before = [one for one in whole if below is None or (one.step or 0) < below]
    if wanted is not None:
        chosen = [one for one in whole if one.step == wanted]
        if not chosen:
            steps = ", ".join(str(one.step) for one in whole[-5:]) or "none"
            raise Missing(
                f"`checkpoint.resume` is `step:{wanted}`, and no complete checkpoint has that"
                f" step; the newest are: {steps}"
            )
    else:
        # When all fail and no earlier one exists, the newest is better than no checkpoint.
        chosen = before if anew else before or whole
    resumed = chosen[-1] if chosen else None
    earliest = -1 if resumed is None else resumed.step or 0
    later = [one for one in found if one.step is None or one.step > earliest]
    return Choice(resumed, later, writing)


def step_of(resume: str) -> Optional[int]:
    if resume.startswith("step:"):
        return int(resume.partition(":")[2])
    return None


def _check_found(
    kind: Format,
    disk: Disk,
    found: list[Found],
    *,
    whole: bool,
) -> None:
    """Compares hashes, from the newest checkpoint on until one is as it was written."""
    if kind.name != "fleetctl":
        return
    for one in reversed(found):
        if one.complete:
            one.problem = find_damaged(disk, one.name, whole=whole)
            if not one.problem:
                return


def _move_aside(
    disk: Disk,
    name: str,
    prefix: str,
) -> tuple[str, str]:
    """Returns (its new path, or "", a sentence for the user). Volumes without rename keep it."""
    target = _free_name(disk, prefix + name)
    try:
        os.rename(disk.at(name), disk.at(target))
    except OSError as error:
        return "", f"could not be moved aside ({error.strerror}) and stays"
    return target, f"was moved aside as `{target}`"


def _free_name(disk: Disk, name: str) -> str:
    """Returns the name, with a number where an entry of an earlier attempt has it."""
    names = disk.names()
    number = 1
    found = name
    while found in names:
        number += 1
        found = f"{name}.{number}"
    return found


def remove_entry(disk: Disk, name: str) -> None:
    """Removes a file, or a directory with all its entries. Entries that cannot be removed stay."""
    if disk.names().get(name, 0) != DIRECTORY or os.path.islink(disk.at(name)):
        _remove_entry(disk.at(name))
        return
    for mark in MARKS:  # first, so that a half-removed checkpoint looks incomplete
        _remove_entry(disk.at(f"{name}/{mark}"))
    for directory, names, files in os.walk(disk.at(name), topdown=False):
        for one in files:
            _remove_entry(os.path.join(directory, one))
        for one in names:
            _remove_entry(os.path.join(directory, one))
    _remove_entry(disk.at(name))


def _remove_entry(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        return


def _copy_newest(
    disk: Disk,
    name: str,
    copy: str,
) -> list[str]:
    """Copies the newest to the name that scripts ask for. No link: writing to one name must not
    change the other.
    """
    try:
        with open(disk.at(name), "rb") as source, open(disk.at(copy), "xb") as target:
            while data := source.read(COPY_BYTES):
                target.write(data)
    except OSError as error:
        return [f"`{copy}` cannot be made from `{name}`: {error.strerror}"]
    return [f"`{copy}` was created again from `{name}`"]


def _set_back(
    kind: Format,
    disk: Disk,
    resumed: Optional[Found],
    moved: list[Found],
) -> list[str]:
    """Makes the tracker name the checkpoint that is resumed from, where the newest was moved or
    the tracker is empty. Its former text is kept beside it.
    """
    now = kind.tracked_step(disk)
    if now is None or (resumed is not None and resumed.step == now):
        return []
    if os.path.islink(disk.at(kind.tracker)):  # its target is not a tracker of the framework
        return []
    hollow = not any(disk.bytes_of(one.name) for one in kind.find(disk) if one.step == now)
    if all(one.step != now for one in moved) and not (resumed is not None and hollow):
        return []
    if resumed is None:
        _, what = _move_aside(disk, kind.tracker, BACK)
        return [f"`{kind.tracker}` {what}: no checkpoint is gone on from"]
    try:
        with open(disk.at(_free_name(disk, BACK + kind.tracker)), "xb") as before:
            before.write(disk.text(kind.tracker) or b"")
        # Overwritten from its beginning, which volumes without rename can do, too.
        with open(disk.at(kind.tracker), "w", encoding="ascii") as file:
            file.write(kind.tracker_text(resumed))
    except OSError as error:
        return [f"`{kind.tracker}` names step {now} and cannot be set back: {error.strerror}"]
    return [f"`{kind.tracker}` was set back from step {now} to {resumed.step}"]
