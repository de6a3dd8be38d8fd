"""Computes the further cost of live runs, and the cost of another run: set aside before it is
spent.

Called by budgets.py for each account that an object counts against.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.controllers.model import LIVE_STATES, Run, RunState
from fleetctl.controllers.money import budget
from fleetctl.controllers.money.budget import BudgetAccount, SandboxTerms
from fleetctl.controllers.schedule.desired import deadline_at_s
from fleetctl.engine.capacity.providers import contract_of

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track


def reserve_runs(
    state: EngineState,
    account: BudgetAccount,
    track: Track,
    now_s: float,
) -> None:
    """Adds the live runs of an object."""
    work = track.work
    for run in _list_live(state, track):
        worst_usd = None if work is None else _worst_now_usd(state, work, run, now_s)
        usd = budget.reserved_usd(run, worst_usd=worst_usd, now_s=now_s)
        if usd is None:
            account.unpriced_live += 1
        else:
            account.reserved_usd += usd
            account.accrued_usd += budget.accrued_usd(run, now_s)


def reserve_calls(account: BudgetAccount, usd: float) -> None:
    """Adds calls of models that are under way; they may outlast the calling object."""
    account.calling_usd += usd
    account.reserved_usd += usd


def terms_of(state: EngineState, provider: str) -> SandboxTerms:
    contract = contract_of(state, provider)
    if contract is None:
        return SandboxTerms()
    ages_s = (contract.max_lifetime_s, contract.usual_lifetime_s)
    shared_s = min((it for it in ages_s if it is not None), default=None)
    return SandboxTerms(contract.max_lifetime_s, contract.billing_quantum_s, shared_s)


def _list_live(state: EngineState, track: Track) -> Iterator[Run]:
    if track.work is not None:
        yield from track.work.history.live.values()
    elif not track.dormant:
        # Its spec cannot be read, or its pass raised: its runs cost all the same.
        rows = state.store.runs.of(track.resource.uid)
        yield from (run for run, _ in rows if run.state in LIVE_STATES)


def _worst_now_usd(
    state: EngineState,
    work: ResourceWork,
    run: Run,
    now_s: float,
) -> float | None:
    """Returns the worst case under the present deadline, which may be later than when the run
    began.
    """
    controller = work.controller
    if controller is None or run.state is RunState.STOPPING:
        return None
    unit = controller.unit(run.index)
    if unit is None or unit.template_hash != run.template_hash:
        return None  # it goes on under the template that it began with, or is stopped
    since_s = now_s if run.started_at_s is None else run.started_at_s
    lasts_s = _lasts_s(
        state,
        work,
        run.provider,
        run.index,
        now_s,
        since_s,
    )
    return budget.worst_case_usd(run.usd_per_s, lasts_s)


def _lasts_s(
    state: EngineState,
    work: ResourceWork,
    provider: str,
    index: int,
    now_s: float,
    since_s: float,
) -> float:
    policy = work.controller.policy
    terms = terms_of(state, provider)
    ends_at_s = deadline_at_s(policy, work.track.prior, work.resource.generation, now_s)
    return budget.lasts_s(
        timeout_s=work.controller.template(index).timeout_seconds,
        left_s=None if ends_at_s is None else ends_at_s - since_s,
        lifetime_s=terms.lifetime_s,
        after_s=policy.grace_s + terms.quantum_s,
    )
