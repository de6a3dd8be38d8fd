"""Every example has a plan, on a machine that knows nothing yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.plan.build_plan import build_report
from fleetctl.apply.plan.document import render_plan
from fleetctl.apply.plan.plan_report import PlanAction
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.cli.apply.plans.report_screen import MARKER, render_plan_comment
from fleetctl.manifest import load_manifests, read_documents
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.wiring.account_registry import AccountRegistry

EXAMPLES = sorted((Path(__file__).parents[3] / "specs" / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_plan_with_a_cost_or_says_that_it_is_unknown(
    path: Path, tmp_path: Path
) -> None:
    manifests = load_manifests(read_documents([str(path)]))
    home = tmp_path / "home"
    with open_readonly(home) as stored:
        changes = propose_changes(stored, manifests, ApplyOptions(), 1.0)
        providers = AccountRegistry(home, store_id="", notify=lambda run: None).backends
        found = build_report(stored, changes, market_of(stored, changes, providers), 1.0)
    assert found.count(PlanAction.CREATE) == len(found.objects) >= len(manifests)
    totals = {it.key: it.impact.total for it in changes if it.impact is not None}
    for it in found.objects:
        if it.work is None:
            continue
        assert it.work.to_run == totals[it.key]
        assert it.work.places, it.key
        free = all(place.judged.usd_per_s == 0 for place in it.work.places if place.units)
        if it.work.to_run is None:
            assert it.work.now.expected is None, it.key  # unknown, and never nothing
            continue
        # Where work may only spill over to, it costs at most, not in all likelihood.
        assert free == (it.work.now.expected == 0)
    assert json.loads(json.dumps(render_plan(found)))["changes"] is True
    assert render_plan_comment(found).startswith(MARKER)
    assert not home.exists()
