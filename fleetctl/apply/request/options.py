"""What an apply request says beside its documents, read and checked. Called by the socket server
and by dry runs, which speak the same language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from fleetctl.apply.change import Change
from fleetctl.apply.prune import Pruning
from fleetctl.apply.request.fields import Request
from fleetctl.common.errors import Conflict, UsageError
from fleetctl.controllers.money.estimate import Estimate
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import Stored
from fleetctl.tracking.annotations import ESTIMATE
from fleetctl.tracking.looked import Looked
from fleetctl.tracking.ownership import SET_PREFIX
from fleetctl.tracking.sources import Sources

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

ROLLOUTS = ("Replace", "FinishRunning")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_LIMIT = re.compile(r"(\d{1,9})(%?)")


@dataclass(frozen=True, slots=True)
class Order:
    """What a person said beside the files, for this apply alone. rollout: as spec.rollout, or
    empty. keep_finished: outdated units count all the same. rerun: all that ended runs again.
    """

    rollout: str = ""
    keep_finished: bool = False
    rerun: bool = False
    applyset: str = ""
    take_over: bool = False  # also what belongs to another apply set
    pruning: Pruning | None = None
    # provider -> what an object runs there at once that names no parallelism
    parallelism: Mapping[str, int] = field(default_factory=dict)
    looked: Mapping[str, Looked] = field(default_factory=dict)  # key -> what its source is now
    sources: Sources | None = None  # who tells how a source differs from what was applied
    namespace: str = DEFAULT_NAMESPACE  # where documents go that name none
    everywhere: bool = False  # what is pruned may be in any namespace
    # What each object may cost, by key, for policies; None: nobody has reckoned it yet.
    costs: Mapping[str, Estimate] | None = None
    unjudged: bool = False  # it comes of ourselves, and policies have no say in it
    by_hand: bool = False  # the manifests are stored objects that somebody edited


def order_of(request: Request) -> Order:
    """Raises UsageError for what cannot be meant."""
    applyset = _text(request, "applyset")
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
    rollout = _text(request, "rollout")
    if rollout and rollout not in ROLLOUTS:
        raise UsageError(f"`{rollout}` is not a rollout", hint=f"there are {', '.join(ROLLOUTS)}")
    pruning = None
    if request.get("prune"):
        if not applyset:
            raise UsageError("pruning needs the name of an apply set")
        pruning = pruning_of(_text(request, "maxPrune"))
    take_over, within = bool(request.get("takeOver")), namespace_of(request).name
    keep_finished, rerun = bool(request.get("keepFinished")), bool(request.get("rerun"))
    if keep_finished and rerun:
        raise UsageError("what is to run again cannot be kept", hint="--rerun or --keep-finished")
    return Order(
        rollout=rollout,
        keep_finished=keep_finished,
        rerun=rerun,
        applyset=applyset,
        take_over=take_over,
        pruning=pruning,
        namespace=within,
    )


def namespace_of(request: Request) -> Chosen:
    """What `-n` said, or where documents without a word of it go."""
    name = _text(request, "namespace")
    return Chosen(name or DEFAULT_NAMESPACE, binding=bool(request.get("namespaceBinds")))


def pruning_of(limit: str) -> Pruning:
    """`3`, `20%`, or empty for the guard's own limit."""
    if not limit:
        return Pruning()
    match = _LIMIT.fullmatch(limit)
    if match is None or (match[2] and int(match[1]) > 100):
        raise UsageError(f"--max-prune is `{limit}`; it must be a number or a share such as `20%`")
    number = int(match[1])
    return Pruning(share=number / 100) if match[2] else Pruning(most=number)


def with_declared(
    providers: Mapping[str, Backend], specs: Mapping[str, Spec]
) -> dict[str, Backend]:
    """Also those that these Provider specs, by name, are about to declare: until then each is what
    every account of its type is.
    """
    fresh = {
        name: providers[spec.type]
        for name, spec in specs.items()
        if isinstance(spec, ProviderSpec) and spec.type is not None and spec.type in providers
    }
    return {**fresh, **providers}


def declared_in(manifests: Sequence[Manifest]) -> dict[str, Spec]:
    return {it.name: it.spec for it in manifests if it.kind == "Provider"}


def parallelism_of(providers: Mapping[str, Backend]) -> dict[str, int]:
    """What each provider gives an object that names no parallelism."""
    return {name: backend.contract.default_parallelism for name, backend in providers.items()}


def approved_in(request: Request) -> frozenset[str]:
    """What a person has seen going: names of runs and keys of objects."""
    found = request.get("approved")
    return frozenset(str(name) for name in found) if isinstance(found, list) else frozenset()


def expect(request: Request, stored: Stored, changes: Sequence[Change]) -> None:
    """Raises Conflict when the objects are not those that the plan of the request was made for."""
    expected = request.get("expected")
    if not isinstance(expected, dict):
        return
    if expected.get("store") not in ("", None, stored.store_id):
        raise _moved("it was made for another store")
    planned = expected.get("objects")
    planned = planned if isinstance(planned, dict) else {}
    found = {change.key: change for change in changes}
    for key in [*planned, *(key for key in found if key not in planned)]:
        if key not in planned:
            raise _moved(f"{key} would be {found[key].outcome}, and it is not in the plan")
        if key not in found:
            raise _moved(f"{key} is not touched any more")
        if planned[key] != version_of(found[key]):
            raise _moved(f"{key} changed since")
    planned_digests = expected.get("wishes")
    if isinstance(planned_digests, dict) and planned_digests != digests_of(changes):
        differ = [
            it for it in planned_digests if planned_digests[it] != digests_of(changes).get(it)
        ]
        raise _moved(f"a file that {', '.join(differ[:3])} names has changed")


def version_of(change: Change) -> list[object]:
    """What a plan keeps of an object, to tell later whether it is stale."""
    before = change.before
    if before is None:
        return [change.outcome, "", 0]
    return [change.outcome, before.uid, before.generation]


def digests_of(changes: Sequence[Change]) -> dict[str, str]:
    """A digest of what each object is to become, with all that its manifest reads in."""
    return {
        it.key: _digest([it.after.spec, it.after.labels, _told(it.after.annotations)])
        for it in changes
    }


def _told(annotations: Mapping[str, str]) -> dict[str, str]:
    """Without what was reckoned: another estimate is not another spec."""
    return {key: text for key, text in annotations.items() if key != ESTIMATE}


def _digest(value: object) -> str:
    return sha256(canonical_json(value).encode()).hexdigest()


def _moved(how: str) -> Conflict:
    return Conflict(f"this plan is stale: {how}", hint="make the plan again")


def _text(request: Request, name: str) -> str:
    value = request.get(name)
    return value if isinstance(value, str) else ""
