"""What each provider would be to a template, without asking any: its price, what it lacks, and how
much of it there is.

Called by parts.py. The providers are built as the controller builds them and none is talked to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.apply.cost.lifetimes import Limit, limit_of
from fleetctl.apply.request.options import with_declared
from fleetctl.controllers.model import Resource, Run
from fleetctl.controllers.planning.placement import HOUR_S, Capacity, Offer, Placement, per_hour
from fleetctl.engine.capacity import prices as engine_market
from fleetctl.engine.capacity.admission import Held
from fleetctl.providers.contract.base import LivePrices
from fleetctl.providers.prices import table
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import PROMPT_PROVIDER, runs_here
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec

if TYPE_CHECKING:
    from fleetctl.apply.change import Change
    from fleetctl.providers.contract.base import Backend
    from fleetctl.stores.read.read_only import Snapshot

OWN_MACHINE = "your own machine"
OF_CALLS = "no sandbox; each call is charged when it is made"
LIVE = "live rates of the account"


@dataclass(frozen=True, slots=True)
class Market:
    """specs: the objects that work may need as they will be, by (kind, name, namespace).

    declared: their Provider objects. held: (provider, USD a second, how many) of the sandboxes
    that are there now.
    """

    providers: Mapping[str, Backend]
    objects: Mapping[tuple[str, str, str], Resource]
    declared: Mapping[str, ProviderSpec]
    held: Sequence[tuple[str, float | None, int]] = ()

    def whole(self, template: Template, namespace: str) -> Template | None:
        """The template with what its Function adds; None while that is not declared."""
        if template.function is None:
            return template
        function = self.objects.get(("Function", template.function, namespace))
        if function is None:
            return None
        spec = parse_spec("Function", function.spec)
        assert isinstance(spec, FunctionSpec)
        return spec.applied_to(template)

    def offers(self, placement: Placement, template: Template, namespace: str) -> dict[str, Offer]:
        """By provider. What is the only candidate refuses by itself, when it is asked."""
        whole = self.whole(template, namespace)
        volume = partial(self._volume, namespace=namespace)
        names = [it.provider for it in placement.candidates if it.provider in self.providers]
        if whole is None:
            return {name: Offer() for name in names}
        return {
            name: Offer(
                self.usd_per_s(name, whole),
                engine_market.lacks(name, self.providers[name], whole, volume),
            )
            for name in names
        }

    def usd_per_s(self, provider: str, template: Template) -> float | None:
        """Of one sandbox for a whole template."""
        return engine_market.charged(
            self.providers[provider], self.declared.get(provider), template
        )

    def quantum_s(self, provider: str) -> float:
        """What its bill rounds the life of a sandbox up to."""
        there = self.providers.get(provider)
        return 0.0 if there is None else there.contract.billing_quantum_s

    def least_usd_per_s(self, provider: str, template: Template, namespace: str) -> float | None:
        """Of the cheapest GPU of the list that the template has; None where it has none, or where
        a price is not known.
        """
        whole = self.whole(template, namespace)
        gpu = whole.resources.gpu if whole is not None else None
        if whole is None or gpu is None or not gpu.otherwise or provider not in self.providers:
            return None
        prices = [self.usd_per_s(provider, whole.with_gpu(it)) for it in gpu.each]
        known = [price for price in prices if price is not None]
        return min(known) if len(known) == len(prices) else None

    def capacities(self) -> dict[str, Capacity]:
        """All that each provider may hold, as if it held nothing."""
        return {name: self._capacity(name) for name in self.providers}

    def free_now(self, ending: Iterable[Run]) -> dict[str, Capacity]:
        """What each provider holds less than it may. ending: runs that the change itself ends."""
        held = {name: Held() for name in self.providers}
        for provider, usd_per_s, count in self.held:
            _count(held.setdefault(provider, Held()), usd_per_s, count)
        for run in ending:
            _count(held.setdefault(run.provider, Held()), run.usd_per_s, -1)
        return {name: _less(left, held[name]) for name, left in self.capacities().items()}

    def parallelism(self, provider: str) -> int:
        """What it adds to that of an object which names none."""
        backend = self.providers.get(provider)
        return backend.contract.default_parallelism if backend is not None else 0

    def limits(self, providers: Iterable[str], template: Template) -> Iterator[Limit]:
        """Where a sandbox may end before its task does."""
        for name in providers:
            backend = self.providers.get(name)
            limit = limit_of(name, backend.contract, template) if backend is not None else None
            if limit is not None:
                yield limit

    def source(self, provider: str) -> str:
        """Where a price comes from, and of what day."""
        value = self.declared.get(provider)
        if value is not None and value.prices is not None:
            return f"provider/{provider}"
        backend = self.providers.get(provider)
        if isinstance(backend, LivePrices) and backend.has_live_prices:
            return LIVE
        sort = (value.type if value is not None else None) or provider
        try:
            prices = table.load(sort)
        except KeyError:
            if sort == PROMPT_PROVIDER:
                return OF_CALLS
            return OWN_MACHINE if runs_here(sort) else "unknown"
        return f"{prices.source} of {prices.updated}"

    def _volume(self, name: str, *, namespace: str) -> Resource | None:
        return self.objects.get(("Volume", name, namespace))

    def _capacity(self, name: str) -> Capacity:
        spec = self.declared.get(name) or ProviderSpec()
        limits = (self.providers[name].contract.sandboxes_at_once, spec.limits.max_concurrent)
        free = min((it for it in limits if it is not None), default=None)
        most = spec.breaker.max_spend_per_hour
        full = f"its limit of {free} sandboxes is reached"
        if most is None:
            return Capacity(free=free, full=full)
        breaker = f"maxSpendPerHour of {per_hour(most / HOUR_S)}"
        return Capacity(free=free, full=full, spare_usd_per_s=most / HOUR_S, breaker=breaker)


def _count(held: Held, usd_per_s: float | None, count: int) -> None:
    held.sandboxes += count
    held.usd_per_s += count * (usd_per_s or 0.0)
    held.unpriced += count * (usd_per_s is None)


def _less(left: Capacity, held: Held) -> Capacity:
    free = left.free if left.free is None else max(0, left.free - held.sandboxes)
    if left.spare_usd_per_s is None:
        return replace(left, free=free)
    if held.unpriced > 0:
        unknown = f"what runs there has no known price, and there is {left.breaker}"
        return replace(left, free=0, full=unknown)
    return replace(left, free=free, spare_usd_per_s=left.spare_usd_per_s - held.usd_per_s)


def market_of(
    stored: Snapshot, changes: Sequence[Change], providers: Mapping[str, Backend]
) -> Market:
    """With every object as the changes leave it. Of those that run work only what changes is
    read: a plan costs no more beside ten thousand others.
    """
    asked = (kind.name for kind in KINDS.values() if not kind.runs)
    there = [it for name in asked for it in stored.resources.living(name)]
    objects = {
        (it.kind, it.name, it.namespace): it for it in (*there, *(it.after for it in changes))
    }
    living = {key: it for key, it in objects.items() if it.deleted_at_s is None}
    fields = {}
    for (kind, name, _), resource in living.items():
        if kind == engine_market.KIND:
            try:
                spec = parse_spec(kind, resource.spec)
            except ValueError:
                continue  # the controller cannot read it either, and says so in its status
            assert isinstance(spec, ProviderSpec)
            fields[name] = spec
    return Market(with_declared(providers, fields), living, fields, stored.held())
