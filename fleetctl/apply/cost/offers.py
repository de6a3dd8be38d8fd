"""The offer of each provider for a template, without a request to any: its price, the features that
it lacks, and whether the work may outlive its sandbox.

The providers are built as the controller builds them. Where work outlives its sandbox, an attempt's
limit does not bound the cost of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.apply.request import with_declared
from fleetctl.controllers.model import Resource, Run
from fleetctl.controllers.planning.placement import (
    HOUR_S,
    Placement,
    ProviderCapacity,
    ProviderOffer,
    format_per_hour,
)
from fleetctl.engine.capacity import price_book as engine_market
from fleetctl.engine.capacity.admission import ProviderHoldings
from fleetctl.providers.contract.base import LivePrices
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.prices import price_table
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import PROMPT_PROVIDER, SORTS, runs_here
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import KINDS, parse_spec

if TYPE_CHECKING:
    from fleetctl.apply.change import Change
    from fleetctl.providers.contract.base import Backend
    from fleetctl.stores.read.read_only import StoreSnapshot


OWN_MACHINE = "your own machine"
OF_CALLS = "no sandbox; each call is charged when it is made"
OF_PACKAGE = "its package"  # of a type that another project's package provides
LIVE = "live rates of the account"


@dataclass(frozen=True, slots=True)
class OfferBook:
    """Prices and capacities of all providers. specs: the objects that work may need as they will
    be, by (kind, name, namespace).

    declared: their Provider objects. held: (provider, USD a second, count) of the sandboxes that
    exist now.
    """

    providers: Mapping[str, Backend]
    objects: Mapping[tuple[str, str, str], Resource]
    declared: Mapping[str, ProviderSpec]
    held: Sequence[tuple[str, float | None, int]] = ()

    def whole(self, template: Template, namespace: str) -> Template | None:
        """Returns the template with the fields that its Function adds; None while that Function is
        not declared."""
        if template.function is None:
            return template
        function = self.objects.get(("Function", template.function, namespace))
        if function is None:
            return None
        spec = FunctionSpec.model_validate_json(function.spec)
        return spec.applied_to(template)

    def offers(
        self,
        placement: Placement,
        template: Template,
        namespace: str,
    ) -> dict[str, ProviderOffer]:
        """Returns offers by provider. A provider that is the only candidate refuses by itself, when
        it receives the run."""
        whole = self.whole(template, namespace)
        volume = partial(self._volume, namespace=namespace)
        names = [it.provider for it in placement.candidates if it.provider in self.providers]
        if whole is None:
            return {name: ProviderOffer() for name in names}
        return {
            name: ProviderOffer(
                self.usd_per_s(name, whole),
                engine_market.find_lack(name, self.providers[name], whole, volume),
            )
            for name in names
        }

    def usd_per_s(self, provider: str, template: Template) -> float | None:
        """Returns a sandbox's price for a whole template."""
        return engine_market.price_attempt(
            self.providers[provider], self.declared.get(provider), template
        )

    def quantum_s(self, provider: str) -> float:
        """Returns the seconds that its bill rounds the life of a sandbox up to."""
        there = self.providers.get(provider)
        if there is None:
            return 0.0
        return there.contract.billing_quantum_s

    def least_usd_per_s(
        self,
        provider: str,
        template: Template,
        namespace: str,
    ) -> float | None:
        """Returns the price of the cheapest GPU in the template's list; None without a GPU or with
        an unknown price.
        """
        whole = self.whole(template, namespace)
        gpu = whole.resources.gpu if whole is not None else None
        if whole is None or gpu is None or not gpu.otherwise or provider not in self.providers:
            return None
        prices = [self.usd_per_s(provider, whole.with_gpu(it)) for it in gpu.each]
        known = [price for price in prices if price is not None]
        if len(known) == len(prices):
            return min(known)
        return None

    def capacities(self) -> dict[str, ProviderCapacity]:
        """Returns the full capacity of each provider, as if it held no run."""
        return {name: self._capacity(name) for name in self.providers}

    def free_now(self, ending: Iterable[Run]) -> dict[str, ProviderCapacity]:
        """Returns the free capacity of each provider. ending: runs that the change itself ends."""
        held = {name: ProviderHoldings() for name in self.providers}
        for provider, usd_per_s, count in self.held:
            _add_usage(held.setdefault(provider, ProviderHoldings()), usd_per_s, count)
        for run in ending:
            _add_usage(held.setdefault(run.provider, ProviderHoldings()), run.usd_per_s, -1)
        return {name: _subtract_held(left, held[name]) for name, left in self.capacities().items()}

    def parallelism(self, provider: str) -> int:
        """Returns the parallelism that it grants to an object without its own."""
        backend = self.providers.get(provider)
        if backend is not None:
            return backend.contract.default_parallelism
        return 0

    def limits(self, providers: Iterable[str], template: Template) -> Iterator[LifetimeLimit]:
        """Yields the providers that may end a sandbox before its task ends."""
        for name in providers:
            backend = self.providers.get(name)
            limit = limit_of(name, backend.contract, template) if backend is not None else None
            if limit is not None:
                yield limit

    def source(self, provider: str) -> str:
        """Returns the source of a price, and its date."""
        value = self.declared.get(provider)
        if value is not None and value.prices is not None:
            return f"provider/{provider}"
        backend = self.providers.get(provider)
        if isinstance(backend, LivePrices) and backend.has_live_prices:
            return LIVE
        sort = (value.type if value is not None else None) or provider
        try:
            prices = price_table.load_prices(sort)
        except KeyError:
            if sort == PROMPT_PROVIDER:
                return OF_CALLS
            if sort not in SORTS:
                return OF_PACKAGE
            return OWN_MACHINE if runs_here(sort) else "unknown"
        return f"{prices.source} of {prices.updated}"

    def _volume(self, name: str, *, namespace: str) -> Resource | None:
        return self.objects.get(("Volume", name, namespace))

    def _capacity(self, name: str) -> ProviderCapacity:
        spec = self.declared.get(name) or ProviderSpec()
        limits = (self.providers[name].contract.sandboxes_at_once, spec.limits.max_concurrent)
        free = min((it for it in limits if it is not None), default=None)
        most = spec.breaker.max_spend_per_hour
        full = f"its limit of {free} sandboxes is reached"
        if most is None:
            return ProviderCapacity(free=free, full=full)
        breaker = f"maxSpendPerHour of {format_per_hour(most / HOUR_S)}"
        return ProviderCapacity(
            free=free,
            full=full,
            spare_usd_per_s=most / HOUR_S,
            breaker=breaker,
        )


def _add_usage(
    held: ProviderHoldings,
    usd_per_s: float | None,
    count: int,
) -> None:
    held.sandboxes += count
    held.usd_per_s += count * (usd_per_s or 0.0)
    held.unpriced += count * (usd_per_s is None)


def _subtract_held(left: ProviderCapacity, held: ProviderHoldings) -> ProviderCapacity:
    free = left.free if left.free is None else max(0, left.free - held.sandboxes)
    if left.spare_usd_per_s is None:
        return replace(left, free=free)
    if held.unpriced > 0:
        unknown = f"what runs there has no known price, and there is {left.breaker}"
        return replace(left, free=0, full=unknown)
    return replace(left, free=free, spare_usd_per_s=left.spare_usd_per_s - held.usd_per_s)


def market_of(
    stored: StoreSnapshot,
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
) -> OfferBook:
    """Returns a market with every object as the changes leave it. From the objects that run work it
    reads only the changed ones: a plan costs no more beside ten thousand others.
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
                continue  # the controller cannot read it either, and reports that in its status
            assert isinstance(spec, ProviderSpec)
            fields[name] = spec
    return OfferBook(with_declared(providers, fields), living, fields, stored.held_by_provider())


@dataclass(frozen=True, slots=True)
class LifetimeLimit:
    """A provider ends a sandbox at this age though its task may continue. timeout_s: the task's own
    limit, None without one.
    """

    provider: str
    age_s: float
    timeout_s: float | None

    @property
    def short(self) -> str:
        return f"{self.provider} ends each sandbox after {self.age_s / HOUR_S:g} h"


def limit_of(
    provider: str,
    contract: Contract,
    template: Template,
) -> LifetimeLimit | None:
    """Returns the limit, or None where the task's own limit comes first or there is no limit."""
    timeout_s = template.timeout_seconds
    if template.is_function:
        return None
    ages_s = [contract.max_lifetime_s]
    if timeout_s is None:
        ages_s.append(contract.usual_lifetime_s)
    age_s = min((it for it in ages_s if it is not None), default=None)
    if age_s is None or (timeout_s is not None and timeout_s < age_s):
        return None
    return LifetimeLimit(provider, age_s, timeout_s)


def describe_lifetimes(limits: Sequence[LifetimeLimit], *, long: bool) -> str:
    """Returns the warning for work that keeps no checkpoint; "" where there is no cause. long: the
    work is of a kind that is made to last; a task of another kind without a limit counts as short.
    """
    parts = [it for it in limits if long or it.timeout_s is not None]
    if not parts:
        return ""
    first = parts[0]
    why = "" if first.timeout_s is None else f", before timeoutSeconds {first.timeout_s:g} passes"
    places = " and ".join(dict.fromkeys(it.short for it in parts))
    return f"{places}{why}: without a checkpoint, unfinished work starts over each time"
