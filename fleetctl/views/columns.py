"""What each table shows: a header and one row a thing. Pure; `get` prints them, and the operator
writes them into statuses for kubectl.

Columns are for people and may grow; scripts read `-o json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.common.text import age, duration, safe, scalar, shorten, usd
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.lines import assets, policies, queues, schedules, settings, sources
from fleetctl.views.objects import NONE, View, mapping, why

# A sentence in a table is a pointer; `describe` has the whole of it.
WHY_CHARS_MAX = 80


class Column(NamedTuple):
    """`cell` gets the object and the time now. sparse: left out where no object has any of it."""

    title: str
    cell: Callable[[View, float], str]
    wide: bool = False
    sparse: bool = False


def _where(seen: View, _now_s: float) -> str:
    """Where it runs now; of what runs no more, where it ran."""
    where = seen.map("where") or _ran_at(seen)
    if not where:
        return NONE
    if len(where) == 1:
        return safe(next(iter(where))) or NONE
    return safe(" ".join(f"{provider}:{count}" for provider, count in where.items()))


def _ran_at(seen: View) -> Mapping[str, object]:
    places = seen.status.get("placement")
    found = [mapping(place) for place in places] if isinstance(places, list) else []
    return {str(it.get("provider")): it["total"] for it in found if it.get("total")}


def _age(seen: View, now_s: float) -> str:
    return age(now_s - seen.resource.created_at_s)


def _worked(seen: View, now_s: float) -> str:
    """Of work alone: what waits grows no older by it."""
    worked_s = seen.worked_s(now_s)
    return NONE if worked_s is None else duration(worked_s)


def _started(seen: View, now_s: float) -> str:
    begun_s = seen.time_s("startTime")
    return NONE if begun_s is None else f"{age(now_s - begun_s)} ago"


def _best(seen: View, _now_s: float) -> str:
    if size := seen.count("frontSize"):
        return f"front of {size}"
    metric = mapping(seen.map("best").get("metric"))
    if not metric:
        return NONE
    goal = {"minimize": " (min)", "maximize": " (max)"}.get(str(seen.map("metric").get("goal")), "")
    return safe(f"{metric.get('name')}={scalar(metric.get('value'))}{goal}")


def _best_trial(seen: View, _now_s: float) -> str:
    return scalar(seen.map("best").get("index", NONE))


def _method(seen: View, _now_s: float) -> str:
    return safe(seen.text("method")) or NONE


def _full(seen: View, _now_s: float) -> str:
    """Why nothing new starts there; nothing when it can."""
    return safe(shorten(seen.text("message"), WHY_CHARS_MAX)) or NONE


def _cost(seen: View, _now_s: float) -> str:
    """Of ended runs; nothing while nothing is known to have cost anything."""
    spent = seen.map("cost").get("actual")
    return usd(spent) if isinstance(spent, (int, float)) and spent else NONE


def _estimate(seen: View, _now_s: float) -> str:
    """Of the whole, as its apply told it; `<=$16.00` where only the limits bound it."""
    cost = seen.map("cost")
    expected, high = cost.get("estimated"), cost.get("estimatedHigh")
    if isinstance(expected, (int, float)):
        return usd(expected)
    return f"<={usd(high)}" if isinstance(high, (int, float)) else NONE


def _left(seen: View, _now_s: float) -> str:
    """`$20.98/$25.00` of the object's own budget that is neither used nor set aside."""
    own = seen.map("budget")
    left, most = own.get("left"), own.get("maxCost")
    if not isinstance(left, (int, float)) or not isinstance(most, (int, float)):
        return NONE
    return f"{usd(left)}/{usd(most)}"


def _why(seen: View, _now_s: float) -> str:
    return safe(shorten(why(seen), WHY_CHARS_MAX)) or NONE


def _labels(seen: View, _now_s: float) -> str:
    return safe(",".join(f"{key}={value}" for key, value in seen.resource.labels.items())) or NONE


NAME = Column("NAME", lambda seen, _: safe(seen.resource.name))
KEY = Column("NAME", lambda seen, _: safe(object_key(seen.kind.name, seen.resource.name)))
NAMESPACE = Column(
    "NAMESPACE", lambda seen, _: safe(seen.resource.namespace) if seen.kind.namespaced else NONE
)
STATUS = Column("STATUS", lambda seen, _: safe(seen.phase))
ACTIVE = Column("ACTIVE", lambda seen, _: str(seen.active))
FAILED = Column("FAILED", lambda seen, _: str(seen.count("failed")))
RETRIES = Column("RETRIES", lambda seen, _: str(seen.count("retries")))
WHERE = Column("WHERE", _where)
AGE = Column("AGE", _age)
# Of what runs something: how long, and since when.
TIMES = (Column("DURATION", _worked, sparse=True), AGE, Column("STARTED", _started, wide=True))
ASKED_GPU = Column("GPU", lambda seen, _: safe(seen.text("gpu")) or NONE, sparse=True)
STOPPED = Column("STOPPED", lambda seen, _: str(seen.count("stopped") or NONE), sparse=True)
OUTDATED = Column("OUTDATED", lambda seen, _: str(seen.count("outdated") or NONE), sparse=True)
MONEY = (Column("COST", _cost, sparse=True), Column("EST", _estimate, sparse=True))
WIDE = (
    Column("BUDGET LEFT", _left, wide=True),
    Column("ISOLATION", lambda seen, _: safe(seen.text("isolation")) or NONE, wide=True),
    Column("LABELS", _labels, wide=True),
    Column("WHY", _why, wide=True),
)
WIDE_COUNTS = (  # of an Endpoint
    ("TRIES", "tries"), ("CACHED", "cacheHits"), ("FALLBACKS", "fallbacks"),
    ("REFUSED", "refusedCalls"),
)  # fmt: skip
PLAIN = WIDE[2:]  # of what runs nothing


def _done(title: str) -> Column:
    return Column(title, lambda seen, _: seen.done)


def _own(title: str, key: str) -> Column:
    """A key of the status, as it is."""

    def cell(seen: View, _now_s: float) -> str:
        value = seen.status.get(key)
        return NONE if value in (None, "") else safe(scalar(value))

    return Column(title, cell)


def _running(kind: Kind) -> tuple[Column, ...]:
    """Of a kind that runs: a search tells what it found, others how their units fared."""
    method = (Column("METHOD", _method),) if kind.searches else ()
    stopped = (STOPPED,) if kind.searches else ()
    done = _done(kind.counted or f"{kind.unit}s".upper())
    own = [_own(*shown) for shown in kind.shows]
    fared = (
        (Column("BEST", _best), Column("BEST TRIAL", _best_trial))
        if kind.searches
        else (RETRIES, WHERE)
    )
    return (
        NAME, STATUS, *method, done, *own, ACTIVE, FAILED, *stopped, OUTDATED,
        *fared, ASKED_GPU, *MONEY, *TIMES, *WIDE,
    )  # fmt: skip


# Of what runs nothing.
_BY_KIND: Mapping[str, tuple[Column, ...]] = {
    "Volume": (
        NAME, STATUS, Column("PROVIDER", assets.provider_cell),
        Column("DELETION", assets.deletion_cell), AGE, *PLAIN,
    ),
    "Function": (
        NAME, STATUS, Column("PROVIDER", assets.provider_cell), Column("GPU", assets.gpu_cell),
        Column("CONTAINERS", assets.containers_cell),
        Column("$/H", assets.warm_cell, sparse=True), AGE, *PLAIN,
    ),
    "Endpoint": (
        NAME, STATUS, Column("SERVERS", assets.servers_cell), _own("SLOTS", "concurrency"),
        _own("IN FLIGHT", "inFlight"), _own("QUEUE", "queue"), _own("CALLS", "calls"),
        _own("TOKENS", "tokens"), Column("COST", _cost, sparse=True),
        Column("P95", assets.answered_cell), AGE,
        *(_own(*it)._replace(wide=True) for it in WIDE_COUNTS), *PLAIN,
    ),
    "Schedule": (
        NAME, Column("SCHEDULE", schedules.line_cell),
        Column("TIMEZONE", schedules.zone_cell),
        Column("SUSPEND", schedules.suspend_cell), ACTIVE,
        Column("LAST", schedules.last_cell), Column("NEXT", schedules.next_cell), AGE,
        *PLAIN,
    ),
    "Settings": (
        NAME, STATUS, Column("BACKUP", settings.schedule_cell),
        Column("LAST", settings.last_cell), Column("NEXT", settings.next_cell), AGE,
        *PLAIN,
    ),
    "Queue": (
        NAME, STATUS, Column("USED", queues.used_cell),
        Column("BORROWED", queues.borrowed_cell, sparse=True), _own("RUNNING", "running"),
        _own("WAITING", "waiting"), Column("COHORT", queues.cohort_cell, sparse=True), AGE,
        Column("STRATEGY", queues.strategy_cell, wide=True), *PLAIN,
    ),
    "Source": (
        NAME, STATUS, Column("REF", sources.ref_cell),
        Column("REVISION", sources.revision_cell),
        Column("OBJECTS", sources.objects_cell),
        Column("DRIFT", sources.drift_cell, sparse=True),
        Column("APPLIED", sources.applied_cell), AGE,
        Column("URL", sources.url_cell, wide=True), *PLAIN,
    ),
    "Secret": (NAME, STATUS, Column("SOURCE", assets.secret_cell), AGE, *PLAIN),
    "Budget": (
        NAME, Column("USED", assets.money_cell("used")),
        Column("RESERVED", assets.money_cell("reserved")),
        Column("MAX", assets.cap_cell), Column("PERIOD", assets.period_cell),
        Column("STATUS", lambda seen, _: safe(seen.text("state")) or safe(seen.phase)), AGE,
        Column("SELECTS", assets.selector_cell, wide=True), PLAIN[0],
    ),
    "Policy": (
        NAME, Column("KINDS", policies.kinds_cell),
        Column("NAMESPACES", policies.namespaces_cell),
        Column("RULES", policies.rules_cell), AGE, PLAIN[0],
    ),
    "Provider": (
        NAME, STATUS, Column("SLOTS", assets.slots_cell),
        Column("CREATES", assets.creates_cell, sparse=True),
        Column("$/H", assets.spend_cell), AGE, Column("FULL", _full, sparse=True), PLAIN[0],
    ),
}  # fmt: skip
_STANDING = (NAME, STATUS, AGE, *WIDE)
_ALL = (
    KEY,
    STATUS,
    Column("DONE", lambda seen, _: seen.done if seen.kind.runs else NONE),
    Column("ACTIVE", lambda seen, _: str(seen.active) if seen.kind.runs else NONE),
    Column("FAILED", lambda seen, _: str(seen.count("failed")) if seen.kind.runs else NONE),
    ASKED_GPU,
    *MONEY,
    *TIMES,
    *WIDE,
)


def columns(kind: Kind | None, *, wide: bool) -> tuple[Column, ...]:
    """The columns for objects of one kind, or of all kinds together (None)."""
    chosen: tuple[Column, ...] = _ALL
    if kind is not None:
        chosen = _running(kind) if kind.runs else _BY_KIND.get(kind.name, _STANDING)
    return tuple(column for column in chosen if wide or not column.wide)


def labels_asked(keys: Sequence[str], *, everything: bool) -> tuple[Column, ...]:
    """A column for each label, as kubectl titles it, and one for all of them."""
    asked = tuple(
        Column(
            safe(key.rpartition("/")[2].upper()),
            lambda seen, _, key=key: safe(seen.resource.labels.get(key, "")) or NONE,  # type: ignore[misc]
        )
        for key in keys
    )
    return (*asked, Column("LABELS", _labels)) if everything else asked


def filled(
    shown: Sequence[Column], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows without the sparse columns that have nothing in any row."""
    kept = [
        at
        for at, column in enumerate(shown)
        if not column.sparse or any(row[at] != NONE for row in rows)
    ]
    return [shown[at].title for at in kept], [[row[at] for at in kept] for row in rows]


def last_line(text: str) -> str:
    """The line of a message or traceback that says what went wrong: the last one with text."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
