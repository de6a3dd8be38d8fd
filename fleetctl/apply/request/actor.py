"""Checks what the user may do on whose behalf the server of a team sends a request. Called by the
handlers of requests, before anything is stored.

A request without an actor is of the state directory's own user, who may do everything. The server
has checked the token; here it is decided by what would really change.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.apply.change import CONFIGURED, CREATED, UNCHANGED, Change
from fleetctl.apply.request.fields import Reply, Request, keys_in
from fleetctl.common.errors import Refused, UsageError
from fleetctl.manifest.cluster import files_in
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.manifest.problems import ManifestErrors, ManifestProblem
from fleetctl.specs.kinds.registry import KINDS, dump_spec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.specs.values.packages import LOCAL
from fleetctl.tracking.annotations import AUTHOR

if TYPE_CHECKING:
    from fleetctl.manifest import Document, Manifest
    from fleetctl.stores.base import Store

NOWHERE = Path("/nonexistent")  # no file of this machine is below it
EVERYWHERE = "*"
ADMIN = "admin"
_PARTS = re.compile(r"[^.\[\]]+")
_INLINE = "write what it holds into the manifest; `fleetctl apply --server` does that where it can"


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


@contextmanager
def reads_for(actor: RequestActor | None, documents: Sequence[Document]) -> Iterator[None]:
    """Lets no manifest of an actor read a file of this machine, but those that were sent."""
    if actor is None:
        yield
        return
    sent = sent_in(documents)
    with fence_directory(Path(os.path.commonpath(sent)) if sent else NOWHERE):
        yield


def sent_in(documents: Sequence[Document]) -> frozenset[str]:
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


def with_author(actor: RequestActor | None, changes: Sequence[Change]) -> list[Change]:
    """Returns the changes, whose objects name their author from now on; no author where it is the
    user of the state directory."""
    return [_name_author(actor, it) for it in changes]


def _name_author(actor: RequestActor | None, change: Change) -> Change:
    if change.outcome not in (CREATED, CONFIGURED):
        return change
    notes = {key: text for key, text in change.after.annotations.items() if key != AUTHOR}
    if actor is not None:
        notes[AUTHOR] = actor.user
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


def changes_by(
    actor: RequestActor, request: Request, reply: Reply
) -> Iterator[tuple[str, str, str]]:
    """Yields (key, uid or empty, sentence) for each object that a request changed, for its
    events."""
    results = reply.get("results")
    for result in results if isinstance(results, list) else ():
        outcome = str(result.get("outcome") or request.get("verb"))
        if outcome not in _NOTHING and result.get("key"):
            yield str(result["key"]), str(result.get("uid") or ""), f"{outcome} by {actor.user}"
