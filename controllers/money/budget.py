"""Money as admission: what a run may cost at worst is set aside before it starts, so that a cap
holds whatever happens later.

Accounts are counted by the engine for each tick, from rows alone; the passes of the tick take from
them one after the other. Pure but for that taking: holds no clock and does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from fleetctl.controllers.model import Run
from fleetctl.specs.values.hints import with_hint

DAY_S = 86_400
# Sums of floats: below a millionth of a cent nothing is meant.
TINY_USD = 1e-8
TOO_SMALL = "BudgetTooSmall"  # for a single run


class OnExceeded(StrEnum):
    SUSPEND = "Suspend"
    CANCEL = "Cancel"
    WARN = "Warn"


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit and where a person finds it. until_s: when it counts anew; None = never."""

    owner: str  # budget/team-vision, or the object itself
    raise_by: str  # what `fleetctl set` takes before `=`
    max_usd: float
    on_exceeded: OnExceeded = OnExceeded.SUSPEND
    warn_at: tuple[int, ...] = ()
    until_s: float | None = None


@dataclass(slots=True)
class Account:
    """What counts against a cap now."""

    cap: Cap
    charged_usd: float = 0.0  # of runs that are over
    reserved_usd: float = 0.0  # worst cases of live runs; infinite when one has no limit of time
    accrued_usd: float = 0.0  # what live runs have cost so far, a part of the reserved
    calling_usd: float = 0.0  # worst cases of calls of models under way, a part of the reserved
    # Of runs that began before there was a cap, and whose price nobody knew. They count as if they
    # cost what the run that would start costs: never nothing.
    unpriced_s: float = 0.0
    unpriced_live: int = 0

    @property
    def committed_usd(self) -> float:
        return self.charged_usd + self.reserved_usd

    @property
    def left_usd(self) -> float:
        return max(0.0, self.cap.max_usd - self.committed_usd)

    @property
    def left_for_calls_usd(self) -> float:
        """What calls of models may come to beside what is charged: those under way, too."""
        return max(0.0, self.cap.max_usd - self.charged_usd - self.reserved_usd + self.calling_usd)

    @property
    def over(self) -> tuple[str, str]:
        """Reason and sentence of an account that only warns; both empty while there is nothing to
        warn of.
        """
        cap = self.cap
        if cap.on_exceeded is not OnExceeded.WARN:
            return "", ""
        if self.committed_usd > cap.max_usd + TINY_USD:
            parts = f"{usd(self.committed_usd)} of {usd(cap.max_usd)}"
            return "BudgetExceeded", f"{cap.owner} only warns: {parts} is used or set aside"
        if self.unpriced_live or self.unpriced_s:
            return "PriceUnknown", f"{cap.owner} only warns: not every price is known"
        return "", ""

    @property
    def percent(self) -> float:
        """Of the cap, what is really used up: ended runs, and live ones so far."""
        return 100.0 * (self.charged_usd + self.accrued_usd) / self.cap.max_usd

    @property
    def warned(self) -> int:
        """The highest warning level that is reached; 0 = none."""
        return max((it for it in self.cap.warn_at if self.percent >= it), default=0)


@dataclass(frozen=True, slots=True)
class Held:
    """What a start sets aside; None: nobody knows its price, or it has no limit of time."""

    usd: float | None


@dataclass(frozen=True, slots=True)
class Denied:
    """Why a start is not paid for. for_good: no run that ends can make room under this cap."""

    reason: str
    message: str
    owner: str
    until_s: float | None = None
    for_good: bool = False
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """What one new run of a unit costs: a second, and how many seconds at the very most."""

    usd_per_s: float | None
    lasts_s: float

    @property
    def worst_usd(self) -> float | None:
        return worst_case_usd(self.usd_per_s, self.lasts_s)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the sandboxes of a provider cost beside their price, and how old they get.

    lifetime_s: at which age all of them end. shared_s: the same of one that tasks take turns in.
    None = no limit.
    """

    lifetime_s: float | None = None
    quantum_s: float = 0.0  # that an end may be billed late
    shared_s: float | None = None


@dataclass(slots=True)
class Allowance:
    """What one pass may spend. own: the account of the object's own `budget`. left: how many units
    have not ended, this one among them; what a person would have to raise a cap by.
    """

    accounts: Sequence[Account] = ()
    own: Account | None = None
    unit: str = "task"
    left: int = 1

    def take(self, unit_price: UnitPrice, provider: str) -> Held | Denied:
        """Set aside the worst case of one new run in every account, or in none."""
        denied = self.denial(unit_price, provider)
        if denied is not None:
            return denied
        worst_usd = unit_price.worst_usd
        known = None if worst_usd is None or math.isinf(worst_usd) else worst_usd
        for account in self.accounts:
            account.reserved_usd += worst_usd or 0.0
            account.unpriced_live += worst_usd is None
        return Held(known)

    def denial(self, unit_price: UnitPrice, provider: str) -> Denied | None:
        """Why it would not be paid for; nothing is set aside."""
        for account in self.accounts:
            if account.cap.on_exceeded is OnExceeded.WARN:
                continue
            denied = _refusal(account, unit_price, provider, self.unit, self.left)
            if denied is not None:
                return denied
        return None


def worst_case_usd(usd_per_s: float | None, lasts_s: float) -> float | None:
    """None = unknown. What is free stays free, however long it may last."""
    if usd_per_s is None:
        return None
    return usd_per_s * lasts_s if usd_per_s else 0.0


def lasts_s(
    *, timeout_s: float | None, left_s: float | None, lifetime_s: float | None, after_s: float
) -> float:
    """How long a sandbox that is started now lives at most. left_s: until the object's deadline.

    after_s: what passes between the spec to end it and the end of its bill.
    """
    limits = [limit for limit in (timeout_s, left_s, lifetime_s) if limit is not None]
    return max(0.0, min(limits, default=math.inf)) + after_s


def reserved_usd(run: Run, *, worst_usd: float | None, now_s: float) -> float | None:
    """What a live run holds: its worst case as it was when it began, or as its object's changed
    limits make it now (worst_usd), never less than what it has cost by now. None = price unknown.
    """
    if run.usd_per_s is None:
        return None
    known = [usd for usd in (run.usd, worst_usd, accrued_usd(run, now_s)) if usd is not None]
    return math.inf if run.usd is None and run.usd_per_s > 0 and worst_usd is None else max(known)


def accrued_usd(run: Run, now_s: float) -> float:
    """What a live run has cost so far, by its price and the time since it began."""
    if run.usd_per_s is None or run.started_at_s is None:
        return 0.0
    return run.usd_per_s * max(0.0, now_s - run.started_at_s)


def charge_usd(run: Run, *, held_from_s: float | None, quantum_s: float) -> float | None:
    """What an ended run counts for, from when its sandbox may have existed (held_from_s) to its
    end. None = price unknown.

    When a restart forgot that moment, it is at most since the record was made, and at least since
    the work began; between the two its reservation decides.
    """
    if run.usd_per_s is None:
        return None
    ended_at_s = run.created_at_s if run.ended_at_s is None else run.ended_at_s
    began_at_s = ended_at_s if run.started_at_s is None else run.started_at_s

    def cost_usd(since_s: float) -> float:
        assert run.usd_per_s is not None
        return run.usd_per_s * (max(0.0, ended_at_s - since_s) + quantum_s)

    if held_from_s is not None:
        return cost_usd(held_from_s)
    most_usd = cost_usd(run.created_at_s)
    return max(cost_usd(began_at_s), most_usd if run.usd is None else min(most_usd, run.usd))


def period_of(period: str, now_s: float) -> tuple[float, float | None]:
    """(start, end) in seconds since the epoch, UTC, of the day, week or month that holds now_s; a
    week begins on Monday. `total` has neither.
    """
    if period == "total":
        return 0.0, None
    today = datetime.fromtimestamp(now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        start, end = today, today + timedelta(days=1)
    elif period == "week":
        start = today - timedelta(days=today.weekday())
        end = start + timedelta(days=7)
    else:
        start = today.replace(day=1)
        end = (start + timedelta(days=32)).replace(day=1)
    return start.timestamp(), end.timestamp()


def day_of(at_s: float) -> int:
    """Days since 1970, UTC: what a ledger counts by."""
    return math.floor(at_s / DAY_S)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


# -- reasons -----------------------------------------------------------------------------------


def _refusal(
    account: Account, unit_price: UnitPrice, provider: str, unit: str, left: int
) -> Denied | None:
    """None when the unit price's worst case fits. The first that applies is said."""
    cap, worst_usd = account.cap, unit_price.worst_usd
    if worst_usd is None:
        text = (
            f"{cap.owner} limits what a {unit} costs, and no price of it on `{provider}` is known"
        )
        fix = "give the provider a price, or ask for resources that have one"
        return _denied(account, "PriceUnknown", text, fix)
    if math.isinf(worst_usd):
        text = f"{cap.owner} limits what a {unit} costs, and nothing limits how long it runs"
        return _denied(account, "NoTimeLimit", text, "set template.timeoutSeconds")
    assert unit_price.usd_per_s is not None
    charged_usd = account.charged_usd + account.unpriced_s * unit_price.usd_per_s
    if worst_usd > cap.max_usd + TINY_USD:
        text = (
            f"one {unit} may cost {usd(worst_usd)} ({usd(unit_price.usd_per_s * 3600)}/h for up to "
            f"{unit_price.lasts_s:,.0f} s), and {cap.owner} has {usd(cap.max_usd)} in all"
        )
        return _denied(
            account,
            TOO_SMALL,
            text,
            f"lower template.timeoutSeconds, or {_raised(cap, worst_usd)}",
        )
    if (
        charged_usd + account.reserved_usd + account.unpriced_live * worst_usd + worst_usd
        <= cap.max_usd + TINY_USD
    ):
        return None
    left_usd = max(0.0, cap.max_usd - charged_usd - account.reserved_usd)
    there = f"{usd(left_usd)} of {usd(cap.max_usd)} left{_until(cap)}"
    text = f"the next {unit} may cost {usd(worst_usd)}, {cap.owner} has {there}"
    for_good = charged_usd + worst_usd > cap.max_usd + TINY_USD
    # Raised by what one more may cost, it would soon stand still again.
    needed_usd = worst_usd * left + (charged_usd if for_good else account.committed_usd)
    return _denied(account, "BudgetExhausted", text, _raised(cap, needed_usd), for_good=for_good)


def _denied(
    account: Account, reason: str, text: str, fix: str, *, for_good: bool = False
) -> Denied:
    cap = account.cap
    cancel = for_good and cap.on_exceeded is OnExceeded.CANCEL
    message = with_hint(text, fix)
    return Denied(reason, message, cap.owner, cap.until_s, for_good, cancel)


def _raised(cap: Cap, needed_usd: float) -> str:
    return f"fleetctl set {cap.raise_by}={_rounded_up(needed_usd):g}"


def _rounded_up(amount_usd: float) -> float:
    """Two digits, so that a person can read the number."""
    if not 0 < amount_usd < math.inf:
        return 1.0
    step = 10.0 ** (math.floor(math.log10(amount_usd)) - 1)
    return round(math.ceil(amount_usd / step - 1e-9) * step, 10)


def _until(cap: Cap) -> str:
    if cap.until_s is None:
        return ""
    return f" until {datetime.fromtimestamp(cap.until_s, UTC):%Y-%m-%d}"


def usd(amount_usd: float) -> str:
    """`$0.0031`, `$0.45`, `$1,204.10`."""
    return f"${amount_usd:.4f}" if 0 < amount_usd < 0.1 else f"${amount_usd:,.2f}"
