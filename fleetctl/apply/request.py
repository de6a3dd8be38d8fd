"""Reads and checks a request: its lists, keys and ranges, the options of an apply, and what the
user may do on whose behalf the server of a team sends it.

A request without an actor is of the state directory's own user, who may do everything. The server
has checked the token; here it is decided by what would really change.
"""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.apply.change import CONFIGURED, CREATED, UNCHANGED, Change
from fleetctl.apply.deletion import PruneLimit
from fleetctl.common.author import AUTHOR, CREATOR, author_name, parse_agent
from fleetctl.common.errors import Conflict, Refused, UsageError
from fleetctl.controllers.budget import CostEstimate
from fleetctl.manifest import Document
from fleetctl.manifest.cluster import files_in
from fleetctl.manifest.document.envelope import NamespaceChoice
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.manifest.problems import ManifestErrors, ManifestProblem
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.contract.orphans import Orphan
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import KINDS, dump_spec, find_kind
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key, split_key
from fleetctl.specs.values.packages import LOCAL
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import ESTIMATE, note_trace
from fleetctl.tracking.by_hand import SET_PREFIX
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.source_state import SourceState

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest
    from fleetctl.stores.base import Store


Reply = dict[str, object]
Request = Mapping[str, object]

ROLLOUTS = ("Replace", "FinishRunning")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_LIMIT = re.compile(r"(\d{1,9})(%?)")

NOWHERE = Path("/nonexistent")  # no file of this machine is below it
EVERYWHERE = "*"
ADMIN = "admin"
_PARTS = re.compile(r"[^.\[\]]+")
_INLINE = "write what it holds into the manifest; `fleetctl apply --server` does that where it can"


def list_in(request: Request, name: str) -> list[object]:
    value = request.get(name)
    if not isinstance(value, list):
        raise UsageError(f"the request needs a list `{name}`")
    return value


def keys_in(request: Request) -> list[tuple[str, str, str]]:
    """Returns (kind, name, namespace) of each key; kinds by any of their names."""
    out = []
    for key in list_in(request, "keys"):
        word, name, namespace = split_key(str(key))
        kind = find_kind(word)
        if kind is None or not name:
            raise UsageError(f"`{key}` is not KIND/NAME")
        out.append((kind.name, name, namespace if kind.namespaced else DEFAULT_NAMESPACE))
    return out


def ranges_of(pairs: list[object]) -> tuple[range, ...]:
    """Returns ranges from [first, last] pairs. Raises ValueError."""
    found = [[int(number) for number in pair] for pair in pairs if isinstance(pair, list)]
    if len(found) < len(pairs) or any(len(it) != 2 or it[0] > it[1] for it in found):
        raise ValueError("indexes are pairs of a first and a last one")
    return tuple(range(first, last + 1) for first, last in found)


def document_of(item: object) -> Document:
    if not isinstance(item, dict) or "path" not in item or "dir" not in item:
        raise UsageError("a document must be {path, text, dir}")
    return Document(
        path=str(item["path"]),
        text=str(item.get("text", "")),
        dir=str(item["dir"]),
        refused=str(item.get("refused", "")),
        hint=str(item.get("hint", "")),
        role=str(item.get("role", "")),
        sent=sent if isinstance(sent := item.get("sent"), dict) else {},
    )


def orphan_of(item: object) -> Orphan:
    """Returns one orphan of an adopt request. Raises UsageError."""
    if not isinstance(item, dict) or not all(item.get(it) for it in ("provider", "id", "run")):
        raise UsageError("a sandbox to adopt must be {provider, id, run, ...}")
    at_s = item.get("createdAt")
    given = {name: str(value or "") for name, value in item.items()}
    return Orphan(
        provider=given["provider"],
        handle=given["id"],
        store=given.get("store", ""),
        run=given["run"],
        job=given.get("job", ""),
        index=given.get("index", ""),
        created_at_s=float(at_s) if isinstance(at_s, int | float) else 0.0,
        uid=given.get("uid", ""),
        work=given.get("work", ""),
    )


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options that a user gave beside the files, for this apply alone. rollout: as
    spec.rollout, or empty. keep_finished: outdated units count all the same. rerun: every ended run
    is repeated.
    """

    rollout: str = ""
    keep_finished: bool = False
    rerun: bool = False
    applyset: str = ""
    take_over: bool = False  # also what belongs to another apply set
    pruning: PruneLimit | None = None
    # provider -> what an object runs there at once that names no parallelism
    parallelism: Mapping[str, int] = field(default_factory=dict)
    looked: Mapping[str, SourceState] = field(default_factory=dict)  # key -> what its source is now
    sources: ManifestSources | None = None  # reports how a source differs from the applied one
    namespace: str = DEFAULT_NAMESPACE  # for documents that name none
    everywhere: bool = False  # objects may be pruned in any namespace
    # The estimated cost of each object, by key, for policies; None: not estimated yet.
    costs: Mapping[str, CostEstimate] | None = None
    unjudged: bool = False  # the program itself applies it, and policies do not judge it
    gathers: bool = False  # a conflict is a finding of its change, and does not end the proposal
    by_hand: bool = False  # the manifests are stored objects that a user edited


def order_of(request: Request) -> ApplyOptions:
    """Returns the options. Raises UsageError for invalid ones."""
    applyset = _read_text(request, "applyset")
    if applyset and not _NAME.fullmatch(applyset):
        raise UsageError(
            f"`{applyset}` cannot name an apply set",
            hint="write lower case letters, digits, `-` and `.`, at most 63",
        )
    if applyset.startswith(SET_PREFIX):
        raise UsageError(
            f"`{applyset}` is the apply set of a Source",
            hint="change its repository, or give your set another name",
        )
    rollout = _read_text(request, "rollout")
    if rollout and rollout not in ROLLOUTS:
        raise UsageError(f"`{rollout}` is not a rollout", hint=f"there are {', '.join(ROLLOUTS)}")
    pruning = None
    if request.get("prune"):
        if not applyset:
            raise UsageError("pruning needs the name of an apply set")
        pruning = pruning_of(_read_text(request, "maxPrune"))
    take_over = bool(request.get("takeOver"))
    within = namespace_of(request).name
    keep_finished = bool(request.get("keepFinished"))
    rerun = bool(request.get("rerun"))
    if keep_finished and rerun:
        raise UsageError("work that runs again cannot be kept", hint="--rerun or --keep-finished")
    return ApplyOptions(
        rollout=rollout,
        keep_finished=keep_finished,
        rerun=rerun,
        applyset=applyset,
        take_over=take_over,
        pruning=pruning,
        namespace=within,
    )


def namespace_of(request: Request) -> NamespaceChoice:
    """Returns the namespace of `-n`, or the default for documents that name none."""
    name = _read_text(request, "namespace")
    return NamespaceChoice(name or DEFAULT_NAMESPACE, binding=bool(request.get("namespaceBinds")))


def pruning_of(limit: str) -> PruneLimit:
    """Reads `3`, `20%`, or empty for the guard's own limit."""
    if not limit:
        return PruneLimit()
    match = _LIMIT.fullmatch(limit)
    if match is None or (match[2] and int(match[1]) > 100):
        raise UsageError(f"--max-prune is `{limit}`; it must be a number or a share such as `20%`")
    number = int(match[1])
    if match[2]:
        return PruneLimit(share=number / 100)
    return PruneLimit(most=number)


def with_declared(
    providers: Mapping[str, Backend], specs: Mapping[str, Spec]
) -> dict[str, Backend]:
    """Returns the providers and those that these Provider specs, by name, are about to declare:
    until then each has the features of any account of its type.
    """
    fresh = {
        name: providers[spec.type]
        for name, spec in specs.items()
        if isinstance(spec, ProviderSpec) and spec.type is not None and spec.type in providers
    }
    return {**fresh, **providers}


def select_providers(manifests: Sequence[Manifest]) -> dict[str, Spec]:
    return {it.name: it.spec for it in manifests if it.kind == "Provider"}


def parallelism_of(providers: Mapping[str, Backend]) -> dict[str, int]:
    """Returns the parallelism that each provider grants an object that names none."""
    return {name: backend.contract.default_parallelism for name, backend in providers.items()}


def approved_in(request: Request) -> frozenset[str]:
    """Returns the losses that the user approved: names of runs and keys of objects."""
    found = request.get("approved")
    if isinstance(found, list):
        return frozenset(str(name) for name in found)
    return frozenset()


def check_expected(
    request: Request,
    stored: ReadableStore,
    changes: Sequence[Change],
) -> None:
    """Raises Conflict when the objects are not those that the plan of the request was made for."""
    expected = request.get("expected")
    if not isinstance(expected, dict):
        return
    if expected.get("store") not in ("", None, stored.store_id):
        raise _stale_plan("it was made for another store")
    planned = expected.get("objects")
    planned = planned if isinstance(planned, dict) else {}
    found = {change.key: change for change in changes}
    for key in [*planned, *(key for key in found if key not in planned)]:
        if key not in planned:
            raise _stale_plan(f"{key} would be {found[key].outcome}, and it is not in the plan")
        if key not in found:
            raise _stale_plan(f"{key} is not touched any more")
        if planned[key] != version_of(found[key]):
            raise _stale_plan(f"{key} changed since")
    planned_digests = expected.get("wishes")
    if isinstance(planned_digests, dict) and planned_digests != digests_of(changes):
        differ = [
            it for it in planned_digests if planned_digests[it] != digests_of(changes).get(it)
        ]
        raise _stale_plan(f"a file that {', '.join(differ[:3])} names has changed")


def version_of(change: Change) -> list[object]:
    """Returns the version of an object that a plan stores, to find out later if the plan is
    stale."""
    before = change.before
    if before is None:
        return [change.outcome, "", 0]
    return [change.outcome, before.uid, before.generation]


def digests_of(changes: Sequence[Change]) -> dict[str, str]:
    """Returns a digest of each object's next state, with all content that its manifest reads in."""
    return {
        it.key: _hash_value([it.after.spec, it.after.labels, _drop_estimate(it.after.annotations)])
        for it in changes
    }


def _drop_estimate(annotations: Mapping[str, str]) -> dict[str, str]:
    """Returns the annotations without estimates: another estimate is not another spec."""
    return {key: text for key, text in annotations.items() if key != ESTIMATE}


def _hash_value(value: object) -> str:
    return sha256(canonical_json(value).encode()).hexdigest()


def _stale_plan(how: str) -> Conflict:
    return Conflict(f"this plan is stale: {how}", hint="make the plan again")


def _read_text(request: Request, name: str) -> str:
    value = request.get(name)
    if isinstance(value, str):
        return value
    return ""


class RequestActor(NamedTuple):
    """A user of the server. namespace: the one of their role; EVERYWHERE: all."""

    user: str
    role: str
    namespace: str

    def may_change(self, kind: str, namespace: str) -> bool:
        if self.namespace == EVERYWHERE:
            return self.role == ADMIN or KINDS[kind].namespaced
        return KINDS[kind].namespaced and namespace == self.namespace


def actor_in(request: Request) -> RequestActor | None:
    """Returns the actor; None for the user of the state directory. Raises UsageError."""
    found = request.get("actor")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise UsageError("`actor` must be {user, role, namespace}")
    return RequestActor(*(str(found[name]) for name in RequestActor._fields))


def author_in(request: Request) -> str:
    """Returns the name that a request's changes are signed with; empty where the user of the state
    directory typed it. `author`: the operator knows it already."""
    if known := _read_text(request, "author"):
        return known
    actor = actor_in(request)
    given = _read_text(request, "agent")
    agent = parse_agent(given) if given else ""
    if actor is not None:
        return author_name(actor.user, agent)
    return author_name(getpass.getuser(), agent) if agent else ""


@contextmanager
def reads_for(actor: RequestActor | None, documents: Sequence[Document]) -> Iterator[None]:
    """Lets no manifest of an actor read a file of this machine, but those that were sent."""
    if actor is None:
        yield
        return
    sent = list_sent_paths(documents)
    with fence_directory(Path(os.path.commonpath(sent)) if sent else NOWHERE):
        yield


def list_sent_paths(documents: Sequence[Document]) -> frozenset[str]:
    """Returns the paths of all files that were sent along."""
    return frozenset(path for it in documents for path in it.sent.values())


def refuse_reach(
    actor: RequestActor | None,
    manifests: Sequence[Manifest],
    before: Mapping[str, str] | None = None,
    sent: frozenset[str] = frozenset(),
) -> None:
    """Raises ManifestErrors where a manifest names a file of this machine, or a program to start
    beside the controller. before: stored specs, JSON, by key: what they name already is no news.
    sent: paths of files that came with the manifests.
    """
    if actor is None:
        return
    found = [
        it
        for manifest in manifests
        for it in _find_reach(actor, manifest, (before or {}).get(manifest.key, "{}"), sent)
    ]
    if found:
        raise ManifestErrors(found)


def _find_reach(
    actor: RequestActor,
    manifest: Manifest,
    before: str,
    sent: frozenset[str],
) -> Iterator[ManifestProblem]:
    spec, old = json.loads(dump_spec(manifest.spec)), json.loads(before)
    at = manifest.origin or manifest.key
    for where, _ in files_in(KINDS[manifest.kind].files, spec):
        value = _value_at(spec, where)
        if value == _value_at(old, where) or _was_sent(manifest, where, value, sent):
            continue
        message = f"{manifest.key}: {where} names a file, and the server has no file of yours"
        yield ManifestProblem(at, 0, 0, message, _INLINE)
    programs = _programs_of_notices(spec) - _programs_of_notices(old)
    if programs and actor.role != ADMIN:
        message = f"{manifest.key}: `notify` starts a program on the server, which an admin may"
        yield ManifestProblem(at, 0, 0, message, "use a `webhook`, `slack` or `email`")


def _was_sent(
    manifest: Manifest,
    where: str,
    value: object,
    sent: frozenset[str],
) -> bool:
    """Returns whether the files that a field names came with the manifests."""
    if where.endswith("source.path"):
        return manifest.origin in sent
    if where.endswith("tasks.files"):
        found = value.get("found") if isinstance(value, Mapping) else None
        return bool(found) and all(it.get("sha256") in manifest.inputs for it in found or ())
    package = LOCAL.fullmatch(value) if isinstance(value, str) else None
    return package is not None and package["path"] in sent


def _value_at(spec: object, where: str) -> object:
    """Returns the value at a path such as `spec.stages[0].source.path`; None for none."""
    for part in _PARTS.findall(where.removeprefix("spec.")):
        if isinstance(spec, list) and part.isdigit() and int(part) < len(spec):
            spec = spec[int(part)]
        elif isinstance(spec, Mapping):
            spec = spec.get(part)
        else:
            return None
    return spec


def _programs_of_notices(value: object) -> set[str]:
    """Returns the programs in all entries of `notify` of a spec, also in templates of objects."""
    found: set[str] = set()
    if isinstance(value, list):
        return found.union(*map(_programs_of_notices, value))
    if not isinstance(value, Mapping):
        return found
    for name, inner in value.items():
        if name == "notify" and isinstance(inner, list):
            entries = [it for it in inner if isinstance(it, Mapping)]
            found.update(json.dumps(it["command"]) for it in entries if it.get("command"))
        found |= _programs_of_notices(inner)
    return found


def refuse_beyond(actor: RequestActor | None, keys: Iterable[tuple[str, str, str]]) -> None:
    """Raises Refused where one of the objects is not the actor's to change. keys: (kind, name,
    namespace)."""
    if actor is None:
        return
    beyond = [it for it in keys if not actor.may_change(it[0], it[2])]
    if beyond:
        kind, name, namespace = beyond[0]
        more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        need = f"in namespace `{namespace}`" if KINDS[kind].namespaced else "in all namespaces"
        raise Refused(
            f"`{actor.user}` is {actor.role} in `{actor.namespace}`, and may not change"
            f" {object_key(kind, name, namespace)}{more}",
            hint=f"ask for a token with a role {need}",
        )


def refuse_changes_beyond(actor: RequestActor | None, changes: Sequence[Change]) -> None:
    """As `refuse_beyond`, for all that an apply would change, and all that it names."""
    refuse_beyond(actor, [(it.after.kind, it.after.name, it.after.namespace) for it in changes])


def with_author(author: str, changes: Sequence[Change]) -> list[Change]:
    """Returns the changes, whose objects name their author from now on. author: empty for the user
    of the state directory."""
    return [_name_author(author, it) for it in changes]


def with_trace(
    traceparent: str,
    changes: Sequence[Change],
    now_s: float,
) -> list[Change]:
    """Returns the changes, whose objects belong to this trace from now on; empty for none. An
    object that stays as it is keeps its own: a trace alone changes nothing."""
    if not traceparent:
        return list(changes)
    return [_name_trace(traceparent, it, now_s) for it in changes]


def _name_trace(
    traceparent: str,
    change: Change,
    now_s: float,
) -> Change:
    if change.outcome not in (CREATED, CONFIGURED) or not KINDS[change.after.kind].runs:
        return change
    notes = note_trace(change.after.annotations, traceparent, now_s)
    return replace(change, after=replace(change.after, annotations=notes))


def traceparent_in(request: Request) -> str:
    """Returns the text in which the caller names its span; empty without one."""
    return _read_text(request, "traceparent")


def _name_author(author: str, change: Change) -> Change:
    if change.outcome not in (CREATED, CONFIGURED):
        return change
    notes = {key: text for key, text in change.after.annotations.items() if key != AUTHOR}
    if author:
        notes[AUTHOR] = author
        if change.outcome == CREATED:
            notes[CREATOR] = author
    if notes == change.after.annotations:
        return change
    return replace(change, after=replace(change.after, annotations=notes))


# Of the controller's verbs; the others concern the whole store or machine.
ACTOR_VERBS = (
    "apply", "set", "delete", "abandon", "create", "reconcile", "suspend", "resume", "retry",
)  # fmt: skip
_NOTHING = (UNCHANGED, "refused", "missing")


def refuse_request_beyond(actor: RequestActor, request: Request, store: Store) -> None:
    """Raises Refused for a verb that no user of the server may send, or for an object that is not
    the actor's to change. What an apply changes is checked when it is known."""
    if request.get("verb") not in ACTOR_VERBS:
        raise Refused(
            "this is done on the machine of the controller, which a server cannot do for you",
            hint="run it there, as the user whose state directory it is",
        )
    named = [it for it in (request.get("key"), request.get("from")) if it is not None]
    keys = request.get("keys")
    keys = keys_in({"keys": [*named, *(keys if isinstance(keys, list) else [])]})
    uids = request.get("uids")
    if isinstance(uids, list):
        rows = [store.resources.of(str(uid)) for uid in uids]
        keys += [(it.kind, it.name, it.namespace) for it in rows if it is not None]
    refuse_beyond(actor, keys)


def changes_by(author: str, request: Request, reply: Reply) -> Iterator[tuple[str, str, str]]:
    """Yields (key, uid or empty, sentence) for each object that a request changed, for its
    events."""
    results = reply.get("results")
    for result in results if isinstance(results, list) else ():
        outcome = str(result.get("outcome") or request.get("verb"))
        if outcome not in _NOTHING and result.get("key"):
            yield str(result["key"]), str(result.get("uid") or ""), f"{outcome} by {author}"
