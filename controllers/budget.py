"""Admits runs by money: the worst-case cost of a run is set aside before it starts, so that no
budget is exceeded; beside it the estimate of a whole object. Pure.

The engine counts accounts for each tick, from rows alone; the passes of the tick take from them
one after the other. An apply notes the estimate on its object, so that it outlives the controller;
the object's status shows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from fleetctl.controllers.model import Run

DAY_S = 86_400
# Sums of floats: an amount below a millionth of a cent is rounding.
TINY_USD = 1e-8
TOO_SMALL = "BudgetTooSmall"  # for a single run


class OnExceeded(StrEnum):
    SUSPEND = "Suspend"
    CANCEL = "Cancel"
    WARN = "Warn"


@dataclass(frozen=True, slots=True)
class MoneyCap:
    """A limit and where a user finds it. until_s: when it is reset; None = never."""

    owner: str  # budget/team-vision, or the object itself
    raise_by: str  # what `fleetctl set` takes before `=`
    max_usd: float
    on_exceeded: OnExceeded = OnExceeded.SUSPEND
    warn_at: tuple[int, ...] = ()
    until_s: float | None = None


@dataclass(slots=True)
class BudgetAccount:
    """The charges against a cap now."""

    cap: MoneyCap
    charged_usd: float = 0.0  # of finished runs
    reserved_usd: float = 0.0  # worst cases of live runs; infinite when one has no limit of time
    accrued_usd: float = 0.0  # cost of live runs so far, a part of the reserved
    calling_usd: float = 0.0  # worst cases of calls of models under way, a part of the reserved
    # Runs that began before there was a cap, and whose price was unknown. They count as if they
    # cost as much as the run that would start: never zero.
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
        """Returns the USD left for calls of models beside the charges so far: those under
        way, too.
        """
        return max(0.0, self.cap.max_usd - self.charged_usd - self.reserved_usd + self.calling_usd)

    @property
    def over(self) -> tuple[str, str]:
        """Returns reason and sentence of an account that only warns; both empty if it has no
        warning.
        """
        cap = self.cap
        if cap.on_exceeded is not OnExceeded.WARN:
            return "", ""
        if self.committed_usd > cap.max_usd + TINY_USD:
            parts = f"{format_usd(self.committed_usd)} of {format_usd(cap.max_usd)}"
            return "BudgetExceeded", f"{cap.owner} only warns: {parts} is used or set aside"
        if self.unpriced_live or self.unpriced_s:
            return "PriceUnknown", f"{cap.owner} only warns: not every price is known"
        return "", ""

    @property
    def percent(self) -> float:
        """Returns the percentage of the cap that is really used up: ended runs, and live ones so
        far.
        """
        return 100.0 * (self.charged_usd + self.accrued_usd) / self.cap.max_usd

    @property
    def warned(self) -> int:
        """Returns the highest warning level that is reached; 0 before the first."""
        return max((it for it in self.cap.warn_at if self.percent >= it), default=0)


@dataclass(frozen=True, slots=True)
class ReservedCost:
    """The amount that a start sets aside; None: its price is unknown, or it has no limit of
    time.
    """

    usd: float | None


@dataclass(frozen=True, slots=True)
class BudgetDenial:
    """The reason why a start is not paid for. for_good: no run that ends can make room under this
    cap.
    """

    reason: str
    message: str
    owner: str
    until_s: float | None = None
    for_good: bool = False
    cancel: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """The price of a new run of a unit: USD a second, and the greatest number of seconds."""

    usd_per_s: float | None
    lasts_s: float

    @property
    def worst_usd(self) -> float | None:
        return worst_case_usd(self.usd_per_s, self.lasts_s)


@dataclass(frozen=True, slots=True)
class SandboxTerms:
    """The costs of a provider's sandboxes beside their price, and their greatest age.

    lifetime_s: at which age all sandboxes end. shared_s: the same for a sandbox that tasks take
    turns in. None = no limit.
    """

    lifetime_s: float | None = None
    quantum_s: float = 0.0  # that an end may be billed late
    shared_s: float | None = None


@dataclass(slots=True)
class Allowance:
    """The money that one pass may spend. own: the account of the object's own `budget`. left: how
    many units have not ended, this one among them; used to suggest by how much a user would have to
    raise a cap.
    """

    accounts: Sequence[BudgetAccount] = ()
    own: BudgetAccount | None = None
    unit: str = "task"
    left: int = 1

    def take(self, unit_price: UnitPrice, provider: str) -> ReservedCost | BudgetDenial:
        """Sets aside the worst case of a new run in every account, or in no account."""
        denied = self.denial(unit_price, provider)
        if denied is not None:
            return denied
        worst_usd = unit_price.worst_usd
        known = None if worst_usd is None or math.isinf(worst_usd) else worst_usd
        for account in self.accounts:
            account.reserved_usd += worst_usd or 0.0
            account.unpriced_live += worst_usd is None
        return ReservedCost(known)

    def denial(self, unit_price: UnitPrice, provider: str) -> BudgetDenial | None:
        """Returns why it would not be paid for, or None; sets no money aside."""
        for account in self.accounts:
            if account.cap.on_exceeded is OnExceeded.WARN:
                continue
            denied = _find_denial(
                account,
                unit_price,
                provider,
                self.unit,
                self.left,
            )
            if denied is not None:
                return denied
        return None


def worst_case_usd(usd_per_s: float | None, lasts_s: float) -> float | None:
    """Returns the worst-case cost; None = unknown. A free sandbox stays free, however long it
    lasts.
    """
    if usd_per_s is None:
        return None
    return usd_per_s * lasts_s if usd_per_s else 0.0


def lasts_s(
    *,
    timeout_s: float | None,
    left_s: float | None,
    lifetime_s: float | None,
    after_s: float,
) -> float:
    """Returns how long a sandbox that is started now lives at most. left_s: until the object's
    deadline.

    after_s: the time between the spec to end it and the end of its bill.
    """
    limits = [limit for limit in (timeout_s, left_s, lifetime_s) if limit is not None]
    return max(0.0, min(limits, default=math.inf)) + after_s


def reserved_usd(
    run: Run,
    *,
    worst_usd: float | None,
    now_s: float,
) -> float | None:
    """Returns the reservation of a live run: its worst case as it was when it began, or as its
    object's changed limits make it now (worst_usd), at least its cost by now. None = price unknown.
    """
    if run.usd_per_s is None:
        return None
    known = [usd for usd in (run.usd, worst_usd, accrued_usd(run, now_s)) if usd is not None]
    return math.inf if run.usd is None and run.usd_per_s > 0 and worst_usd is None else max(known)


def accrued_usd(run: Run, now_s: float) -> float:
    """Returns the cost of a live run so far, by its price and the time since it began."""
    if run.usd_per_s is None or run.started_at_s is None:
        return 0.0
    return run.usd_per_s * max(0.0, now_s - run.started_at_s)


def charge_usd(
    run: Run,
    *,
    held_from_s: float | None,
    quantum_s: float,
) -> float | None:
    """Returns the charge of an ended run, from when its sandbox may have existed (held_from_s) to
    its end. None = price unknown.

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
    """Returns (start, end) in seconds since the epoch, UTC, of the day, week or month that holds
    now_s; a week begins on Monday. `total` has neither.
    """
    if period == "total":
        return 0.0, None
    today = datetime.fromtimestamp(now_s, UTC).replace(
        hour=0,
        minute=0,
        second=0,
        microsecond=0,
    )
    if period == "day":
        start = today
        end = today + timedelta(days=1)
    elif period == "week":
        start = today - timedelta(days=today.weekday())
        end = start + timedelta(days=7)
    else:
        start = today.replace(day=1)
        end = (start + timedelta(days=32)).replace(day=1)
    return start.timestamp(), end.timestamp()


def day_of(at_s: float) -> int:
    """Returns days since 1970, UTC: the unit of a ledger."""
    return math.floor(at_s / DAY_S)


def matches_labels(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


# -- reasons -----------------------------------------------------------------------------------
def _find_denial(
    account: BudgetAccount,
    unit_price: UnitPrice,
    provider: str,
    unit: str,
    left: int,
) -> BudgetDenial | None:
    """Returns None when the unit price's worst case fits, else the first denial that applies."""
    cap = account.cap
    worst_usd = unit_price.worst_usd
    if worst_usd is None:
        text = (
            f"{cap.owner} limits what a {unit} costs, and no price of it on `{provider}` is known"
        )
        fix = "give the provider a price, or ask for resources that have one"
        return _build_denial(account, "PriceUnknown", text, fix)
    if math.isinf(worst_usd):
        text = f"{cap.owner} limits what a {unit} costs, and nothing limits how long it runs"
        return _build_denial(account, "NoTimeLimit", text, "set template.timeoutSeconds")
    assert unit_price.usd_per_s is not None
    charged_usd = account.charged_usd + account.unpriced_s * unit_price.usd_per_s
    if worst_usd > cap.max_usd + TINY_USD:
        text = (
            f"one {unit} may cost {format_usd(worst_usd)} "
            f"({format_usd(unit_price.usd_per_s * 3600)}/h for up to "
            f"{unit_price.lasts_s:,.0f} s), and {cap.owner} has {format_usd(cap.max_usd)} in all"
        )
        return _build_denial(
            account,
            TOO_SMALL,
            text,
            f"lower template.timeoutSeconds, or {_suggest_raise(cap, worst_usd)}",
        )
    if (
        charged_usd + account.reserved_usd + account.unpriced_live * worst_usd + worst_usd
        <= cap.max_usd + TINY_USD
    ):
        return None
    left_usd = max(0.0, cap.max_usd - charged_usd - account.reserved_usd)
    there = f"{format_usd(left_usd)} of {format_usd(cap.max_usd)} left{_describe_until(cap)}"
    text = f"the next {unit} may cost {format_usd(worst_usd)}, {cap.owner} has {there}"
    for_good = charged_usd + worst_usd > cap.max_usd + TINY_USD
    # Raised by the cost of another run, it would soon be exhausted again.
    needed_usd = worst_usd * left + (charged_usd if for_good else account.committed_usd)
    return _build_denial(
        account,
        "BudgetExhausted",
        text,
        _suggest_raise(cap, needed_usd),
        for_good=for_good,
    )


def _build_denial(
    account: BudgetAccount,
    reason: str,
    text: str,
    fix: str,
    *,
    for_good: bool = False,
) -> BudgetDenial:
    cap = account.cap
    cancel = for_good and cap.on_exceeded is OnExceeded.CANCEL
    return BudgetDenial(
        reason,
        text,
        cap.owner,
        cap.until_s,
        for_good,
        cancel,
        hint=fix,
    )


def _suggest_raise(cap: MoneyCap, needed_usd: float) -> str:
    return f"fleetctl set {cap.raise_by}={_rounded_up(needed_usd):g}"


def _rounded_up(amount_usd: float) -> float:
    """Rounds up to two digits, so that the number is easy to read."""
    if not 0 < amount_usd < math.inf:
        return 1.0
    step = 10.0 ** (math.floor(math.log10(amount_usd)) - 1)
    return round(math.ceil(amount_usd / step - 1e-9) * step, 10)


def _describe_until(cap: MoneyCap) -> str:
    if cap.until_s is None:
        return ""
    return f" until {datetime.fromtimestamp(cap.until_s, UTC):%Y-%m-%d}"


def format_usd(amount_usd: float) -> str:
    """Formats an amount: `$0.0031`, `$0.45`, `$1,204.10`."""
    if 0 < amount_usd < 0.1:
        return f"${amount_usd:.4f}"
    return f"${amount_usd:,.2f}"


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """USD. expected None: unknown; then high_usd may bound it. high_usd None: unbounded."""

    expected_usd: float | None
    low_usd: float
    high_usd: float | None

    @property
    def known(self) -> bool:
        """Returns true if it has any figure."""
        return self.expected_usd is not None or self.high_usd is not None

    @property
    def note(self) -> str:
        """Returns the text that `estimate_of` reads back."""
        figures = {"usd": self.expected_usd, "low": self.low_usd, "high": self.high_usd}
        return json.dumps(
            {name: _round_usd(usd) for name, usd in figures.items() if usd is not None}
        )

    def status(self) -> dict[str, object]:
        """Returns the known figures for `status.cost`."""
        shown = {"estimated": self.expected_usd, "estimatedHigh": self.high_usd}
        if self.expected_usd is not None:
            shown["estimatedLow"] = self.low_usd
        return {name: usd for name, usd in shown.items() if usd is not None}


def estimate_of(note: str) -> CostEstimate | None:
    """Returns None for an empty note, and for a note that another program wrote."""
    try:
        document = json.loads(note) if note else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found = CostEstimate(
        _read_usd(document, "usd"), _read_usd(document, "low") or 0.0, _read_usd(document, "high")
    )
    if found.known:
        return found
    return None


def _read_usd(fields: dict[str, object], name: str) -> float | None:
    usd = fields.get(name)
    if isinstance(usd, int | float) and 0.0 <= usd < float("inf"):
        return float(usd)
    return None


def _round_usd(usd: float) -> float:
    """Rounds to the digits that `status.cost` has."""
    return round(usd, 6)
