"""How an object ended, in a few lines: what `apply --wait` prints last and `describe` repeats."""

from __future__ import annotations

from itertools import islice

from fleetctl.common.text import assignments, duration, plural, safe, scalar, shorten
from fleetctl.specs.kinds.registry import unit_called
from fleetctl.views.columns import last_line
from fleetctl.views.objects import FAILED, SUCCEEDED, View, fix, mapping, why
from fleetctl.views.reading import Reading
from fleetctl.views.tasks import Task

FAILED_SHOWN_MAX = 5
FRONT_SHOWN_MAX = 8
MESSAGE_CHARS_MAX = 160


def summary_lines(seen: View, reading: Reading) -> list[str]:
    """A line on the whole; then the best trial, the failed tasks, and where to look."""
    failed = seen.count("failed")
    lines = [f"{safe(seen.key)} {seen.phase.lower()}: {_counts(seen)}{took(seen)}"]
    best = best_line(seen)
    if best:
        lines.append(f"  {best}")
    elif front := front_lines(seen):
        lines += [f"  {line}" for line in front]
    elif seen.phase == SUCCEEDED and seen.kind.searches:
        lines.append("  no best trial: the search names no metric")
    if seen.phase == FAILED and why(seen):
        lines.append(f"  {safe(why(seen))}")
        if not failed and fix(seen):
            lines.append(f"  fix: {safe(fix(seen))}")
    if failed:
        lines += [
            f"  {failed_line(task, seen)}"
            for task in islice(reading.failed_tasks(seen), FAILED_SHOWN_MAX)
        ]
        if failed > FAILED_SHOWN_MAX:
            lines.append(f"  and {failed - FAILED_SHOWN_MAX} more")
        lines.append(f"  logs: fleetctl logs {safe(seen.key)} --failed")
    return lines


def _counts(seen: View) -> str:
    done, failed = seen.count("succeeded"), seen.count("failed")
    cached = f" ({seen.count('cached')} cached)" if seen.count("cached") else ""
    if seen.kind.counted:  # by no word for its units
        return f"{done} done{cached}, {failed} failed"
    stopped = seen.count("stopped")
    early = f", {stopped} stopped early" if stopped else ""
    return f"{plural(done, seen.kind.unit)} done{cached}{early}, {failed} failed"


def best_line(seen: View) -> str:
    """`best trial 7: lr=0.01 batch_size=64 loss=1.6024`; empty while there is none."""
    best = seen.map("best")
    if not best:
        return ""
    metric = mapping(best.get("metric"))
    value = f"{metric.get('name')}={scalar(metric.get('value'))}" if metric else ""
    params = assignments(mapping(best.get("params")))
    return safe(f"best trial {best.get('index')}: {params} {value}".replace("  ", " ").rstrip())


def front_lines(seen: View) -> list[str]:
    """`front: 5 trials that no other one beats`, then of some of them the values."""
    size, shown = seen.count("frontSize"), seen.status.get("front")
    if not size:
        return []
    trials = [mapping(it) for it in shown] if isinstance(shown, list) else []
    most = trials[:: max(1, -(-len(trials) // FRONT_SHOWN_MAX))]
    lines = [f"trial {it.get('index')}: {assignments(mapping(it.get('metrics')))}" for it in most]
    whose = "that no other one beats" if size > 1 else "that beats all others"
    some = f", {len(most)} of them" if len(most) < size else ""
    return [f"front: {plural(size, 'trial')} {whose}{some}", *(f"  {safe(it)}" for it in lines)]


def failed_line(task: Task, seen: View) -> str:
    """`task 3: ExitCode:2 after 1 attempt: the last line that it said`."""
    attempts = f" after {plural(task.attempts, 'attempt')}"
    message = safe(shorten(last_line(task.run.message), MESSAGE_CHARS_MAX))
    text = f": {message}" if message else ""
    unit = safe(unit_called(seen.kind.name, task.run.index, task.run.params))
    return f"{unit}: {safe(task.reason) or FAILED}{attempts}{text}"


def took(seen: View) -> str:
    """` in 3m02s` of work, waiting left out; nothing while it goes on, or where nobody knows."""
    worked_s = seen.worked_s(0.0) if seen.over else None
    return "" if worked_s is None else f" in {duration(worked_s)}"
