"""Prices a run once its sandbox has reported which GPU of a list it got. Called by observations.py.

Until then, and where it never reports, the price is that of the dearest: never less than is billed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Ended, Run
from fleetctl.controllers.planning.placement import per_hour
from fleetctl.engine.capacity.price_book import PriceBook, price_attempt
from fleetctl.engine.execute import functions
from fleetctl.providers.prices.gpu_devices import possible_gpus
from fleetctl.providers.prices.price_table import highest_price
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.blocks.resources import Gpu
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.track import ResourceWork

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState

REASON_UNTOLD = "GpuNotTold"


def priced_as_got(
    state: EngineState,
    market: PriceBook,
    work: ResourceWork,
    before: Run,
    after: Run,
    seen: Alive | Ended,
) -> Run:
    """Returns `after` at the price of the GPU it got, once its journal begins, which has the name.
    Reports a missing name.
    """
    begins = before.journal_offset == 0 and (seen.journal_offset > 0 or isinstance(seen, Ended))
    if begins:
        after = _of_fewer_nodes(work, after, seen)
    whole = _find_listed(state, work, after) if begins and after.usd_per_s else None
    gpu = whole.resources.gpu if whole is not None else None
    if whole is None or gpu is None:
        return after
    prices = {
        str(it): _price_template(state, market, after.provider, whole.with_gpu(it))
        for it in gpu.each
    }
    if not seen.gpus and len(set(prices.values())) > 1:
        _say_untold(state, work, gpu, after)
    left = highest_price(prices[str(it)] for it in possible_gpus(gpu, seen.gpus).each)
    return _lower_price(after, highest_price(prices.values()), left)


def _of_fewer_nodes(
    work: ResourceWork,
    run: Run,
    seen: Alive | Ended,
) -> Run:
    """Returns the run at the price of the nodes that the attempt got, of the most that it could
    have had.
    """
    controller = work.controller
    unit = controller.unit(run.index) if controller is not None else None
    if not seen.nodes or unit is None or unit.template_hash != run.template_hash:
        return run
    most = nodes_of(controller.template(run.index)).max
    share = len(seen.nodes) / most
    usd_per_s = None if run.usd_per_s is None else run.usd_per_s * share
    return replace(run, usd_per_s=usd_per_s, usd=None if run.usd is None else run.usd * share)


def _find_listed(
    state: EngineState,
    work: ResourceWork,
    run: Run,
) -> Template | None:
    """Returns the template that the run began with, merged with its Function; None where it lists
    no more than one GPU, or has changed by now.
    """
    controller = work.controller
    unit = controller.unit(run.index) if controller is not None else None
    if controller is None or unit is None or unit.template_hash != run.template_hash:
        return None
    template = controller.template(run.index)
    if not template.is_function:
        return None  # a sandbox has one sort
    try:
        whole, _ = functions.resolve_template(state, template, work.resource.namespace)
    except Unavailable:
        return None
    gpu = whole.resources.gpu
    if gpu is not None and gpu.otherwise:
        return whole
    return None


def _price_template(
    state: EngineState,
    market: PriceBook,
    provider: str,
    template: Template,
) -> float | None:
    return price_attempt(state.providers[provider], market.declared.get(provider), template)


def _say_untold(
    state: EngineState,
    work: ResourceWork,
    gpu: Gpu,
    run: Run,
) -> None:
    listed = ", ".join(map(str, gpu.each))
    unit = KINDS[work.resource.kind].unit
    as_what = f"the dearest, {per_hour(run.usd_per_s)}"
    what = f"a {unit} does not report which GPU of {listed} it got; it is charged as {as_what}"
    state.say(work.resource.uid, REASON_UNTOLD, what)


def _lower_price(
    run: Run,
    listed_usd_per_s: float | None,
    got_usd_per_s: float | None,
) -> Run:
    """Returns the run with its price lowered by the difference between the list's price and that of
    its GPU, and with less set aside.

    Prices are those of now. Where a rate or a Function's size was another when the run began, the
    greater of the two results counts.
    """
    if not run.usd_per_s or listed_usd_per_s is None or got_usd_per_s is None:
        return run
    less_usd_per_s = run.usd_per_s - (listed_usd_per_s - got_usd_per_s)
    usd_per_s = min(run.usd_per_s, max(less_usd_per_s, got_usd_per_s))
    usd = None if run.usd is None else run.usd * usd_per_s / run.usd_per_s
    return replace(run, usd_per_s=usd_per_s, usd=usd)
