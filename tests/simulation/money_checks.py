"""What must hold of money: I6, over what the simulated providers really bill, not over our rows.

Promised is: spend <= cap + live x rate x (quantum + reaction). What is beyond a run's worst case is
the reaction: creation that lands late, sandboxes that wait for their second phase, late stops. So
of each run at most its worst case counts against the cap, and what is beyond it is bounded apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fleetctl.controllers.budget import matches_labels, period_of
from tests.simulation import gpus, nodes
from tests.simulation.payers import Known
from tests.simulation.scene import Scene
from tests.simulation.snapshot import spec
from tests.simulation.world import INERT_LEASE_S, Box

# A sandbox that never begins dies by its lease; two may follow each other while answers are lost
# and the controller is down.
REACTION_S = 3 * INERT_LEASE_S + 60.0
TINY_USD = 1e-6


def within_budget(scene: Scene) -> Iterator[str]:
    """I6: what is really spent stays within every cap, over crashes and deletions."""
    _remember(scene)
    if not _caps(scene):
        return
    boxes: dict[str, list[Box]] = defaultdict(list)
    for box in scene.world.boxes:
        if not box.twin and box.owner == scene.store_id and box.uid in scene.payers:
            boxes[box.uid].append(box)
    for owner, max_usd, since_s, uids in _caps(scene):
        spent_usd = beyond_s = 0.0
        for uid in uids:
            worst_s = scene.payers[uid].worst_s
            for lived_s, usd_per_s in _runs(scene, boxes[uid], since_s).values():
                spent_usd += min(lived_s, worst_s) * usd_per_s
                beyond_s = max(beyond_s, lived_s - worst_s)
        if spent_usd > max_usd + TINY_USD:
            yield f"${spent_usd:.4f} is spent under {owner}; its cap is ${max_usd:.4f}"
        if beyond_s > REACTION_S:
            yield f"a run under {owner} lived {beyond_s:.0f} s beyond its worst case"


def set_aside_before_it_starts(scene: Scene) -> Iterator[str]:
    """I6: what is over and the worst cases of what is live fit together into every cap, so that
    nothing starts that could break it.
    """
    began = any(run.name not in scene.before.runs for run in scene.now.runs.values())
    for owner, max_usd, since_s, uids in _caps(scene) if began else ():
        usd = 0.0
        for uid in uids:
            boxes = [box for box in scene.world.boxes if box.uid == uid and not box.twin]
            lived = _runs(scene, boxes, since_s)
            worst_s = scene.payers[uid].worst_s
            live = {run.name: run for run in scene.now.live_of(uid)}
            usd += sum(worst_s * (run.usd_per_s or 0.0) for run in live.values())
            usd += sum(
                min(lived_s, worst_s) * usd_per_s
                for run, (lived_s, usd_per_s) in lived.items()
                if run not in live
            )
        if usd > max_usd + TINY_USD:
            yield f"${usd:.4f} is spent or set aside under {owner}; its cap is ${max_usd:.4f}"


def charged_what_it_got(scene: Scene) -> Iterator[str]:
    """I6: of a list of GPUs, and of nodes that may be fewer, no run is charged less than what it
    got costs, and one that tells what it is no more.
    """
    for run in scene.changed():
        work = scene.world.works.get(run.name)
        if work is None or run.usd_per_s is None:
            continue
        if not gpus.listed(work.order.template) and work.order.nodes.max == 1:
            continue
        true_usd_per_s = work.box.usd_per_s
        if run.usd_per_s < true_usd_per_s - TINY_USD:
            yield f"`{run.name}` is charged ${run.usd_per_s}/s, and is billed ${true_usd_per_s}/s"
        known = run.journal_offset > 0 and (gpus.told(work.order) or nodes.told(work.order))
        if known and run.usd_per_s > true_usd_per_s + TINY_USD:
            yield f"`{run.name}` told what it got, and is charged ${run.usd_per_s}/s for it"


def unknown_is_not_free(scene: Scene) -> Iterator[str]:
    """I6: under a budget nothing begins whose price nobody knows."""
    for work in scene.working():
        resource = scene.now.resources.get(work.order.uid)
        if "PRICELESS" in work.order.template.env and resource is not None and _own(resource):
            yield f"`{work.order.run}` began, has no price, and its object has a budget"


def _caps(scene: Scene) -> list[tuple[str, float, float, list[str]]]:
    """(owner, cap, since when it counts, the objects under it)."""
    found: list[tuple[str, float, float, list[str]]] = []
    for resource in scene.now.resources.values():
        desired = spec(resource)
        if resource.kind == "Budget" and resource.deleted_at_s is None:
            selector = desired.get("selector", {})
            since_s, _ = period_of(desired.get("period", "month"), scene.world.now_s)
            under = [uid for uid, it in scene.payers.items() if matches_labels(selector, it.labels)]
            found.append((resource.key, desired["maxCost"], since_s, under))
        elif own := _own(resource):
            found.append((resource.key, own["maxCost"], 0.0, [resource.uid]))
    return found


def _own(resource: object) -> dict[str, float]:
    found = spec(resource).get("budget")  # type: ignore[arg-type]
    return found if isinstance(found, dict) else {}


def _runs(scene: Scene, boxes: list[Box], since_s: float) -> dict[str, tuple[float, float]]:
    """run -> (seconds that its sandboxes existed, price a second); one may follow another."""
    lived: dict[str, tuple[float, float]] = {}
    for box in boxes:
        before_s, _ = lived.get(box.sandbox, (0.0, 0.0))
        lived_s = scene.world.lived_s(box, since_s=since_s)
        lived[box.sandbox] = (before_s + lived_s, box.usd_per_s)
    return lived


def _remember(scene: Scene) -> None:
    for uid, resource in scene.now.resources.items():
        template = spec(resource).get("template")
        if isinstance(template, dict) and "timeoutSeconds" in template and uid not in scene.payers:
            grace_s = template.get("terminationGracePeriodSeconds", 10.0)
            worst_s = template["timeoutSeconds"] + grace_s
            scene.payers[uid] = Known(resource.labels, worst_s)


BILL_CHECKS = (within_budget, unknown_is_not_free, charged_what_it_got)
MONEY_CHECKS = (*BILL_CHECKS, set_aside_before_it_starts)
