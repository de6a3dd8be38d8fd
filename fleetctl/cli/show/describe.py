"""`fleetctl describe`: one object in full. The first lines say how it stands and why."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.render import Screen
from fleetctl.cli.show.description.depends_lines import dependency_lines
from fleetctl.cli.show.description.figures import (
    attempts_line,
    cost_line,
    nodes_line,
    timing_line,
    usage_line,
    where_line,
)
from fleetctl.cli.show.search_lines import search_lines
from fleetctl.cli.show.summary import best_line, failed_line, front_lines, took
from fleetctl.common.clock import SystemClock
from fleetctl.common.home import home
from fleetctl.common.text import age, assignments, byte_size, plural, safe, safe_lines, timestamp
from fleetctl.controllers.vocabulary.status_keys import SPILLED_OVER
from fleetctl.daemon.reach.spawn import holder
from fleetctl.daemon.reach.standstill import standstill
from fleetctl.specs.kinds.registry import unit_called
from fleetctl.tracking.kept_by import kept_by, short
from fleetctl.views.kinds import target
from fleetctl.views.lines.policies import exempt_line
from fleetctl.views.lines.queues import place_line
from fleetctl.views.objects import View, fix, mapping, why
from fleetctl.views.reading import Reading, must_find, open_reading
from fleetctl.views.tasks import Task, in_order, wandb_run

LABEL_CELLS = 13
EVENTS_SHOWN_MAX = 10
TRACEBACK_LINES_MAX = 12
ALSO_SHOWN_MAX = 4
FAILED_SHOWN_MAX = 10


PAGE = """\
KIND/NAME | KIND NAME

Show one object in full: how it stands, why, what would help, and what happened.

examples:
  fleetctl describe job/chunks
  fleetctl describe sweep lr
  fleetctl describe vol/ckpt

exit codes:
  0 ok, 2 wrong usage, 4 no such object
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("object", metavar="KIND/NAME", help="what to describe")
    made.add_argument("name", nargs="?", help="the name, when KIND stands alone")
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = target(f"{args.object}/{args.name}" if args.name else args.object, args.namespace)
    state_dir = home()
    with open_reading(state_dir) as reading:
        seen = must_find(wanted, reading)
        now_s = SystemClock().now_s()
        building, services = _is_building(state_dir, seen), _services(state_dir, seen, reading)
        for line in lines(seen, reading, now_s, building=building, services=services):
            screen.data(line)
    # Without a controller the screen is as old as its end, and would otherwise not show it.
    waits = seen.kind.runs and not seen.over and seen.phase != "Suspended"
    if waits and holder(state_dir) is None:
        screen.warn("no controller runs, so nothing moves on until `fleetctl up --detach`")
    elif waits and (still := standstill(state_dir)) is not None:
        screen.warn(still.why)
        screen.hint(still.hint)
    return 0


def _is_building(state_dir: Path, seen: View) -> bool:
    """Whether an image is being built for a run that has not begun: a start waits for that, and the
    object's status meanwhile only says that it gets on.
    """
    if not seen.count("starting"):
        return False
    from fleetctl.providers.rundir.builds import is_building, logs_of

    return any(is_building(log) for log in logs_of(state_dir, seen.resource.uid))


def _services(state_dir: Path, seen: View, reading: Reading) -> Sequence[str]:
    """Those beside its work, each with how it stands."""
    if not seen.kind.runs:
        return ()
    from fleetctl.views.services import service_lines

    return service_lines(state_dir, seen, reading.live_attempts(seen))


def lines(
    seen: View,
    reading: Reading,
    now_s: float,
    *,
    building: bool = False,
    services: Sequence[str] = (),
) -> Iterator[str]:
    """The whole screen. Every text that came from users is made safe here.

    building: whether an image is being built for a run that has not begun. services: those beside
    its work, each with how it stands.
    """
    yield from _head(seen, now_s, building=building)
    if seen.kind.runs:
        yield from _work(seen, reading, now_s)
        if services:
            yield _label("Services", safe("; ".join(services)))
        yield from _failures(seen, reading)
        yield from _spec(seen)
    else:
        from fleetctl.cli.show.description.asset_lines import asset_lines

        yield from (_label(name, safe(text)) for name, text in asset_lines(seen, reading, now_s))
    yield from _conditions(seen, now_s)
    if exempt := exempt_line(seen, now_s):
        yield _label("Exempt", safe(exempt))
    if notices := reading.notices(seen):
        from fleetctl.views.lines.notices import notice_line

        yield _label("Notices", safe(notice_line(notices, now_s)))
    yield from _events(seen, reading, now_s)


def _label(name: str, value: str) -> str:
    """A line; without a name it goes on with the one above."""
    return f"{name + ': ' if name else '':<{LABEL_CELLS}}{value}"


def _head(seen: View, now_s: float, *, building: bool) -> Iterator[str]:
    resource = seen.resource
    yield _label("Name", safe(seen.key))
    stale = "" if seen.current else f" (generation {resource.generation} not yet looked at)"
    # A Budget has a word of its own, as in the column of `get`.
    yield _label("Status", safe(seen.text("state") or seen.phase) + stale)
    because, help_ = why(seen), fix(seen)
    if building and not because:
        because, help_ = "the image is being built", f"fleetctl logs --build {seen.key} -f"
    if because:
        yield _label("Why", safe(because))
    for also in _also(seen, because):
        yield _label("Also" if because else "Waiting", safe(also))
    if help_:
        yield _label("Fix", safe(help_))
    if (note := kept_by(resource.annotations)) is not None:
        yield _label("Kept by", safe(f"{note.source}: {note.file} at {short(note.revision)}"))
    yield _label(
        "Created", f"{timestamp(resource.created_at_s)} ({age(now_s - resource.created_at_s)} ago)"
    )
    if resource.labels:
        yield _label("Labels", safe(" ".join(f"{k}={v}" for k, v in resource.labels.items())))


def _also(seen: View, because: str) -> list[str]:
    """What else is waited for, without what the first sentence says already."""
    message = seen.text("message")
    lines = [it for it in seen.waiting_on if it not in because and not (message and message in it)]
    return lines[:ALSO_SHOWN_MAX]


def _work(seen: View, reading: Reading, now_s: float) -> Iterator[str]:
    unit = seen.kind.unit
    counts = [f"{seen.count('succeeded')} succeeded", f"{seen.active} active"]
    if seen.starting:
        counts.append(f"{seen.starting} starting")
    counts.append(f"{seen.count('failed')} failed")
    if seen.count("stopped"):
        counts.append(f"{seen.count('stopped')} stopped early")
    if seen.count("refused"):
        counts.append(f"{seen.count('refused')} refused")
    total = seen.status.get("total")
    of = f"{total} = " if isinstance(total, int) else ""
    yield _label(f"{unit.capitalize()}s", of + " + ".join(counts) + _queued(seen, total))
    if place := place_line(seen, reading):
        yield _label("Queue", place)
    for number, line in enumerate(dependency_lines(seen)):
        yield " " * LABEL_CELLS + line if number else _label("Depends on", line)
    if old := seen.count("outdated"):
        yield _label("Outdated", _outdated(seen, old))
    if cached := _cached(seen):
        yield _label("Cache", safe(cached))
    if attempts := attempts_line(seen):
        yield _label("Attempts", attempts)
    if where := where_line(seen):
        yield _label("Where", where)
    if cost := cost_line(seen, reading.live_prices(seen, now_s)):
        yield _label("Cost", cost)
    if timing := timing_line(seen, reading, now_s):
        yield _label("Timing", timing)
    if best := best_line(seen):
        yield _label("Best", best.removeprefix("best "))
    for number, line in enumerate(front_lines(seen)):
        front = line.removeprefix("front: ").lstrip()
        yield " " * LABEL_CELLS + front if number else _label("Front", front)
    for label, found in search_lines(seen, reading):
        for number, line in enumerate(found):
            yield " " * LABEL_CELLS + line if number else _label(label, line)
    if taken := seen.map("paramsFrom"):
        yield _label("Params", _taken(taken))
    if prior := seen.map("priorTrials"):
        yield _label("Prior", _warmed(prior))
    if wandb := seen.map("wandb"):
        yield _label("W&B", safe(_at_wandb(wandb)))
        yield from _best_at_wandb(seen, reading)
    if stage := seen.text("stage"):
        yield _label("Stage", safe(stage))
    if nodes := seen.status.get("nodes"):
        yield _label("Nodes", nodes_line(nodes))
    if usage := seen.map("usage"):
        yield _label("GPUs", usage_line(usage))
    if checkpoint := seen.map("checkpoint"):
        yield _label("Checkpoint", _saved(checkpoint, now_s))
    elif path := mapping(seen.spec().get("checkpoint")).get("path"):
        yield _label("Checkpoint", f"none complete was seen in {safe(str(path))}")
    if isolation := seen.text("isolation"):
        yield _label("Isolation", safe(isolation))
    if spent := took(seen):
        yield _label("Took", spent.removeprefix(" in "))
    if seen.count("succeeded"):
        yield _label("Results", f"fleetctl results {safe(seen.key)}")


def _taken(taken: Mapping[str, object]) -> str:
    """What the best trial of another object gives."""
    params, sweep = taken.get("params"), f"sweep/{taken.get('sweep')}"
    if params is None:
        return safe(f"those of the best trial of {sweep}, once it is over")
    return safe(f"{assignments(mapping(params))} (the best trial of {sweep})")


def _saved(newest: Mapping[str, object], now_s: float) -> str:
    """`step 1200, 3m ago, 14.2 GiB, every ~9m`."""
    at_s, size, every_s = (newest.get(key) for key in ("at", "bytes", "everySeconds"))
    parts = [f"step {newest.get('step')}"]
    if isinstance(at_s, (int, float)):
        parts.append(f"{age(now_s - at_s)} ago")
    if isinstance(size, int):
        parts.append(byte_size(size))
    if isinstance(every_s, (int, float)):
        parts.append(f"every ~{age(every_s)}")
    return safe(", ".join(parts))


def _warmed(prior: Mapping[str, object]) -> str:
    """The trials of another sweep, from which the search begins."""
    sweep, used = f"sweep/{prior.get('fromSweep')}", prior.get("used")
    if used is None:
        return safe(f"the trials of {sweep}, once it is over")
    return safe(f"{used:,} of {prior.get('ended'):,} trials of {sweep}")


def _at_wandb(wandb: Mapping[str, object]) -> str:
    """Where the sweep is, how it stands there, and how many runs all agents have of it."""
    runs, of = wandb.get("runCount"), wandb.get("runCountExpected")
    counted = f"{runs} of {of} runs" if of is not None else f"{runs} runs"
    parts = [wandb.get("url"), str(wandb.get("state") or "").lower(), runs is not None and counted]
    best = wandb.get("bestLoss")
    parts.append(isinstance(best, int | float) and f"best {best:g}")
    return ", ".join(str(it) for it in parts if it) or "not known yet"


def _best_at_wandb(seen: View, reading: Reading) -> Iterator[str]:
    """The page of the best trial's run."""
    index = seen.map("best").get("index")
    tried = list(reading.attempts(seen, index=index)) if isinstance(index, int) else []
    url = wandb_run(tried[-1], seen).get("url") if tried else None
    if url:
        yield " " * LABEL_CELLS + safe(f"best {seen.kind.unit} {index}: {url}")


def _outdated(seen: View, old: int) -> str:
    unit = plural(old, f"finished {seen.kind.unit}")
    winner = "best trial, " if seen.map("paramsFrom") else ""
    what = f"{unit} of another {winner}program, image or source"
    kept = seen.over and not seen.count("active")
    return f"{what}; {'kept as asked' if kept else 'run again'}"


def _cached(seen: View) -> str:
    """How many results came from equal work, or why none may."""
    if seen.count("cached"):
        return f"{plural(seen.count('cached'), seen.kind.unit)} with the result of equal work"
    why_not = seen.text("notCached")
    return f"not used: {why_not}" if why_not else ""


def _queued(seen: View, total: object) -> str:
    if not isinstance(total, int) or seen.over:
        return ""
    left = total - seen.settled - seen.count("refused") - seen.count("active")
    return f" + {left} queued" if left > 0 else ""


def _spec(seen: View) -> Iterator[str]:
    from fleetctl.cli.show.description.spec_lines import spec_lines

    if spec := seen.spec():
        yield f"Spec (whole: fleetctl get {safe(seen.key)} -o yaml):"
        yield from (f"  {line}" for line in spec_lines(spec))


def _failures(seen: View, reading: Reading) -> Iterator[str]:
    """The failed tasks, and the end of the newest traceback: usually all that one needs."""
    last = _last_failure(seen, reading)
    if seen.count("failed"):
        yield from _failed(seen, reading)
    if last is not None:
        yield from _traceback(last, seen)


def _failed(seen: View, reading: Reading) -> Iterator[str]:
    unit = seen.kind.unit
    units = unit if seen.count("failed") == 1 else f"{unit}s"
    failed = list(islice(reading.failed_tasks(seen), FAILED_SHOWN_MAX))
    names = ", ".join(_name(it, seen) for it in failed) if seen.kind.named else ""
    yield _label("Failed", f"{units} {names or safe(seen.text('failedIndexes')) or '?'}")
    for task in failed:
        yield f"  {failed_line(task, seen)}"


def _last_failure(seen: View, reading: Reading) -> Task | None:
    """The newest attempt that failed, also of a task that will be tried again."""
    index, attempt = (seen.map("lastFailure").get(key) for key in ("index", "attempt"))
    if not isinstance(index, int):
        index = next(in_order(seen.text("failedIndexes")), None)
    if index is None:
        return None
    found = list(reading.attempts(seen, index=index))
    named = [task for task in found if task.run.attempt == attempt]
    return next(reversed(named or found), None)


def _traceback(task: Task, seen: View) -> Iterator[str]:
    name = _name(task, seen)
    if task.run.message.strip():
        yield f"Last failure, {seen.kind.unit} {name} attempt {task.run.attempt}:"
        shown = safe_lines(task.run.message)
        if len(shown) > TRACEBACK_LINES_MAX:
            yield "  ..."
        for line in shown[-TRACEBACK_LINES_MAX:]:
            yield f"  {line}"
    flag = "--stage" if seen.kind.named else "--index"
    yield _label("Logs", f"fleetctl logs {safe(seen.key)} {flag} {name}")
    if url := wandb_run(task, seen).get("url"):
        yield _label("W&B run", safe(url))


def _name(task: Task, seen: View) -> str:
    """Of a stage its name, of anything else its index."""
    whole = unit_called(seen.kind.name, task.run.index, task.run.params)
    return safe(whole.removeprefix(f"{seen.kind.unit} "))


def _conditions(seen: View, now_s: float) -> Iterator[str]:
    shown = [_condition(condition, now_s) for condition in seen.conditions]
    if shown:
        yield _label("Conditions", "  ".join(shown))


def _condition(condition: Mapping[str, object], now_s: float) -> str:
    text = f"{condition.get('type')}={condition.get('status')}"
    since = condition.get("lastTransitionTime")
    if isinstance(since, (int, float)):
        text += f" {age(now_s - since)}"
    # What the others say stands in the first lines already.
    message = condition.get("type") == SPILLED_OVER and condition.get("message")
    return safe(f"{text} ({message})" if message else text)


def _events(seen: View, reading: Reading, now_s: float) -> Iterator[str]:
    found = reading.events(seen)
    if not found:
        return
    yield "Events:"
    if len(found) > EVENTS_SHOWN_MAX:
        yield f"  {len(found) - EVENTS_SHOWN_MAX} older: fleetctl events {safe(seen.key)}"
    shown = [event.line for event in found[-EVENTS_SHOWN_MAX:]]
    reason_cells = max(len(safe(row.reason)) for row in shown)
    for row in shown:
        times = f" (x{row.count})" if row.count > 1 else ""
        ago, reason = age(now_s - row.at_s), safe(row.reason)
        yield f"  {ago:<5}  {reason:<{reason_cells}}  {safe(row.message)}{times}"
