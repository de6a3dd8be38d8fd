"""Before a program starts: which checkpoint it resumes from, and what must not mislead it.

What is newer than that, was seen being written by this very run when its attempt ended, and is not
complete, is moved aside, since most frameworks take the highest number for the newest. All else
stays as it is and is reported once. Nothing is removed. Called by begin.py, once an attempt, when
no other attempt lives.
"""

from __future__ import annotations

import os

from fleetctl.guest.checkpoints.disk import DIRECTORY, Disk
from fleetctl.guest.checkpoints.formats import (
    ASIDE,
    AUTO,
    BACK,
    MARKS,
    NONE,
    damaged,
    format_of,
    unknown,
)
from fleetctl.guest.checkpoints.notebook import notebook_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Mapping, Optional

    from fleetctl.guest.checkpoints.formats import Format, Found
    from fleetctl.guest.checkpoints.notebook import Notebook


COPY_BYTES = 1024 * 1024
UNKNOWN = (
    "nothing in the directory is a complete checkpoint of a format that is known, so all of it"
    " stays as it is and the program finds its own; name `checkpoint.format`, or `none`"
)


class Missing(Exception):
    """The checkpoint that was asked for is not there; says which are."""


class Beginning:
    """resumed: what the program goes on from, if anything; remarks: what was moved, for people;
    left: what lies there and is not looked after.
    """

    def __init__(self) -> None:
        self.resumed: Optional[Found] = None
        self.remarks: list[str] = []
        self.left: list[str] = []


class Choice:
    """resumed: what to go on from; back, aside: what to move out of its way, complete ones and
    unfinished ones; left: what is newer, not complete, and nobody's business.
    """

    def __init__(self, resumed: Optional[Found], later: list[Found], writing: Collection[str]):
        self.resumed = resumed
        self.back = [one for one in later if one.complete]
        unfinished = [one for one in later if not one.complete]
        self.aside = [one for one in unfinished if one.name in writing]
        self.left = [one for one in unfinished if one.name not in writing]


def prepare(asked: Mapping[str, Any], disk: Disk) -> Beginning:
    """asked: `format`, `verify`, `resume` (Latest, None or step:N), `below`, a step below which
    it has to begin, or None, `anew`, whether nothing is better than anything else then, and
    `owner`, the object that it belongs to. Raises Missing.
    """
    beginning = Beginning()
    wanted = step_of(asked["resume"])
    kind = format_of(disk, asked["format"] or AUTO)
    if kind is None and wanted is not None:
        raise Missing(f"`checkpoint.resume` is `step:{wanted}`, and there is no checkpoint")
    if asked["resume"] == "None":
        return beginning
    if kind is None:
        if unknown(disk) and asked["format"] != NONE:
            beginning.left = [UNKNOWN]
        return beginning
    notebook = notebook_of(disk, asked["owner"])
    found = kind.find(disk)
    _check(kind, disk, found, whole=asked["verify"] == "Full")
    choice = choose(found, wanted, asked["below"], anew=asked["anew"], writing=notebook.writing)
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


def _make_way(kind: Format, disk: Disk, choice: Choice, notebook: Notebook) -> list[str]:
    """Move what would mislead the program; sentences about it."""
    resumed, remarks, moved = choice.resumed, [], []
    later = f"it is newer than step {resumed.step}" if resumed else "nothing is gone on from"
    for one, prefix in (*((it, BACK) for it in choice.back), *((it, ASIDE) for it in choice.aside)):
        target, what = _move(disk, one.name, prefix)
        remarks.append(f"checkpoint `{one.name}` {what}: {one.problem or later}")
        if target:
            moved.append(one)
            if prefix == ASIDE:
                notebook.moved.append(target)
    if kind.tracker:
        remarks += _set_back(kind, disk, resumed, moved)
    if resumed is not None and any(one.name == kind.copy for one in moved):
        remarks += _copied(disk, resumed.name, kind.copy)
    return remarks


def has_any(asked: Mapping[str, Any], disk: Disk) -> bool:
    """Whether there is a complete one; of `step:N`, that one."""
    kind, wanted = format_of(disk, asked["format"] or AUTO), step_of(asked["resume"])
    found = kind.find(disk) if kind is not None else []
    return any(one.complete and wanted in (None, one.step) for one in found)


def choose(
    found: list[Found],
    wanted: Optional[int],
    below: Optional[int],
    *,
    anew: bool,
    writing: Collection[str],
) -> Choice:
    """Choose among checkpoints, the lowest first.

    wanted: the step that it has to be; below: one that it has to be before, where there is any, or
    whatever there is: anew; writing: names of what the run was seen writing. Raises Missing. Pure.
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
        # Of what fails with nothing before it, the newest is better than nothing.
        chosen = before if anew else before or whole
    resumed = chosen[-1] if chosen else None
    earliest = -1 if resumed is None else resumed.step or 0
    later = [one for one in found if one.step is None or one.step > earliest]
    return Choice(resumed, later, writing)


def step_of(resume: str) -> Optional[int]:
    return int(resume.partition(":")[2]) if resume.startswith("step:") else None


def _check(kind: Format, disk: Disk, found: list[Found], *, whole: bool) -> None:
    """Look at hashes, from the newest on until one is as it was written."""
    if kind.name != "fleetctl":
        return
    for one in reversed(found):
        if one.complete:
            one.problem = damaged(disk, one.name, whole=whole)
            if not one.problem:
                return


def _move(disk: Disk, name: str, prefix: str) -> tuple[str, str]:
    """(where it is now, or "", what became of it, for people). Volumes without rename keep it."""
    target = _free(disk, prefix + name)
    try:
        os.rename(disk.at(name), disk.at(target))
    except OSError as error:
        return "", f"could not be moved aside ({error.strerror}) and stays"
    return target, f"was moved aside as `{target}`"


def _free(disk: Disk, name: str) -> str:
    """The name, with a number where something of an earlier attempt has it."""
    names, number, found = disk.names(), 1, name
    while found in names:
        number += 1
        found = f"{name}.{number}"
    return found


def remove(disk: Disk, name: str) -> None:
    """A file, or a directory with all that is in it. What cannot be removed stays."""
    if disk.names().get(name, 0) != DIRECTORY or os.path.islink(disk.at(name)):
        _unlink(disk.at(name))
        return
    for mark in MARKS:  # first, so that what is half removed looks it
        _unlink(disk.at(f"{name}/{mark}"))
    for directory, names, files in os.walk(disk.at(name), topdown=False):
        for one in files:
            _unlink(os.path.join(directory, one))
        for one in names:
            _unlink(os.path.join(directory, one))
    _unlink(disk.at(name))


def _unlink(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        return


def _copied(disk: Disk, name: str, copy: str) -> list[str]:
    """The name that scripts ask for is that of the newest again. No link: what is written there
    next must not reach the other.
    """
    try:
        with open(disk.at(name), "rb") as source, open(disk.at(copy), "xb") as target:
            while data := source.read(COPY_BYTES):
                target.write(data)
    except OSError as error:
        return [f"`{copy}` cannot be made from `{name}`: {error.strerror}"]
    return [f"`{copy}` was made anew from `{name}`"]


def _set_back(kind: Format, disk: Disk, resumed: Optional[Found], moved: list[Found]) -> list[str]:
    """Let the file that names the newest name the one that is resumed from, where the other is
    moved, or has nothing in it. Its text of before is kept beside it.
    """
    now = kind.tracked_step(disk)
    if now is None or (resumed is not None and resumed.step == now):
        return []
    if os.path.islink(disk.at(kind.tracker)):  # what it leads to is no tracker of the framework's
        return []
    hollow = not any(disk.bytes_of(one.name) for one in kind.find(disk) if one.step == now)
    if all(one.step != now for one in moved) and not (resumed is not None and hollow):
        return []
    if resumed is None:
        _, what = _move(disk, kind.tracker, BACK)
        return [f"`{kind.tracker}` {what}: no checkpoint is gone on from"]
    try:
        with open(disk.at(_free(disk, BACK + kind.tracker)), "xb") as before:
            before.write(disk.text(kind.tracker) or b"")
        # Overwritten from its beginning, which volumes without rename can do, too.
        with open(disk.at(kind.tracker), "w", encoding="ascii") as file:
            file.write(kind.tracker_text(resumed))
    except OSError as error:
        return [f"`{kind.tracker}` names step {now} and cannot be set back: {error.strerror}"]
    return [f"`{kind.tracker}` was set back from step {now} to {resumed.step}"]
