"""Evaluates each provider for a template, its price and the unmet requirements, and manages the
account and the users of each provider.

A price in a Provider object takes precedence over the provider's own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.budget import SandboxTerms
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind_controller import KindController
from fleetctl.controllers.planning.placement import ProviderOffer
from fleetctl.controllers.planning.plan import Plan, Start
from fleetctl.controllers.queues.queue_state import CPUS_UNASKED, QueueUsage
from fleetctl.engine.execute import start_specs
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.prices import price_table
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.manifest import Manifest


log = logging.getLogger("fleetctl.engine")

KIND = "Provider"

Offers = Mapping[str, Mapping[str, ProviderOffer]]  # template hash -> provider

EVENT = "SpillOver"


class PriceBook:
    """The Provider objects, read once a generation.

    accounts: makes the backend of a declared provider; admit: takes it in, by name.
    """

    def __init__(
        self,
        state: EngineState,
        *,
        accounts: ProviderAccounts | None,
        admit: Callable[[str, Backend], None],
    ) -> None:
        self._state = state
        self._accounts = accounts
        self._admit = admit
        self.declared: dict[str, ProviderSpec] = {}  # by provider name
        self.uids: dict[str, str] = {}  # uids of the Provider objects, by the same key
        # Accounts that were declared and are being removed: their runs end, and new ones do not
        # begin.
        self.closing: frozenset[str] = frozenset()
        self.closing_uids: frozenset[str] = frozenset()
        self._read: dict[tuple[str, int], ProviderSpec | None] = {}

    def refresh(self) -> bool:
        """Takes in the Provider objects as they are stored; returns True when one changed."""
        objects = [it.resource for it in self._state.tracks.of_kind(KIND)]
        living = [it for it in objects if it.deleted_at_s is None]
        self._open(objects, living)
        self._read = {(it.uid, it.generation): self._spec(it) for it in living}
        before = self.declared, self.closing
        self.declared = {}
        names = {it.name for it in living}
        going = [it for it in objects if it.deleted_at_s is not None and it.name not in names]
        own = self._state.built_in
        closing = [it for it in going if it.name not in own]
        self.closing = frozenset(it.name for it in closing)
        self.closing_uids = frozenset(it.uid for it in closing)
        self.uids = {it.name: it.uid for it in closing}
        for resource in living:
            spec = self._read[resource.uid, resource.generation]
            if spec is not None and resource.name in self._state.providers:
                self.declared[resource.name], self.uids[resource.name] = spec, resource.uid
        return (self.declared, self.closing) != before

    def _open(self, objects: list[Resource], living: list[Resource]) -> None:
        """Opens a backend for each account, also for one that is being removed: runs may still live
        there.
        """
        if self._accounts is None:
            return
        newest = {it.name: it for it in [*objects, *living]}  # a living object takes precedence
        for name, resource in newest.items():
            if resource.deleted_at_s is not None and name in self._state.built_in:
                self._accounts.restore(name)
            else:
                self._admit(name, self._accounts.open(name, json.loads(resource.spec)))

    def offers(self, work: ResourceWork) -> Offers:
        """Returns the offer of each candidate provider for each template that an object may
        start.
        """
        controller = work.controller
        found = {}
        for digest, template in _list_templates(controller):
            names = [it.provider for it in controller.placement(digest).candidates]
            found[digest] = {
                name: self._offer(
                    work.track,
                    name,
                    digest,
                    template,
                    only=len(names) == 1,
                )
                for name in names
                if name in self._state.providers and name not in self.closing
            }
        return found

    def price(
        self,
        provider: str,
        template: Template,
        namespace: str,
    ) -> float | None:
        """Returns USD a second for a sandbox; None when unknown."""
        try:
            whole, _ = start_specs.resolve_template(self._state, template, namespace)
        except Unavailable:
            return None  # the start waits for its Function
        return self._usd_per_s(provider, whole)

    def _offer(
        self,
        track: Track,
        provider: str,
        digest: str,
        template: Template,
        *,
        only: bool,
    ) -> ProviderOffer:
        try:
            whole, _ = start_specs.resolve_template(self._state, template, track.resource.namespace)
        except Unavailable:
            return ProviderOffer()
        price = self._usd_per_s(provider, whole)
        takes = takes_of(whole)
        if only:
            # Where there is no choice the provider itself refuses, with the best message.
            return ProviderOffer(price, takes=takes)
        backend = self._state.providers[provider]
        refused = track.refusals.get((digest, provider))
        volume = partial(self._volume, namespace=track.resource.namespace)
        return ProviderOffer(price, refused or find_lack(provider, backend, whole, volume), takes)

    def _usd_per_s(self, provider: str, template: Template) -> float | None:
        return price_attempt(self._state.providers[provider], self.declared.get(provider), template)

    def _volume(self, name: str, *, namespace: str) -> Resource | None:
        return self._state.store.resources.get("Volume", name, namespace)

    def _spec(self, resource: Resource) -> ProviderSpec | None:
        key = (resource.uid, resource.generation)
        if key in self._read:
            return self._read[key]
        try:
            spec = parse_spec(KIND, resource.spec)
        except ValueError:
            # Its own pass fails for this reason, and reports it in its status.
            log.warning("provider object not readable", extra={"uid": resource.uid})
            return None
        assert isinstance(spec, ProviderSpec)
        return spec


def takes_of(template: Template) -> QueueUsage:
    """Returns an attempt's usage of a queue, with all its nodes."""
    nodes = nodes_of(template).max
    asked = template.sandbox_resources
    choices = asked.gpu.choices if asked.gpu is not None else ()
    cpus = CPUS_UNASKED if asked.cpu is None else asked.cpu
    return QueueUsage(nodes, nodes * cpus, tuple((it.name, nodes * it.count) for it in choices))


def price_attempt(
    backend: Backend,
    provider_spec: ProviderSpec | None,
    template: Template,
) -> float | None:
    """Returns USD a second for an attempt with all its nodes, by its Provider object before the
    provider itself.
    """
    if provider_spec is not None and provider_spec.prices is not None:
        asked = template.sandbox_resources
        cluster = provider_spec.kubernetes
        if template.kubernetes is not None:
            cluster = (cluster or ClusterSettings()).merge_under(template.kubernetes)
        one = price_table.usd_per_s(provider_spec.prices, asked, cluster)
    else:
        one = backend.usd_per_s(template)
    if one is None:
        return None
    return one * nodes_of(template).max


def find_lack(
    provider: str,
    backend: Backend,
    template: Template,
    volume_named: Callable[[str], Resource | None],
) -> str:
    """Returns why this template can never run there, as far as is known without a request; or
    empty.
    """
    if template.is_function and not backend.contract.functions:
        return f"provider `{provider}` has no functions"
    if why := backend.contract.cannot_join(provider, template):
        return why
    for mount in template.volumes:
        volume = volume_named(mount.name)
        kept = getattr(parse_spec("Volume", volume.spec), "provider", "") if volume else ""
        if kept and kept != provider:
            return f"volume `{mount.name}` is kept on `{kept}`"
    return backend.lacks(template)


def _list_templates(controller: KindController) -> list[tuple[str, Template]]:
    """Returns every template that a unit may start with, by its hash; kinds share one or have
    few.
    """
    if controller.template_hash:
        return [(controller.template_hash, controller.content(controller.first))]
    units = [controller.unit(index) for index in controller.indexes()]
    return [(unit.template_hash, controller.template(unit.index)) for unit in units if unit]


class ProviderAccounts(Protocol):
    """Makes the backend of a declared provider; implemented in wiring/."""

    def open(self, name: str, spec: Mapping[str, object]) -> Backend:
        """Returns the same backend for the same name, with the account that the spec names from now
        on.
        """
        ...

    def restore(self, name: str) -> None:
        """Restores the defaults of a built-in provider whose object was removed."""
        ...


def list_users(tracks: Mapping[str, Track], name: str) -> Iterator[str]:
    """Yields keys of objects that hold capacity at the provider: runs, sandboxes, or assets."""
    for track in tracks.values():
        about = track.resource
        history = track.work.history if track.work is not None else None
        if about.kind in ("Volume", "Function"):
            holds = asset_provider(about) == name
        elif history is not None:
            live = any(run.provider == name for run in history.live.values())
            holds = live or any(it.provider == name for it in history.sandboxes.held.counts)
        else:
            holds = False
        if holds:
            yield about.key


def asset_provider(asset: Resource) -> str:
    """Returns the provider of a volume or a function."""
    return str(json.loads(asset.spec).get("provider", DEFAULT_PROVIDER))


def may_cost(
    manifests: Sequence[Manifest],
    providers: Mapping[str, Backend],
    provider_specs: Mapping[str, ProviderSpec],
) -> bool:
    """Returns true where some of the work may run at a provider that is not known to be free."""
    if any(isinstance(manifest.spec, ProviderSpec) for manifest in manifests):
        return True  # it may put a price on work that was free
    return any(
        _has_priced_work(manifest.spec, providers, provider_specs)
        if isinstance(manifest.spec, WorkSpec)
        else _has_warm_cost(manifest.spec, providers, provider_specs)
        for manifest in manifests
    )


def _has_warm_cost(
    spec: object,
    providers: Mapping[str, Backend],
    provider_specs: Mapping[str, ProviderSpec],
) -> bool:
    """Returns true where it has containers of its own at a provider that is not known to be
    free."""
    if not isinstance(spec, FunctionSpec) or not (spec.min_containers or spec.port):
        return False
    name = spec.provider
    whole = spec.applied_to(Template())
    return (
        name in providers and price_attempt(providers[name], provider_specs.get(name), whole) != 0.0
    )


def _has_priced_work(
    spec: WorkSpec,
    providers: Mapping[str, Backend],
    provider_specs: Mapping[str, ProviderSpec],
) -> bool:
    return any(
        price_attempt(providers[it.provider], provider_specs.get(it.provider), part.template) != 0.0
        for part in spec.parts()
        for it in part.placement.candidates
        if it.provider in providers
    )


def contract_of(state: EngineState, provider: str) -> Contract | None:
    """Returns None for a provider that this version cannot read; its runs have a cost all the
    same.
    """
    backend = state.providers.get(provider)
    if backend is not None:
        return backend.contract
    return None


def terms_of(state: EngineState, provider: str) -> SandboxTerms:
    contract = contract_of(state, provider)
    if contract is None:
        return SandboxTerms()
    ages_s = (contract.max_lifetime_s, contract.usual_lifetime_s)
    shared_s = min((it for it in ages_s if it is not None), default=None)
    return SandboxTerms(contract.max_lifetime_s, contract.billing_quantum_s, shared_s)


def say_spills(
    state: EngineState,
    track: Track,
    plan: Plan,
) -> None:
    """Adds one event for each provider that work spills over to, under one generation of the
    spec.
    """
    for start in plan.actions:
        if isinstance(start, Start) and start.spilled and start.provider not in track.spilled_to:
            track.spilled_to.add(start.provider)
            text = f"work moves on to `{start.provider}`: {start.placed}"
            state.say(track.resource.uid, EVENT, text)
