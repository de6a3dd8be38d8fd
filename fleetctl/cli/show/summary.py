"""The end of an object in a few lines: printed last by `apply --wait` and repeated by
`describe`."""

from __future__ import annotations

from itertools import islice

from fleetctl.common.text import (
    count_noun,
    escape_line,
    format_assignments,
    format_duration,
    format_hinted,
    format_scalar,
    shorten_text,
)
from fleetctl.views.columns import last_line
from fleetctl.views.objects import (
    FAILED,
    SUCCEEDED,
    View,
    as_mapping,
    explain_status,
    parse_document,
    suggest_fix,
)
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import FileNames, Task, file_cell

FAILED_SHOWN_MAX = 5
FRONT_SHOWN_MAX = 8
MESSAGE_CHARS_MAX = 160


def summary_lines(seen: View, reading: StoreReading) -> list[str]:
    """Returns a line on the whole; then the best trial, the failed tasks, and commands for more."""
    failed = seen.count("failed")
    lines = [
        f"{escape_line(seen.key)} {seen.phase.lower()}: "
        f"{_format_counts(seen)}{format_work_time(seen)}"
    ]
    best = best_line(seen)
    if best:
        lines.append(f"  {best}")
    elif front := front_lines(seen):
        lines += [f"  {line}" for line in front]
    elif seen.phase == SUCCEEDED and seen.kind.searches:
        lines.append("  no best trial: the search names no metric")
    if seen.phase == FAILED and explain_status(seen):
        lines.append(f"  {escape_line(explain_status(seen))}")
        if not failed and suggest_fix(seen):
            lines.append(f"  fix: {escape_line(suggest_fix(seen))}")
    if failed:
        lines += [
            f"  {failed_line(task, seen)}"
            for task in islice(reading.failed_tasks(seen), FAILED_SHOWN_MAX)
        ]
        if failed > FAILED_SHOWN_MAX:
            lines.append(f"  and {failed - FAILED_SHOWN_MAX} more")
        lines.append(f"  logs: fleetctl logs {escape_line(seen.key)} --failed")
    return lines


def _format_counts(seen: View) -> str:
    done = seen.count("succeeded")
    failed = seen.count("failed")
    cached = f" ({seen.count('cached')} cached)" if seen.count("cached") else ""
    if seen.kind.bare_counts:
        return f"{done} done{cached}, {failed} failed"
    stopped = seen.count("stopped")
    early = f", {stopped} stopped early" if stopped else ""
    return f"{count_noun(done, seen.kind.unit)} done{cached}{early}, {failed} failed"


def best_line(seen: View) -> str:
    """Returns `best trial 7: lr=0.01 batch_size=64 loss=1.6024`; empty while there is no best
    one."""
    best = seen.map("best")
    if not best:
        return ""
    metric = as_mapping(best.get("metric"))
    value = f"{metric.get('name')}={format_scalar(metric.get('value'))}" if metric else ""
    params = format_assignments(as_mapping(best.get("params")))
    return escape_line(
        f"best trial {best.get('index')}: {params} {value}".replace("  ", " ").rstrip()
    )


def front_lines(seen: View) -> list[str]:
    """Returns `front: 5 trials that no other one beats`, then the values of some."""
    size = seen.count("frontSize")
    shown = seen.status.get("front")
    if not size:
        return []
    trials = [as_mapping(it) for it in shown] if isinstance(shown, list) else []
    most = trials[:: max(1, -(-len(trials) // FRONT_SHOWN_MAX))]
    lines = [
        f"trial {it.get('index')}: {format_assignments(as_mapping(it.get('metrics')))}"
        for it in most
    ]
    whose = "that no other one beats" if size > 1 else "that beats all others"
    some = f", {len(most)} of them" if len(most) < size else ""
    return [
        f"front: {count_noun(size, 'trial')} {whose}{some}",
        *(f"  {escape_line(it)}" for it in lines),
    ]


def failed_line(task: Task, seen: View) -> str:
    """Returns `task 3: ExitCode:2 after 1 attempt: ` and the last line of its output."""
    attempts = f" after {count_noun(task.attempts, 'attempt')}"
    last = format_hinted(last_line(task.run.message), task.run.hint)
    message = escape_line(shorten_text(last, MESSAGE_CHARS_MAX))
    text = f": {message}" if message else ""
    unit = escape_line(seen.name_unit(task.run))
    if FileNames.of(seen) is not None:
        unit = f"{unit} ({escape_line(file_cell(parse_document(task.run.params)))})"
    return f"{unit}: {escape_line(task.reason) or FAILED}{attempts}{text}"


def format_work_time(seen: View) -> str:
    """Returns ` in 3m02s` of work, waiting left out; empty while it runs, or where unknown."""
    worked_s = seen.worked_s(0.0) if seen.over else None
    if worked_s is None:
        return ""
    return f" in {format_duration(worked_s)}"
