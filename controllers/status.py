"""The status of a resource as JSON, from a plan and its history. Pure; written by the engine, read
by the CLI.

Counts come from the history alone, so every committed status adds up (I10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fleetctl.controllers.budget import BudgetAccount
from fleetctl.controllers.depends.dependency_status import AWAITS, MISSING
from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import GpuUsage, Node, Run, RunState
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase, Plan, Start
from fleetctl.controllers.queues.queue_state import QueuedObject
from fleetctl.controllers.schedule.affordable import explain_stuck
from fleetctl.controllers.schedule.desired import DesiredObject, PriorStatus, is_revived
from fleetctl.controllers.status_keys import SPILLED_OVER, Status
from fleetctl.controllers.trials.prior import AWAITS_PRIOR
from fleetctl.controllers.trials.winner import AWAITS_BEST

# Random completion of 100,000 tasks makes many intervals; a status stays far below 256 KiB (I21).
STATUS_INTERVALS_MAX = 1000
# Output kept for each of the first failures: enough to see the cause in a small object.
LAST_LINES_MAX = 10
LAST_CHARACTERS_MAX = 1000
# Work that cannot begin while another object has yet to provide input is not late.
_NOT_LATE = (AWAITS_BEST, AWAITS_PRIOR, AWAITS, MISSING)


def prior_of(status: Mapping[str, object]) -> PriorStatus:
    """Reads the permanent decisions of earlier passes back from the status that they wrote."""
    phase = status.get("phase")
    return PriorStatus(
        phase=Phase(phase) if isinstance(phase, str) and phase else None,
        generation=_as_int(status.get("observedGeneration")),
        active_since_s=_as_number(status.get("activeSince")),
        completed_at_s=_as_number(status.get("completionTime")),
        scratch_freed=status.get("scratchFreed") is True,
        over_budget=str(status.get("overBudget") or ""),
    )


def status_of(
    plan: Plan, desired: DesiredObject, history: History, before: Mapping[str, Any], now_s: float
) -> Status:
    """Returns the whole status of a running kind. Times are seconds since the epoch, UTC."""
    cost = _cost_status(history)
    if desired.estimate is not None:
        cost |= desired.estimate.status()
    worked_s, working_since_s = history.working.figures(history.live.values())

    status: Status = {
        **plan_status(plan),
        "observedGeneration": desired.generation,
        **_unit_status(desired, history),
        "cost": cost,
        **_index_status(history),
        **_time_status(plan, desired, history, before, now_s),
        "gpu": _describe_gpu(desired, history),
        "workedSeconds": round(worked_s, 3),
        "workingSince": working_since_s,
        **_provider_status(desired, history),
        "isolation": history.note or before.get("isolation", ""),
        "scratchFreed": False,
        "conditions": _build_conditions(plan, desired, before, now_s),
    }
    _add_what_some_have(status, desired, history, before)
    if desired.turn is not None:
        status["queued"] = _queue_status(plan, desired.turn.me)
    status.update(cast(Status, {**plan.extra, "hint": status["hint"]}))
    lack = explain_stuck(plan, desired, history, now_s)
    if lack is not None:
        status["stuck"] = lack
    return status


def _unit_status(desired: DesiredObject, history: History) -> Status:
    """Returns the counts of its units and runs."""
    states = Counter([run.state for run in history.live.values()])
    return {
        "total": desired.controller.total,
        "active": len(history.live),
        "starting": states[RunState.STARTING],
        "stopping": states[RunState.STOPPING],
        "succeeded": len(history.succeeded),
        "failed": len(history.failed),
        "cached": history.cached,
        "outdated": len(history.outdated) + len(history.kept_outdated),
        "contents": list(desired.controller.contents),
        "notCached": desired.uncached,
        "retries": history.retries,
        "infraFailures": history.infra_failures,
    }


def _index_status(history: History) -> Status:
    """Returns the ended units as intervals of their indexes."""
    return {
        "completedIndexes": history.succeeded.text(intervals_max=STATUS_INTERVALS_MAX),
        "failedIndexes": history.failed.text(intervals_max=STATUS_INTERVALS_MAX),
        "unwantedIndexes": history.unwanted.text(intervals_max=STATUS_INTERVALS_MAX),
    }


def _time_status(
    plan: Plan, desired: DesiredObject, history: History, before: Mapping[str, Any], now_s: float
) -> Status:
    """Returns its times; those of earlier passes stay, unless it runs again."""
    started_at_s = before.get("startTime")
    if not started_at_s and history.started:
        started_at_s = now_s

    active_since_s = None
    if not _not_late(plan, history):
        revived = is_revived(desired.prior, desired.generation)
        active_since_s = (None if revived else before.get("activeSince")) or now_s

    completed_at_s = None
    if plan.phase in TERMINAL_PHASES:
        same = before.get("observedGeneration") == desired.generation
        completed_at_s = (before.get("completionTime") if same else None) or now_s

    return {
        "startTime": started_at_s or None,
        "activeSince": active_since_s,
        "completionTime": completed_at_s,
        "firstResultTime": history.first_result_at_s,
    }


def _provider_status(desired: DesiredObject, history: History) -> Status:
    """Returns the providers of its live runs, and of all its runs with its candidates."""
    live = Counter([run.provider for run in history.live.values()])
    return {
        "where": dict(live),
        "placement": [
            {"provider": name, "live": live[name], "total": history.placed[name]}
            for name in _list_providers(desired, history)
        ],
    }


def _not_late(plan: Plan, history: History) -> bool:
    """Returns true if its deadline does not count now: it may not begin, or begin again."""
    in_line = plan.queued is not None and not history.live
    return plan.phase is Phase.SUSPENDED or plan.reason in _NOT_LATE or in_line


def _queue_status(plan: Plan, me: QueuedObject) -> dict[str, object]:
    """Returns its position in its queue; and its request while it waits, so that a restart knows
    it.
    """
    stands: dict[str, object] = {"queue": me.queue, "priority": me.priority, "since": me.since_s}
    if plan.queued is not None:
        stands["waitingSince"] = plan.queued.stands_since_s
        stands["asks"] = [it.to_fields() for it in plan.queued.asks]
    return stands


def _add_what_some_have(
    status: Status,
    desired: DesiredObject,
    history: History,
    before: Mapping[str, Any],
) -> None:
    """Adds keys that are absent where they do not apply."""
    if history.refused is not None:
        status["refused"] = sum(
            1
            for unit in history.unfinished.values()
            if unit.last is not None and unit.last.state is RunState.REFUSED
        )
    if nodes := [_node_status(it) for it in history.nodes] or before.get("nodes"):
        status["nodes"] = nodes
    if history.usage:
        status["usage"] = _usage_status(list(history.usage.values()))
    if history.pruned:
        status["stopped"] = len(history.pruned)
    if desired.allowance.own is not None:
        status["budget"] = _budget_status(desired.allowance.own, before)
    if desired.dependencies:
        status["dependencies"] = [it.status() for it in desired.dependencies]
    if history.last_failure is not None:
        run = history.last_failure
        status["lastFailure"] = {"index": run.index, "attempt": run.attempt, "reason": run.reason}
        status["failures"] = [_describe_failure(it) for it in history.first_failures]


def _describe_failure(run: Run) -> dict[str, object]:
    """Returns how a run failed, with its last lines of output, for users who may read an object but
    no log.
    """
    told: dict[str, object] = {"index": run.index, "attempt": run.attempt, "reason": run.reason}
    if run.exit_code is not None:
        told["exitCode"] = run.exit_code
    if lines := run.message.strip().splitlines()[-LAST_LINES_MAX:]:
        told["lastLines"] = "\n".join(lines)[-LAST_CHARACTERS_MAX:]
    if run.hint:
        told["hint"] = run.hint
    return told


def _usage_status(samples: Sequence[GpuUsage]) -> dict[str, object]:
    """Returns the usage of all live runs together; the speed only of a single run."""
    gpus = sum(one.gpus for one in samples)
    busy = sum(one.percent * one.gpus for one in samples)
    told: dict[str, object] = {
        "gpus": gpus,
        "gpuPercent": round(busy / gpus),
        "memoryMib": sum(one.memory_mib for one in samples),
        "memoryTotalMib": sum(one.memory_total_mib for one in samples),
    }
    if len(samples) == 1 and samples[0].steps_per_s is not None:
        told["stepsPerSecond"] = samples[0].steps_per_s
    return told


def plan_status(plan: Plan) -> Status:
    """Returns the status common to every kind. The plan's own hint counts more than the hint of a
    warning.
    """
    return {
        "phase": plan.phase.value,
        "reason": plan.reason,
        "message": plan.message,
        "hint": plan.hint or str(plan.extra.get("hint") or ""),
        "waitingOn": list(plan.waiting_on),
    }


def _list_providers(desired: DesiredObject, history: History) -> list[str]:
    """Its candidates in their order, then where runs of earlier specs are or were."""
    return list(dict.fromkeys([*desired.controller.candidates, *sorted(+history.placed)]))


def _describe_gpu(desired: DesiredObject, history: History) -> str:
    """Returns the GPUs that its sandboxes request, `A100:4 H100:2` where either will do: for the
    current stage, where the units build upon each other; empty without GPUs.
    """
    controller, at = desired.controller, desired.controller.first
    if controller.in_order:
        left = (index for index in controller.indexes() if index not in history.succeeded)
        at = next(left, at)
    wanted = controller.template(at).resources.gpu if controller.unit(at) is not None else None
    if wanted is not None:
        return " ".join(map(str, wanted.choices))
    return ""


def _node_status(node: Node) -> dict[str, object]:
    fields = {"address": node.address, "reason": node.reason, "exitCode": node.exit_code}
    return {"state": node.state, **{key: it for key, it in fields.items() if it not in ("", None)}}


def _cost_status(history: History) -> dict[str, object]:
    """Returns USD. reserved: the worst-case cost of live runs; None when one has no limit."""
    live = history.live.values()
    unlimited = any(run.usd is None and run.usd_per_s != 0.0 for run in live)
    reserved_usd = None if unlimited else sum(run.usd or 0.0 for run in live)
    return {
        "actual": round(history.spent_usd, 6),
        "reserved": None if reserved_usd is None else round(reserved_usd, 6),
        "unpricedRuns": history.unpriced,
        **({"calls": round(history.calls_usd, 6)} if history.calls_usd else {}),
    }


def _budget_status(own: BudgetAccount, before: Mapping[str, object]) -> dict[str, object]:
    """Returns the status of the object's own `budget`, in USD. warned stays at the highest reported
    level.
    """
    known = before.get("budget")
    value = known.get("warned") if isinstance(known, dict) else 0
    same = isinstance(known, dict) and known.get("maxCost") == own.cap.max_usd
    return {
        "maxCost": own.cap.max_usd,
        "used": round(own.charged_usd, 6),
        "left": round(own.left_usd, 6),
        "warned": max(_as_int(value), own.warned) if same else own.warned,
    }


_PHASE_CONDITIONS = (
    ("Complete", Phase.SUCCEEDED),
    ("Failed", Phase.FAILED),
    ("Suspended", Phase.SUSPENDED),
    ("Skipped", Phase.SKIPPED),
)


def _build_conditions(
    plan: Plan,
    desired: DesiredObject,
    before: Mapping[str, object],
    now_s: float,
) -> list[dict[str, object]]:
    """Returns the conditions of an object.

    The first four are those of a Kubernetes Job, so that `wait --for=condition=Complete` works as
    expected. `BudgetOK` is there where a budget limits the work, `Warning` and `SpilledOver` once
    they have been true.
    """
    old = {
        item["type"]: item
        for item in before.get("conditions") or ()  # type: ignore[attr-defined]
        if isinstance(item, dict)
    }
    same = before.get("observedGeneration") == desired.generation
    over = _find_over_budget(plan, desired) if desired.allowance.accounts else None
    spill = _find_spill(plan, same=same, old=old)

    out = _build_phase_conditions(plan, old, now_s)
    if over is not None:
        out.append(_build_condition("BudgetOK", not any(over), over, old, now_s))
    warning = str(plan.extra.get("warning") or "")
    if warning or "Warning" in old:
        reason, _, message = warning.partition(": ")
        out.append(_build_condition("Warning", bool(warning), (reason, message), old, now_s))
    if any(spill) or SPILLED_OVER in old:
        out.append(_build_condition(SPILLED_OVER, any(spill), spill, old, now_s))
    return out


def _build_phase_conditions(
    plan: Plan,
    old: Mapping[object, Mapping[str, object]],
    now_s: float,
) -> list[dict[str, object]]:
    """Returns the conditions of the phases that the object has or has had."""
    out = []
    for name, phase in _PHASE_CONDITIONS:
        holds = plan.phase is phase
        if holds or name in old:
            cause = (plan.reason, plan.message) if holds else ("", "")
            out.append(_build_condition(name, holds, cause, old, now_s))
    return out


def _find_spill(
    plan: Plan,
    *,
    same: bool,
    old: Mapping[object, Mapping[str, object]],
) -> tuple[str, str]:
    """Returns reason and sentence of the last start under this generation of the spec that had to
    use another provider than the best; both empty without such a start.
    """
    starts = [it for it in plan.actions if isinstance(it, Start) and it.spilled]
    if starts:
        return "NoRoom", f"{starts[-1].provider}: {starts[-1].placed}"
    known = old.get(SPILLED_OVER)
    if known is None or not same:
        return "", ""
    return str(known["reason"]), str(known["message"])


def _find_over_budget(plan: Plan, desired: DesiredObject) -> tuple[str, str]:
    """Returns reason and sentence of the exhausted budget; both empty if money is left."""
    denied = plan.denied
    # While a run lives, a start that waits for its reservation lacks no money.
    if denied is not None and (denied.for_good or not plan.active):
        return denied.reason, denied.message
    if desired.prior.over_budget and desired.prior.generation == desired.generation:
        return "BudgetExceeded", desired.prior.over_budget
    return next(
        (account.over for account in desired.allowance.accounts if any(account.over)), ("", "")
    )


def _build_condition(
    name: str,
    holds: bool,
    reason_and_message: tuple[str, str],
    old: Mapping[object, Mapping[str, object]],
    now_s: float,
) -> dict[str, object]:
    value = "True" if holds else "False"
    known = old.get(name)
    same = known is not None and known["status"] == value
    return {
        "type": name,
        "status": value,
        "reason": reason_and_message[0],
        "message": reason_and_message[1],
        "lastTransitionTime": known["lastTransitionTime"] if known and same else now_s,
    }


def _as_number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def _as_int(value: object) -> int:
    if isinstance(value, int):
        return value
    return 0
