"""Words on a command line that name kinds and objects. The registry itself is
specs/kinds/registry.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.specs.kinds.registry import KINDS, Kind, find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key, split_key

# Resources that belong to an object and are read through it.
TASKS = ("tasks", "task", "t")
NAMESPACES = ("namespaces", "namespace", "ns")
ATTEMPTS = ("attempts", "attempt", "at")
CHECKPOINTS = ("checkpoints", "checkpoint", "ckpt")
METRICS = ("metrics", "metric")
ARTIFACTS = ("artifacts", "artifact", "outputs", "output")
INTERPRETERS = ("interpreters", "interpreter")
NOTICES = ("notices", "notice")
# Things that kubectl and similar tools list with `get`, and the verbs that show them here.
_VERBS = {
    **dict.fromkeys(("event", "events", "ev"), "events"),
    **dict.fromkeys(("log", "logs"), "logs KIND/NAME"),
    **dict.fromkeys(("result", "results"), "results KIND/NAME"),
    **dict.fromkeys(("cost", "costs", "usage"), "cost"),
    **dict.fromkeys(("orphan", "orphans"), "orphans"),
    **dict.fromkeys(("gpu", "gpus", "offers", "machines"), "doctor"),
}
_SAID_ELSEWHERE = {
    **dict.fromkeys(("pod", "pods", "po"), "tasks job/NAME"),
    **dict.fromkeys(("node", "nodes", "cluster", "clusters", "backends"), "providers"),
    **dict.fromkeys(("pvc", "pv", "persistentvolumeclaims", "storage", "buckets"), "volumes"),
    **dict.fromkeys(("deployment", "deployments", "services", "apps"), "functions"),
    **dict.fromkeys(
        ("workload", "workloads", "runs", "experiments", "experiment"),
        "batchjobs,sweeps,trainingruns",
    ),
    **dict.fromkeys(("trial", "trials"), "tasks sweep/NAME"),
    **dict.fromkeys(("stage", "stages"), "tasks tr/NAME"),
    **dict.fromkeys(("quota", "quotas"), "queues,budgets,providers"),
    **dict.fromkeys(
        ("clusterqueue", "clusterqueues", "localqueue", "localqueues", "partition", "partitions"),
        "queues",
    ),
}
_NO_KINDS = (
    *("all", *TASKS, *ATTEMPTS, *METRICS, *CHECKPOINTS, *ARTIFACTS),
    *(*NAMESPACES, *INTERPRETERS, *NOTICES),
)


class Target(NamedTuple):
    """The object of a command: a kind, and a single object unless name is empty."""

    kind: Kind
    name: str
    namespace: str = DEFAULT_NAMESPACE

    @property
    def key(self) -> str:
        return object_key(self.kind.name, self.name, self.namespace)


def kind_of(word: str) -> Kind:
    """Returns the kind that a word on the command line means. Raises UsageError with the nearest
    word."""
    kind = find_kind(word)
    if kind is not None:
        return kind
    lower = word.lower()
    parts = (TASKS, ATTEMPTS, METRICS, CHECKPOINTS, ARTIFACTS)
    listed = next((it[0] for it in parts if lower in it), "")
    if listed:
        raise UsageError(
            f"`{word}` is not a kind: {listed} belong to an object that runs work",
            hint=f"`fleetctl get {listed} {'tr' if listed == CHECKPOINTS[0] else 'job'}/NAME`;"
            " `fleetctl explain job.spec.tasks`",
        )
    if lower in _VERBS:
        raise UsageError(f"`{word}` is no kind", hint=f"here that is `fleetctl {_VERBS[lower]}`")
    value = _SAID_ELSEWHERE.get(lower)
    hint = f"here that is `fleetctl get {value}`" if value else _nearest_kind(lower)
    raise UsageError(f"there is no kind `{word}`", hint=hint)


def kinds_of(words: str) -> list[Kind]:
    """Reads `jobs` or `jobs,sweeps`, each once. Raises UsageError."""
    parts = [word.strip() for word in words.split(",")]
    if len(parts) > 1 and (odd := next((it for it in parts if it in _NO_KINDS), None)):
        raise UsageError(
            f"`{odd}` cannot be listed together with kinds", hint=f"fleetctl get {odd}"
        )
    return list(dict.fromkeys(kind_of(word) for word in parts))


def kind_named(name: str) -> Kind:
    """Returns the row of a kind as the store names it; an unknown one (a newer store) gets a plain
    row."""
    return KINDS.get(name) or Kind(
        name,
        f"{name.lower()}s",
        (),
        "",
        "task",
    )


def parse_target(text: str, namespace: str = DEFAULT_NAMESPACE) -> Target:
    """Reads `job/x` in a namespace. Raises UsageError when either half is missing."""
    word, slash, name = text.partition("/")
    if not slash or not name or not word or "/" in name:
        raise UsageError(
            f"`{text}` does not name one object; write KIND/NAME",
            hint=_slash_hint(text),
        )
    return target_of(kind_of(word), name, namespace)


def target_of(
    kind: Kind,
    name: str,
    namespace: str,
) -> Target:
    """Returns the object with that name. For a kind without namespaces `-n` has no effect."""
    return Target(kind, name, namespace if kind.namespaced else DEFAULT_NAMESPACE)


def target_with(key: str) -> Target:
    """Reads the text of `Target.key`."""
    word, name, namespace = split_key(key)
    return target_of(kind_of(word), name, namespace)


def format_commands(verb: str, keys: Sequence[str]) -> str:
    """Returns `fleetctl wait job/x job/y -n team`; one command a namespace."""
    found: dict[str, list[str]] = {}
    for key in keys:
        word, name, namespace = split_key(key)
        found.setdefault(namespace, []).append(f"{word}/{name}")
    parts = [
        f"fleetctl {verb} {' '.join(names)}{'' if within == DEFAULT_NAMESPACE else f' -n {within}'}"
        for within, names in found.items()
    ]
    return " && ".join(parts)


def _slash_hint(text: str) -> str:
    kind = find_kind(text.partition("/")[0])
    if kind is not None:
        return f"`fleetctl get {kind.plural}` lists the names"
    return f"for a BatchJob that would be `job/{text.strip('/') or 'NAME'}`"


def _nearest_kind(word: str) -> str:
    from fleetctl.common.text import did_you_mean

    kinds = KINDS.values()
    known = [w for kind in kinds for w in (kind.name.lower(), kind.plural, *kind.short)]
    near = did_you_mean(
        word, [*known, *TASKS, *ATTEMPTS, *METRICS, *CHECKPOINTS, NAMESPACES[0], NOTICES[0], "all"]
    )
    return near or "the kinds are " + ", ".join(kind.plural for kind in kinds)
