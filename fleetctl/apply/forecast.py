"""What an apply will cost, told and noted when it is made.

Called by the socket server. How to reckon it is given to it from outside: planning stands above the
engine. What costs nothing is not reckoned, so that an apply of local work is as quick as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.apply.change import CONFIGURED, CREATED, Change
from fleetctl.controllers.money.estimate import Estimate
from fleetctl.engine.capacity.prices import KIND as PROVIDER
from fleetctl.engine.capacity.prices import charged
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.tracking.annotations import ESTIMATE

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Forecast:
    """estimate: of the object as a whole. planned: it as `plan -o json` has it."""

    estimate: Estimate
    planned: Mapping[str, object]


# By the key of the object. Reads the store itself, so it may be asked in a thread.
Forecaster = Callable[[Sequence[Change]], Mapping[str, Forecast]]


def may_cost(
    manifests: Sequence[Manifest],
    providers: Mapping[str, Backend],
    provider_specs: Mapping[str, ProviderSpec],
) -> bool:
    """Whether any of it may run where it is not known to be free."""
    if any(manifest.kind == PROVIDER for manifest in manifests):
        return True  # it may put a price on what was free
    return any(
        _priced(manifest.spec, providers, provider_specs)
        if isinstance(manifest.spec, Execution)
        else _standing(manifest.spec, providers, provider_specs)
        for manifest in manifests
    )


def _standing(
    spec: object, providers: Mapping[str, Backend], provider_specs: Mapping[str, ProviderSpec]
) -> bool:
    """Whether it has containers of its own where they are not known to be free."""
    if not isinstance(spec, FunctionSpec) or not (spec.min_containers or spec.port):
        return False
    name, whole = spec.provider, spec.applied_to(Template())
    return name in providers and charged(providers[name], provider_specs.get(name), whole) != 0.0


def _priced(
    spec: Execution, providers: Mapping[str, Backend], provider_specs: Mapping[str, ProviderSpec]
) -> bool:
    return any(
        charged(providers[it.provider], provider_specs.get(it.provider), part.template) != 0.0
        for part in spec.parts()
        for it in part.placement.candidates
        if it.provider in providers
    )


def noted(changes: Sequence[Change], forecasts: Mapping[str, Forecast]) -> list[Change]:
    """The changes with the estimate on each object whose spec is new; an old one says nothing of
    the new spec.
    """
    return [_noted(change, forecasts.get(change.key)) for change in changes]


def _noted(change: Change, forecast: Forecast | None) -> Change:
    before, after = change.before, change.after
    if change.outcome not in (CREATED, CONFIGURED) or (before and before.spec == after.spec):
        return change
    fields = {key: text for key, text in after.annotations.items() if key != ESTIMATE}
    if forecast is not None and forecast.estimate.known:
        fields[ESTIMATE] = forecast.estimate.note
    return replace(change, after=replace(after, annotations=fields))
