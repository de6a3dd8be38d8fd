"""What each provider is to a template: its price, and what it lacks. Called by passes.

What a person says in a Provider object comes before what the provider says itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind import KindController
from fleetctl.controllers.planning.placement import Offer
from fleetctl.controllers.queues.takes import CPUS_UNASKED, Takes
from fleetctl.engine.capacity.providers import Accounts
from fleetctl.engine.execute import functions
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.prices import own
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.tracking.track import Track, Work

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State

log = logging.getLogger("fleetctl.engine")

KIND = "Provider"

Offers = Mapping[str, Mapping[str, Offer]]  # template hash -> provider


class Market:
    """The Provider objects, read once a generation.

    accounts: makes the backend of a declared provider; admit: takes it in, by name.
    """

    def __init__(
        self, state: State, *, accounts: Accounts | None, admit: Callable[[str, Backend], None]
    ) -> None:
        self._state = state
        self._accounts, self._admit = accounts, admit
        self.declared: dict[str, ProviderSpec] = {}  # by provider name
        self.uids: dict[str, str] = {}  # of the objects that say it, by the same
        # Accounts that were declared and are to go: what is there ends, and nothing new begins.
        self.closing: frozenset[str] = frozenset()
        self._read: dict[tuple[str, int], ProviderSpec | None] = {}

    def refresh(self) -> bool:
        """Take in the Provider objects as they are stored; True when something changed."""
        assets = self._state.tracks.assets.values()
        objects = [it.resource for it in assets if it.resource.kind == KIND]
        living = [it for it in objects if it.deleted_at_s is None]
        self._open(objects, living)
        self._read = {(it.uid, it.generation): self._spec(it) for it in living}
        before = self.declared, self.closing
        self.declared = {}
        names = {it.name for it in living}
        going = [it for it in objects if it.deleted_at_s is not None and it.name not in names]
        own = self._state.built_in
        self.closing = frozenset(it.name for it in going if it.name not in own)
        self.uids = {it.name: it.uid for it in going if it.name in self.closing}
        for resource in living:
            spec = self._read[resource.uid, resource.generation]
            if spec is not None and resource.name in self._state.providers:
                self.declared[resource.name], self.uids[resource.name] = spec, resource.uid
        return (self.declared, self.closing) != before

    def _open(self, objects: list[Resource], living: list[Resource]) -> None:
        """A backend for each account, also for one that is to go: something may still run there."""
        if self._accounts is None:
            return
        newest = {it.name: it for it in [*objects, *living]}  # a living one has the last word
        for name, resource in newest.items():
            if resource.deleted_at_s is not None and name in self._state.built_in:
                self._accounts.restore(name)
            else:
                self._admit(name, self._accounts.open(name, json.loads(resource.spec)))

    def offers(self, work: Work) -> Offers:
        """What the candidates of an object are to each template that it may start."""
        controller = work.controller
        found = {}
        for digest, template in _templates(controller):
            names = [it.provider for it in controller.placement(digest).candidates]
            found[digest] = {
                name: self._offer(work.track, name, digest, template, only=len(names) == 1)
                for name in names
                if name in self._state.providers and name not in self.closing
            }
        return found

    def price(self, provider: str, template: Template, namespace: str) -> float | None:
        """USD a second of one sandbox; None when nobody knows."""
        try:
            whole, _ = functions.resolved(self._state, template, namespace)
        except Unavailable:
            return None  # the start waits for its Function
        return self._usd_per_s(provider, whole)

    def _offer(
        self, track: Track, provider: str, digest: str, template: Template, *, only: bool
    ) -> Offer:
        try:
            whole, _ = functions.resolved(self._state, template, track.resource.namespace)
        except Unavailable:
            return Offer()
        price = self._usd_per_s(provider, whole)
        takes = takes_of(whole)
        if only:
            # Where there is no choice the provider itself refuses, and says it best.
            return Offer(price, takes=takes)
        backend = self._state.providers[provider]
        refused = track.refusals.get((digest, provider))
        volume = partial(self._volume, namespace=track.resource.namespace)
        return Offer(price, refused or lacks(provider, backend, whole, volume), takes)

    def _usd_per_s(self, provider: str, template: Template) -> float | None:
        return charged(self._state.providers[provider], self.declared.get(provider), template)

    def _volume(self, name: str, *, namespace: str) -> Resource | None:
        return self._state.store.resources.get("Volume", name, namespace)

    def _spec(self, resource: Resource) -> ProviderSpec | None:
        key = (resource.uid, resource.generation)
        if key in self._read:
            return self._read[key]
        try:
            spec = parse_spec(KIND, resource.spec)
        except ValueError:
            # Its own pass fails by it, and says so in its status.
            log.warning("provider object not readable", extra={"uid": resource.uid})
            return None
        assert isinstance(spec, ProviderSpec)
        return spec


def takes_of(template: Template) -> Takes:
    """What one attempt takes of a queue, with all its nodes."""
    nodes, asked = nodes_of(template).max, template.sandbox_resources
    choices = asked.gpu.choices if asked.gpu is not None else ()
    cpus = CPUS_UNASKED if asked.cpu is None else asked.cpu
    return Takes(nodes, nodes * cpus, tuple((it.name, nodes * it.count) for it in choices))


def charged(
    backend: Backend, provider_spec: ProviderSpec | None, template: Template
) -> float | None:
    """USD a second of one attempt, of all its nodes, by its Provider object before the provider
    itself.
    """
    if provider_spec is not None and provider_spec.prices is not None:
        asked, cluster = template.sandbox_resources, provider_spec.kubernetes
        one = own.usd_per_s(provider_spec.prices, asked, cluster)
    else:
        one = backend.usd_per_s(template)
    return None if one is None else one * nodes_of(template).max


def lacks(
    provider: str,
    backend: Backend,
    template: Template,
    volume_named: Callable[[str], Resource | None],
) -> str:
    """Why this template can never run there, as far as is known without asking; or empty."""
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


def _templates(controller: KindController) -> list[tuple[str, Template]]:
    """Every template that a unit may start with, by its hash; kinds share one or have few."""
    if controller.template_hash:
        return [(controller.template_hash, controller.content(controller.first))]
    units = [controller.unit(index) for index in controller.indexes()]
    return [(unit.template_hash, controller.template(unit.index)) for unit in units if unit]
