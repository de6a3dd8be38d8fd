"""Before a program starts: which checkpoint it resumes from, and what must not mislead it.

What is newer than that and was never finished is moved aside, since most frameworks take the
highest number for the newest. Called by begin.py, once an attempt, when no other attempt lives.
"""

from __future__ import annotations

import os

from fleetctl.guest.checkpoints.disk import DIRECTORY, Disk
from fleetctl.guest.checkpoints.formats import ASIDE, AUTO, BACK, MARKS, damaged, format_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional

    from fleetctl.guest.checkpoints.formats import Format, Found


COPY_BYTES = 1024 * 1024


class Missing(Exception):
    """The checkpoint that was asked for is not there; says which are."""


class Beginning:
    """resumed: what the program goes on from, if anything; remarks: what was moved, for people."""

    def __init__(self) -> None:
        self.resumed: Optional[Found] = None
        self.remarks: list[str] = []


def prepare(asked: Mapping[str, Any], disk: Disk) -> Beginning:
    """asked: `format`, `verify`, `resume` (Latest, None or step:N), `below`, a step below which
    it has to begin, or None, and `anew`, whether nothing is better than anything else then. Raises
    Missing.
    """
    beginning = Beginning()
    wanted = step_of(asked["resume"])
    kind = format_of(disk, asked["format"] or AUTO)
    if kind is None or asked["resume"] == "None":
        if wanted is not None:
            raise Missing(f"`checkpoint.resume` is `step:{wanted}`, and there is no checkpoint")
        return beginning
    _forget_old(disk)
    found = kind.find(disk)
    _check(kind, disk, found, whole=asked["verify"] == "Full")
    resumed, misleading = choose(found, wanted, asked["below"], anew=asked["anew"])
    beginning.resumed = resumed
    for one in misleading:
        prefix = BACK if one.complete else ASIDE
        where = _move(disk, one.name, prefix)
        later = f"it is newer than step {resumed.step}" if resumed else "nothing is gone on from"
        why = one.problem or later
        beginning.remarks.append(f"checkpoint `{one.name}` {where}: {why}")
    if kind.tracker:
        beginning.remarks += _set_back(kind, disk, resumed)
    if resumed is not None and any(one.name == kind.copy for one in misleading):
        beginning.remarks += _copied(disk, resumed.name, kind.copy)
    return beginning


def has_any(asked: Mapping[str, Any], disk: Disk) -> bool:
    """Whether there is a complete one; of `step:N`, that one."""
    kind, wanted = format_of(disk, asked["format"] or AUTO), step_of(asked["resume"])
    found = kind.find(disk) if kind is not None else []
    return any(one.complete and wanted in (None, one.step) for one in found)


def choose(
    found: list[Found], wanted: Optional[int], below: Optional[int], *, anew: bool
) -> tuple[Optional[Found], list[Found]]:
    """(what to go on from, what is to be moved out of its way) of checkpoints, the lowest first.

    wanted: the step that it has to be; below: one that it has to be before, where there is any, or
    whatever there is: anew. Raises Missing. Pure.
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
    return resumed, later


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


def _forget_old(disk: Disk) -> None:
    """What an earlier attempt moved aside unfinished has been there to be looked at."""
    for name in disk.names():
        if name.startswith(ASIDE):
            remove(disk, name)


def _move(disk: Disk, name: str, prefix: str) -> str:
    """What became of it, for people. Volumes without rename lose what is not whole, and keep what
    is.
    """
    target = prefix + name
    if target in disk.names():
        remove(disk, target)
    try:
        os.rename(disk.at(name), disk.at(target))
    except OSError as error:
        if prefix == BACK:
            return f"could not be moved aside ({error.strerror}) and stays"
        remove(disk, name)
        return "was removed"
    return f"was moved aside as `{target}`"


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
        with open(disk.at(name), "rb") as source, open(disk.at(copy), "wb") as target:
            while data := source.read(COPY_BYTES):
                target.write(data)
    except OSError as error:
        return [f"`{copy}` cannot be made from `{name}`: {error.strerror}"]
    return [f"`{copy}` was made anew from `{name}`"]


def _set_back(kind: Format, disk: Disk, resumed: Optional[Found]) -> list[str]:
    """Let the file that names the newest name the one that is resumed from."""
    now = kind.tracked_step(disk)
    if now is None or (resumed is not None and resumed.step == now):
        return []
    try:
        if resumed is None:
            os.unlink(disk.at(kind.tracker))
            return [f"`{kind.tracker}` was removed: no complete checkpoint has step {now}"]
        # Overwritten from its beginning, which volumes without rename can do, too.
        with open(disk.at(kind.tracker), "w", encoding="ascii") as file:
            file.write(kind.tracker_text(resumed))
    except OSError as error:
        return [f"`{kind.tracker}` names step {now} and cannot be set back: {error.strerror}"]
    return [f"`{kind.tracker}` was set back from step {now} to {resumed.step}"]
