"""The status of a resource as JSON, from a plan and its history. Pure; written by the engine, read
by the CLI.

Counts come from the history alone, so every committed status adds up (I10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fleetctl.controllers.depends.standing import AWAITS, MISSING
from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Node, RunState, Usage
from fleetctl.controllers.money.budget import Account
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase, Plan, Start
from fleetctl.controllers.queues.lines import Waiter
from fleetctl.controllers.schedule.desired import Desired, Prior, revived
from fleetctl.controllers.schedule.stuck import stuck
from fleetctl.controllers.trials.prior import AWAITS_PRIOR
from fleetctl.controllers.trials.winner import AWAITS_BEST
from fleetctl.controllers.vocabulary.status_keys import SPILLED_OVER, Status
from fleetctl.specs.values.hints import message_of, parted

# Random completion of 100,000 tasks makes many intervals; a status stays far below 256 KiB (I21).
STATUS_INTERVALS_MAX = 1000
# Work that cannot begin for want of what another object has yet to tell is not late.
_NOT_LATE = (AWAITS_BEST, AWAITS_PRIOR, AWAITS, MISSING)


def prior_of(status: Mapping[str, object]) -> Prior:
    """What earlier passes decided for good, read back from the status that they wrote."""
    phase = status.get("phase")
    return Prior(
        phase=Phase(phase) if isinstance(phase, str) and phase else None,
        generation=_int(status.get("observedGeneration")),
        active_since_s=_number(status.get("activeSince")),
        completed_at_s=_number(status.get("completionTime")),
        scratch_freed=status.get("scratchFreed") is True,
        over_budget=str(status.get("overBudget") or ""),
    )


def status_of(
    plan: Plan, desired: Desired, history: History, before: Mapping[str, Any], now_s: float
) -> Status:
    """The whole status of a running kind. Times are seconds since the epoch, UTC."""
    over = plan.phase in TERMINAL_PHASES
    since_s = None if revived(desired.prior, desired.generation) else before.get("activeSince")
    same = before.get("observedGeneration") == desired.generation
    starting = sum(1 for run in history.live.values() if run.state is RunState.STARTING)
    stopping = sum(1 for run in history.live.values() if run.state is RunState.STOPPING)
    where = Counter(run.provider for run in history.live.values())
    worked_s, working_since_s = history.working.figures(history.live.values())
    status: Status = {
        **plan_status(plan),
        "observedGeneration": desired.generation,
        "total": desired.controller.total,
        "active": len(history.live),
        "starting": starting,
        "stopping": stopping,
        "succeeded": len(history.succeeded),
        "failed": len(history.failed),
        "cached": history.cached,
        "outdated": len(history.outdated) + len(history.kept_outdated),
        "contents": list(desired.controller.contents),
        "notCached": desired.uncached,
        "retries": history.retries,
        "infraFailures": history.infra_failures,
        "cost": _cost(history)
        | (desired.estimate.status() if desired.estimate is not None else {}),
        "completedIndexes": history.succeeded.text(intervals_max=STATUS_INTERVALS_MAX),
        "failedIndexes": history.failed.text(intervals_max=STATUS_INTERVALS_MAX),
        "unwantedIndexes": history.unwanted.text(intervals_max=STATUS_INTERVALS_MAX),
        "startTime": before.get("startTime") or (now_s if history.started else None),
        "activeSince": None if _not_late(plan, history) else since_s or now_s,
        "completionTime": ((before.get("completionTime") if same else None) or now_s)
        if over
        else None,
        "firstResultTime": history.first_result_at_s,
        "gpu": _gpu(desired, history),
        "workedSeconds": round(worked_s, 3),
        "workingSince": working_since_s,
        "where": dict(where),
        "placement": [
            {"provider": name, "live": where[name], "total": history.placed[name]}
            for name in _places(desired, history)
        ],
        "isolation": history.note or before.get("isolation", ""),
        "scratchFreed": False,
        "conditions": _conditions(plan, desired, before, now_s),
    }
    _add_what_some_have(status, desired, history, before)
    if desired.turn is not None:
        status["queued"] = _queued(plan, desired.turn.me)
    status.update(cast(Status, plan.extra))
    if "warning" in status:
        status["warning"] = message_of(status["warning"])
    if (lack := stuck(plan, desired, history, now_s)) is not None:
        status["stuck"] = lack
    return status


def _not_late(plan: Plan, history: History) -> bool:
    """Whether its deadline does not count now: it may not begin, or begin again."""
    in_line = plan.queued is not None and not history.live
    return plan.phase is Phase.SUSPENDED or plan.reason in _NOT_LATE or in_line


def _queued(plan: Plan, me: Waiter) -> dict[str, object]:
    """Its place in its queue; what it asks for while it waits, so that a restart knows it."""
    stands: dict[str, object] = {"queue": me.queue, "priority": me.priority, "since": me.since_s}
    if plan.queued is not None:
        stands["waitingSince"] = plan.queued.stands_since_s
        stands["asks"] = [it.told() for it in plan.queued.asks]
    return stands


def _add_what_some_have(
    status: Status, desired: Desired, history: History, before: Mapping[str, Any]
) -> None:
    """Keys that are absent where there is nothing to tell."""
    if history.refused is not None:
        status["refused"] = sum(
            1
            for unit in history.unfinished.values()
            if unit.last is not None and unit.last.state is RunState.REFUSED
        )
    if nodes := [_node(it) for it in history.nodes] or before.get("nodes"):
        status["nodes"] = nodes
    if history.usage:
        status["usage"] = _usage(list(history.usage.values()))
    if history.pruned:
        status["stopped"] = len(history.pruned)
    if desired.allowance.own is not None:
        status["budget"] = _budget(desired.allowance.own, before)
    if desired.dependencies:
        status["dependencies"] = [it.status() for it in desired.dependencies]
    if history.last_failure is not None:
        run = history.last_failure
        status["lastFailure"] = {"index": run.index, "attempt": run.attempt, "reason": run.reason}


def _usage(samples: Sequence[Usage]) -> dict[str, object]:
    """Of all live runs together; the speed of one alone."""
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
    """How it stands and why, of every kind: with the hint apart from what it helps with."""
    message, hint = parted(plan.message)
    waits = [parted(line) for line in plan.waiting_on]
    others = (*(hint for _, hint in waits), parted(str(plan.extra.get("warning") or ""))[1])
    return {
        "phase": plan.phase.value,
        "reason": plan.reason,
        "message": message,
        "hint": hint or next(filter(None, others), ""),
        "waitingOn": [line for line, _ in waits],
    }


def _places(desired: Desired, history: History) -> list[str]:
    """Its candidates in their order, then where runs of earlier specs are or were."""
    return list(dict.fromkeys([*desired.controller.candidates, *sorted(+history.placed)]))


def _gpu(desired: Desired, history: History) -> str:
    """What its sandboxes ask for, `A100:4 H100:2` where either will do: of the stage that is on,
    where the units build upon each other; empty without.
    """
    controller, at = desired.controller, desired.controller.first
    if controller.in_order:
        left = (index for index in controller.indexes() if index not in history.succeeded)
        at = next(left, at)
    wanted = controller.template(at).resources.gpu if controller.unit(at) is not None else None
    return " ".join(map(str, wanted.choices)) if wanted is not None else ""


def _node(node: Node) -> dict[str, object]:
    fields = {"address": node.address, "reason": node.reason, "exitCode": node.exit_code}
    return {"state": node.state, **{key: it for key, it in fields.items() if it not in ("", None)}}


def _cost(history: History) -> dict[str, object]:
    """USD. reserved: what live runs may cost at worst; None when one of them has no limit."""
    live = history.live.values()
    unlimited = any(run.usd is None and run.usd_per_s != 0.0 for run in live)
    reserved_usd = None if unlimited else sum(run.usd or 0.0 for run in live)
    return {
        "actual": round(history.spent_usd, 6),
        "reserved": None if reserved_usd is None else round(reserved_usd, 6),
        "unpricedRuns": history.unpriced,
        **({"calls": round(history.calls_usd, 6)} if history.calls_usd else {}),
    }


def _budget(own: Account, before: Mapping[str, object]) -> dict[str, object]:
    """Of the object's own `budget`, in USD. warned stays at the highest level that was said."""
    known = before.get("budget")
    value = known.get("warned") if isinstance(known, dict) else 0
    same = isinstance(known, dict) and known.get("maxCost") == own.cap.max_usd
    return {
        "maxCost": own.cap.max_usd,
        "used": round(own.charged_usd, 6),
        "left": round(own.left_usd, 6),
        "warned": max(_int(value), own.warned) if same else own.warned,
    }


def _conditions(
    plan: Plan, desired: Desired, before: Mapping[str, object], now_s: float
) -> list[dict[str, object]]:
    """Kubernetes Job's conditions, so that `wait --for=condition=Complete` means what people
    expect; whether money is left, where a budget limits it; and whether work ran over to another
    place than the best.
    """
    old = {
        item["type"]: item
        for item in before.get("conditions") or ()  # type: ignore[attr-defined]
        if isinstance(item, dict)
    }
    out = []
    for name, phase in (
        ("Complete", Phase.SUCCEEDED),
        ("Failed", Phase.FAILED),
        ("Suspended", Phase.SUSPENDED),
        ("Skipped", Phase.SKIPPED),
    ):
        holds = plan.phase is phase
        if holds or name in old:
            shown = (plan.reason, message_of(plan.message)) if holds else ("", "")
            out.append(_condition(name, holds, shown, old, now_s))
    if desired.allowance.accounts:
        over = _over(plan, desired)
        out.append(_condition("BudgetOK", not any(over), over, old, now_s))
    warning = message_of(str(plan.extra.get("warning") or ""))
    word, _, text = warning.partition(": ")
    if warning or "Warning" in old:
        out.append(_condition("Warning", bool(warning), (word, text), old, now_s))
    spill = _spill(plan, same=before.get("observedGeneration") == desired.generation, old=old)
    if any(spill) or SPILLED_OVER in old:
        out.append(_condition(SPILLED_OVER, any(spill), spill, old, now_s))
    return out


def _spill(
    plan: Plan, *, same: bool, old: Mapping[object, Mapping[str, object]]
) -> tuple[str, str]:
    """Reason and sentence of the last start under this generation of the spec that had to go
    elsewhere than to the best place; both empty when none had to.
    """
    starts = [it for it in plan.actions if isinstance(it, Start) and it.spilled]
    if starts:
        return "NoRoom", f"{starts[-1].provider}: {starts[-1].placed}"
    known = old.get(SPILLED_OVER)
    if known is None or not same:
        return "", ""
    return str(known["reason"]), str(known["message"])


def _over(plan: Plan, desired: Desired) -> tuple[str, str]:
    """Reason and sentence of the budget that is used up; both empty when none is."""
    denied = plan.denied
    # While something runs, a start that waits for what that holds lacks nothing.
    if denied is not None and (denied.for_good or not plan.active):
        return denied.reason, message_of(denied.message)
    if desired.prior.over_budget and desired.prior.generation == desired.generation:
        return "BudgetExceeded", desired.prior.over_budget
    return next(
        (account.over for account in desired.allowance.accounts if any(account.over)), ("", "")
    )


def _condition(
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


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
