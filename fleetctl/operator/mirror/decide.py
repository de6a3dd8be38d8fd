"""What to do next for one custom resource, or for a stored object whose custom resource is missing.
Pure: a table of rules, the first that holds decides.

Called by mirror.py for one key at a time. The API server may say old things (a stale list, a watch
that lags or was cut): nothing is deleted and nothing older is applied on their word alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.operator.mirror.wanted import Origin, Wanted


class Todo(StrEnum):
    NOTHING = "nothing"
    LOOK = "look"  # ask the server for this one object, and decide again
    HOLD = "hold"  # put the finalizer on it: from now on its deletion waits for us
    APPLY = "apply"
    DELETE = "delete"  # the stored object
    WAIT = "wait"  # the engine is at it
    RELEASE = "release"  # nothing of it is left: take the finalizer off


@dataclass(frozen=True, slots=True)
class Stored:
    """origin: of what it was made; None of what nobody's custom resource asked for."""

    origin: Origin | None
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """An apply that was refused: it is tried again when what it reads changes, or at again_at_s."""

    origin: Origin
    approved: str
    again_at_s: float | None


def todo(
    wanted: Wanted | None,
    stored: Stored | None,
    *,
    looked: bool = False,
    tried: Tried | None = None,
    now_s: float = 0.0,
) -> Todo:
    """wanted: as the cache has it; None: the cache does not. looked: this very object was asked
    for, or written, after the doubt, and `wanted` is the answer.
    """
    if wanted is None:
        return _without(stored, looked=looked)
    same = (
        stored is not None and stored.origin is not None and stored.origin.uid == wanted.origin.uid
    )
    if wanted.deleting:
        if same and stored is not None:
            return Todo.WAIT if stored.deleting else Todo.DELETE
        return Todo.RELEASE if wanted.held else Todo.NOTHING
    if stored is not None and stored.origin is not None and not same:
        # One of the two is older. Only the server knows which, and only by name.
        if stored.deleting:
            return Todo.WAIT
        return Todo.DELETE if looked else Todo.LOOK
    if not wanted.held:
        return Todo.HOLD
    if stored is None or stored.origin is None:
        # An old list shows what is gone by now, and its work would begin anew.
        step = _again(wanted, tried, now_s)
        return Todo.LOOK if step is Todo.APPLY and not looked else step
    if stored.deleting:
        return Todo.WAIT
    if wanted.origin.generation < stored.origin.generation:
        return Todo.NOTHING  # the cache is older than what was applied
    if wanted.origin.digest == stored.origin.digest:
        return Todo.NOTHING
    return _again(wanted, tried, now_s)


def _without(stored: Stored | None, *, looked: bool) -> Todo:
    if stored is None or stored.origin is None:
        return Todo.NOTHING
    if stored.deleting:
        return Todo.WAIT
    # A missed event is not a death; that the server does not know its name is.
    return Todo.DELETE if looked else Todo.LOOK


def _again(wanted: Wanted, tried: Tried | None, now_s: float) -> Todo:
    if tried is None or tried.origin != wanted.origin or tried.approved != wanted.approved:
        return Todo.APPLY
    due = tried.again_at_s is not None and now_s >= tried.again_at_s
    return Todo.APPLY if due else Todo.NOTHING
