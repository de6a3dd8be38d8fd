"""Reads and checks the options of an apply request. Called by the socket server and by dry runs,
which use the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from fleetctl.apply.change import Change
from fleetctl.apply.prune import PruneLimit
from fleetctl.apply.request.fields import Request
from fleetctl.common.errors import Conflict, UsageError
from fleetctl.controllers.money.estimate import CostEstimate
from fleetctl.manifest.document.namespaces import NamespaceChoice
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import ESTIMATE
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.ownership import SET_PREFIX
from fleetctl.tracking.source_state import SourceState

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

ROLLOUTS = ("Replace", "FinishRunning")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_LIMIT = re.compile(r"(\d{1,9})(%?)")


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


def declared_in(manifests: Sequence[Manifest]) -> dict[str, Spec]:
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
