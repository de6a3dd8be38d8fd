"""The kinds as a command line names them. No models here: read paths must stay light."""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.errors import UsageError

API_VERSION = "fleetctl.dev/v1alpha1"


class Kind(NamedTuple):
    """One row of the table of names. `runs`: objects of this kind do work and can end."""

    name: str  # as a manifest and the store write it
    plural: str
    words: tuple[str, ...]  # every word that means it on a command line
    unit: str  # what one piece of its work is called
    runs: bool = True


BATCHJOB = Kind("BatchJob", "batchjobs", ("batchjobs", "batchjob", "bj", "jobs", "job"), "task")
SWEEP = Kind("Sweep", "sweeps", ("sweeps", "sweep", "sw"), "trial")
TRAININGRUN = Kind("TrainingRun", "trainingruns", ("trainingruns", "trainingrun", "tr"), "stage")
VOLUME = Kind("Volume", "volumes", ("volumes", "volume", "vol"), "", runs=False)
SECRET = Kind("Secret", "secrets", ("secrets", "secret"), "", runs=False)
KINDS = (BATCHJOB, SWEEP, TRAININGRUN, VOLUME, SECRET)

# What hangs on an object and is read through it.
TASKS = ("tasks", "task", "t")
ATTEMPTS = ("attempts", "attempt", "at")

_BY_WORD = {word: kind for kind in KINDS for word in kind.words}


class Target(NamedTuple):
    """What a person pointed at: a kind, and one object of it unless name is empty."""

    kind: Kind
    name: str

    @property
    def key(self) -> str:
        return f"{self.kind.name.lower()}/{self.name}"


def kind_of(word: str) -> Kind:
    """The kind that a word on the command line means. Raises UsageError with the nearest word."""
    kind = _BY_WORD.get(word.lower())
    if kind is None:
        raise UsageError(f"there is no kind `{word}`", hint=_nearest_kind(word.lower()))
    return kind


def kind_named(name: str) -> Kind:
    """The row of a kind as the store names it; an unknown one (a newer store) gets a plain row."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    return Kind(name, f"{name.lower()}s", (name.lower(),), "task")


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
    word = text.partition("/")[0].lower()
    if word in _BY_WORD:
        return f"`fleetctl get {_BY_WORD[word].plural}` lists the names"
    return f"for a BatchJob that would be `job/{text.strip('/') or 'NAME'}`"


def _nearest_kind(word: str) -> str:
    from fleetctl.cli.flags import did_you_mean

    everything = [*_BY_WORD, *TASKS, *ATTEMPTS, "all"]
    return did_you_mean(word, everything) or "the kinds are " + ", ".join(k.plural for k in KINDS)
