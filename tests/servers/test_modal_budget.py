"""A budget on the emulated Modal: what really ran stays below the cap, and more money goes on."""

from __future__ import annotations

from fleetctl.specs.blocks.template import Template
from tests.servers.modal_fleet import Fleet, Play

TIMEOUT_S, GRACE_S, WORK_S = 200, 5, 3.0
TEMPLATE = {
    "python": f"import time\ntime.sleep({WORK_S})\nSUBMIT(ok=True)",
    "resources": {"gpu": "A100:1"},
    "timeoutSeconds": TIMEOUT_S,
    "terminationGracePeriodSeconds": GRACE_S,
}


def test_a_job_stops_below_its_budget_and_goes_on_when_there_is_more(on_modal: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        usd_per_s = fleet.provider.usd_per_s(Template.model_validate(TEMPLATE))
        assert usd_per_s
        # One worst case and a little: after the first task the second does not fit any more.
        quantum_s = fleet.provider.contract.billing_quantum_s
        cap = (TIMEOUT_S + GRACE_S + quantum_s + WORK_S / 2) * usd_per_s
        desired = {"tasks": {"completions": 3}, "parallelism": 3}
        fleet.apply(TEMPLATE, **desired, budget={"maxCost": cap})
        status = await fleet.waits("BudgetExhausted")
        assert (status["phase"], status["succeeded"], status["active"]) == ("Pending", 1, 0)
        assert status["hint"].startswith("fleetctl set batchjob/job budget.maxCost=")
        (only,) = fleet.made()
        assert not only["live"]
        really_usd = (only["finished_at_s"] - only["started_at_s"]) * usd_per_s
        assert WORK_S * usd_per_s < really_usd <= cap
        # What is counted is never less than what really ran.
        assert cap - status["budget"]["left"] >= really_usd - 1e-6
        fleet.apply(TEMPLATE, **desired, budget={"maxCost": 10 * cap})
        await fleet.phase("Succeeded")
        assert len(fleet.made()) == 3

    on_modal(tale)
