"""Words on a command line that name kinds and objects. The registry itself is specs/kinds.py."""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.errors import UsageError
from specs.kinds import KINDS, Kind, find_kind

# What hangs on an object and is read through it.
TASKS = ("tasks", "task", "t")
ATTEMPTS = ("attempts", "attempt", "at")


class Target(NamedTuple):
    """What a person pointed at: a kind, and one object of it unless name is empty."""

    kind: Kind
    name: str

    @property
    def key(self) -> str:
        return f"{self.kind.name.lower()}/{self.name}"


def kind_of(word: str) -> Kind:
    """The kind that a word on the command line means. Raises UsageError with the nearest word."""
    kind = find_kind(word)
    if kind is None:
        raise UsageError(f"there is no kind `{word}`", hint=_nearest_kind(word.lower()))
    return kind


def kind_named(name: str) -> Kind:
    """The row of a kind as the store names it; an unknown one (a newer store) gets a plain row."""
    return KINDS.get(name) or Kind(name, f"{name.lower()}s", (), "", "task")


def target(text: str) -> Target:
    """`job/x` as a kind and a name. Raises UsageError when either half is missing."""
    word, slash, name = text.partition("/")
    if not slash or not name or not word or "/" in name:
        raise UsageError(
            f"`{text}` does not name one object; write KIND/NAME",
            hint=_slash_hint(text),
        )
    return Target(kind_of(word), name)


def _slash_hint(text: str) -> str:
    kind = find_kind(text.partition("/")[0])
    if kind is not None:
        return f"`fleetctl get {kind.plural}` lists the names"
    return f"for a BatchJob that would be `job/{text.strip('/') or 'NAME'}`"


def _nearest_kind(word: str) -> str:
    from fleetctl.cli.flags import did_you_mean

    kinds = KINDS.values()
    known = [w for kind in kinds for w in (kind.name.lower(), kind.plural, *kind.short)]
    near = did_you_mean(word, [*known, *TASKS, *ATTEMPTS, "all"])
    return near or "the kinds are " + ", ".join(kind.plural for kind in kinds)
