"""The data that predictions are made from, and their types. Filled by daemon/receive.py and the
CLI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.apply.change import CREATED, PRUNED, UNCHANGED, Change
from fleetctl.apply.request import with_declared
from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.model import Resource
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.engine.execute.secrets import BarredVariable
from fleetctl.providers.contract.account import Account, Lookup, account_of, built_in
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.source_state import SourceState

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest, ManifestProblem

Key = tuple[str, str, str]  # kind, name, namespace


@dataclass(frozen=True, slots=True)
class Prediction:
    """A finding of a rule on one manifest."""

    manifest: Manifest
    finding: Finding

    @property
    def severity(self) -> Severity:
        return self.finding.severity

    def problems(self) -> list[ManifestProblem]:
        return self.manifest.problems([self.finding])


@dataclass(frozen=True, slots=True)
class PlannedWorld:
    """The objects as the changes would leave them.

    found: an object by kind, name and namespace. lookup: a variable of the shell that applies, and
    of the controller. starts_here: this process will start the applied work, so its variables
    count, also for objects that were stored before. looked: the present state of sources, by the
    key of their object.
    """

    found: Callable[[str, str, str], Resource | None]
    named: Callable[[str], Sequence[tuple[str, str]]]  # (name, namespace) of all of a kind
    providers: Mapping[str, Backend]
    declared: Mapping[str, ProviderSpec]
    lookup: Lookup
    starts_here: bool
    # Why Secrets of a namespace may not read a variable; or "".
    bars: Callable[[str, str], BarredVariable | None]
    looked: Mapping[str, SourceState] = field(default_factory=dict)

    def keeps_no_secrets(self, name: str) -> bool:
        """Returns true where work can never have the value of a secret that its provider stores."""
        backend = self.providers.get(name)
        return backend is not None and not backend.contract.secrets

    def account(self, name: str) -> Account:
        resource = self.found(PROVIDER, name, "default")
        if resource is None:
            return built_in(name)
        return account_of(name, json.loads(resource.spec), self.lookup)


def world_of(
    stored: ReadableStore,
    changes: Iterable[Change],
    providers: Mapping[str, Backend],
    provider_specs: Mapping[str, ProviderSpec],
    lookup: Lookup,
    *,
    starts_here: bool,
    looked: Mapping[str, SourceState] | None = None,
    bars: Callable[[str, str], BarredVariable | None] = lambda _variable, _namespace: None,
) -> PlannedWorld:
    """Returns the world of these changes. provider_specs: the stored Provider objects. looked: as
    in World."""
    after = {(it.after.kind, it.after.name, it.after.namespace): it.after for it in changes}

    def found(
        kind: str,
        name: str,
        namespace: str,
    ) -> Resource | None:
        resource = after.get((kind, name, namespace))
        if resource is None:
            resource = stored.resources.get(kind, name, namespace)
        if resource is not None and resource.deleted_at_s is None:
            return resource
        return None

    def named(kind: str) -> Sequence[tuple[str, str]]:
        there = {(it.name, it.namespace) for it in stored.resources.living(kind)}
        there |= {key[1:] for key in after if key[0] == kind}
        return sorted(it for it in there if found(kind, *it) is not None)

    declared = dict(provider_specs)
    for key, resource in after.items():
        if key[0] == PROVIDER and resource.deleted_at_s is None:
            spec = parse_spec(PROVIDER, resource.spec)  # with the block of its type
            assert isinstance(spec, ProviderSpec)
            declared[resource.name] = spec
    providers = with_declared(providers, declared)
    return PlannedWorld(
        found,
        named,
        providers,
        declared,
        lookup,
        starts_here,
        bars,
        looked or {},
    )


def will_start(change: Change) -> bool:
    """Returns true where this change starts new work, or keeps some ready."""
    if change.outcome in (PRUNED, UNCHANGED):
        return False
    if change.asked_again or change.impact is None:
        return change.outcome == CREATED or change.asked_again or _spec_differs(change)
    return change.impact.to_run != 0


def _spec_differs(change: Change) -> bool:
    return change.before is not None and change.before.spec != change.after.spec
