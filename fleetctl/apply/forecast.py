"""The estimated cost of an apply, reported and stored when the apply is made.

Called by the socket server, with the estimator as a parameter: planning stands above the engine.
Free work is not estimated, so that an apply of local work stays as quick as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CONFIGURED, CREATED, Change
from fleetctl.controllers.money.estimate import CostEstimate
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.engine.capacity.price_book import price_attempt
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.tracking.annotations import ESTIMATE

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


@dataclass(frozen=True, slots=True)
class CostForecast:
    """One forecast. estimate: of the object as a whole. planned: the same as `plan -o json` prints
    it."""

    estimate: CostEstimate
    planned: Mapping[str, object]


# By the key of the object. Reads the store itself, so it may be called in a thread.
Forecaster = Callable[[Sequence[Change]], Mapping[str, CostForecast]]


def may_cost(
    manifests: Sequence[Manifest],
    providers: Mapping[str, Backend],
    provider_specs: Mapping[str, ProviderSpec],
) -> bool:
    """Returns true where some of the work may run at a provider that is not known to be free."""
    if any(manifest.kind == PROVIDER for manifest in manifests):
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


def note_estimates(
    changes: Sequence[Change], forecasts: Mapping[str, CostForecast]
) -> list[Change]:
    """Returns the changes with an estimate on each object whose spec is new; an old estimate does
    not hold for the new spec.
    """
    return [_note_estimate(change, forecasts.get(change.key)) for change in changes]


def _note_estimate(change: Change, forecast: CostForecast | None) -> Change:
    before = change.before
    after = change.after
    if change.outcome not in (CREATED, CONFIGURED) or (before and before.spec == after.spec):
        return change
    fields = {key: text for key, text in after.annotations.items() if key != ESTIMATE}
    if forecast is not None and forecast.estimate.known:
        fields[ESTIMATE] = forecast.estimate.note
    return replace(change, after=replace(after, annotations=fields))
