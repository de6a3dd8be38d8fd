"""What predictions are made from, and what they are. Filled by daemon/receive.py and the CLI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from fleetctl.apply.change import CREATED, PRUNED, UNCHANGED, Change
from fleetctl.apply.request.options import with_declared
from fleetctl.controllers.model import Resource
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.manifest.messages import Finding
from fleetctl.providers.contract.account import Account, Lookup, account_of, built_in
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.stores.base import Stored

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

Key = tuple[str, str, str]  # kind, name, namespace


class Sort(Enum):
    """How sure it is that nothing will come of it."""

    NEVER = "it can never work as it is written"
    LATER = "something is missing that may come later"
    CAPACITY = "there is no such machine now"
    DOUBT = "it may be meant"


@dataclass(frozen=True, slots=True)
class Prediction:
    manifest: Manifest
    finding: Finding
    sort: Sort = Sort.NEVER


@dataclass(frozen=True, slots=True)
class World:
    """As the changes would leave it.

    found: an object by kind, name and namespace. lookup: a variable of the shell that asks, and of
    the controller. starts_here: this process will start what is applied, so its variables are those
    that count, also for objects that were stored before.
    """

    found: Callable[[str, str, str], Resource | None]
    named: Callable[[str], Sequence[tuple[str, str]]]  # (name, namespace) of all of a kind
    providers: Mapping[str, Backend]
    declared: Mapping[str, ProviderSpec]
    lookup: Lookup
    starts_here: bool

    def keeps_no_secrets(self, name: str) -> bool:
        """Whether work there can never have the value of a secret that its provider keeps."""
        backend = self.providers.get(name)
        return backend is not None and not backend.contract.secrets

    def account(self, name: str) -> Account:
        resource = self.found(PROVIDER, name, "default")
        if resource is None:
            return built_in(name)
        return account_of(name, json.loads(resource.spec), self.lookup)


def world_of(
    stored: Stored,
    changes: Iterable[Change],
    providers: Mapping[str, Backend],
    provider_specs: Mapping[str, ProviderSpec],
    lookup: Lookup,
    *,
    starts_here: bool,
) -> World:
    """provider_specs: the Provider objects that are stored."""
    after = {(it.after.kind, it.after.name, it.after.namespace): it.after for it in changes}

    def found(kind: str, name: str, namespace: str) -> Resource | None:
        resource = after.get((kind, name, namespace))
        if resource is None:
            resource = stored.resources.get(kind, name, namespace)
        return resource if resource is not None and resource.deleted_at_s is None else None

    def named(kind: str) -> Sequence[tuple[str, str]]:
        there = {(it.name, it.namespace) for it in stored.resources.living(kind)}
        there |= {key[1:] for key in after if key[0] == kind}
        return sorted(it for it in there if found(kind, *it) is not None)

    declared = dict(provider_specs)
    for key, resource in after.items():
        if key[0] == PROVIDER and resource.deleted_at_s is None:
            spec = parse_spec(PROVIDER, resource.spec)
            assert isinstance(spec, ProviderSpec)
            declared[resource.name] = spec
    providers = with_declared(providers, declared)
    return World(found, named, providers, declared, lookup, starts_here)


def will_start(change: Change) -> bool:
    """Whether anything new would start, or be kept ready, because of this change."""
    if change.outcome in (PRUNED, UNCHANGED):
        return False
    if change.asked_again or change.impact is None:
        return change.outcome == CREATED or change.asked_again or _differs(change)
    return change.impact.to_run != 0


def _differs(change: Change) -> bool:
    return change.before is not None and change.before.spec != change.after.spec
