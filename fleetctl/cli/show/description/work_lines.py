"""The `describe` of an object that runs work: the lines that its kind's row names, in their order.

Each is made by a function here, which gets the object, a reading of the store and the time now, and
yields no line where the object has no such figure. Every text from users is made safe here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

from fleetctl.cli.output.artifacts import output_line
from fleetctl.cli.show.description import figures
from fleetctl.cli.show.description.depends_lines import dependency_lines
from fleetctl.cli.show.search_lines import (
    describe_importance,
    describe_rungs,
    list_reported,
    list_stopped,
)
from fleetctl.cli.show.summary import best_line, format_work_time, front_lines
from fleetctl.common.text import byte_size, count_noun, escape_line, format_age, format_assignments
from fleetctl.specs.kinds.shown import default_fields
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.sections.queues import format_queue_position
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import wandb_run

Lines = Iterator[str]


def work_lines(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> Iterator[tuple[str, list[str]]]:
    """Yields (title, lines) of each field in the row of the object's kind."""
    for field in seen.kind.fields or default_fields(seen.kind.unit):
        make: Callable[[View, StoreReading, float], Lines] = getattr(
            sys.modules[__name__], field.path
        )
        yield field.title, [line for line in make(seen, reading, now_s) if line]


def units_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    """Yields `10 = 4 succeeded + 2 active + 0 failed + 4 queued`."""
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
    yield of + " + ".join(counts) + _describe_queued(seen, total)


def queue_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    yield format_queue_position(seen, reading)


def depends_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield from dependency_lines(seen)


def outdated_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    old = seen.count("outdated")
    if not old:
        return
    unit = count_noun(old, f"finished {seen.kind.unit}")
    winner = "best trial, " if seen.map("paramsFrom") else ""
    what = f"{unit} of another {winner}program, image or source"
    kept = seen.over and not seen.count("active")
    yield f"{what}; {'kept as asked' if kept else 'run again'}"


def cache_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    """Yields how many results came from equal work, or why the cache is not used."""
    if seen.count("cached"):
        yield f"{count_noun(seen.count('cached'), seen.kind.unit)} with the result of equal work"
    elif why_not := seen.text("notCached"):
        yield escape_line(f"not used: {why_not}")


def attempts_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield figures.attempts_line(seen)


def where_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield figures.where_line(seen)


def cost_lines(seen: View, reading: StoreReading, now_s: float) -> Lines:
    yield figures.cost_line(seen, reading.live_prices(seen, now_s))


def timing_lines(seen: View, reading: StoreReading, now_s: float) -> Lines:
    yield figures.timing_line(seen, reading, now_s)


def best_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield best_line(seen).removeprefix("best ")


def front_trials_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    for line in front_lines(seen):
        yield line.removeprefix("front: ").lstrip()


def reported_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    yield from list_reported(seen, reading)


def rungs_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield from describe_rungs(seen)


def stopped_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    yield from list_stopped(seen, reading)


def importance_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    yield from describe_importance(seen, reading)


def params_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    """Yields the parameters from another object's best trial."""
    taken = seen.map("paramsFrom")
    sweep = f"sweep/{taken.get('sweep')}"
    if taken.get("params") is not None:
        params = format_assignments(as_mapping(taken.get("params")))
        yield escape_line(f"{params} (the best trial of {sweep})")
    elif taken:
        yield escape_line(f"those of the best trial of {sweep}, once it has ended")


def prior_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    """Yields the trials of another sweep, from which the search begins."""
    prior = seen.map("priorTrials")
    sweep = f"sweep/{prior.get('fromSweep')}"
    if (used := prior.get("used")) is not None:
        yield escape_line(f"{used:,} of {prior.get('ended'):,} trials of {sweep}")
    elif prior:
        yield escape_line(f"the trials of {sweep}, once it has ended")


def wandb_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    """Yields the sweep's page at W&B, and the page of the best trial's run."""
    if wandb := seen.map("wandb"):
        yield escape_line(_describe_wandb_sweep(wandb))
        yield from _link_best_wandb_run(seen, reading)


def stage_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield escape_line(seen.text("stage"))


def nodes_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    if nodes := seen.status.get("nodes"):
        yield figures.nodes_line(nodes)


def gpus_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    if usage := seen.map("usage"):
        yield figures.usage_line(usage)


def checkpoint_lines(seen: View, _reading: StoreReading, now_s: float) -> Lines:
    if checkpoint := seen.map("checkpoint"):
        yield _describe_checkpoint(checkpoint, now_s)
        yield _checkpoint_location(seen, checkpoint)
    elif path := as_mapping(seen.spec().get("checkpoint")).get("path"):
        yield f"no complete one found in {escape_line(str(path))}"


def isolation_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield escape_line(seen.text("isolation"))


def took_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield format_work_time(seen).removeprefix(" in ")


def results_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    if seen.count("succeeded"):
        yield f"fleetctl results {escape_line(seen.key)}"


def outputs_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    yield output_line(seen, reading)


def _describe_queued(seen: View, total: object) -> str:
    if not isinstance(total, int) or seen.over:
        return ""
    left = total - seen.settled - seen.count("refused") - seen.count("active")
    if left > 0:
        return f" + {left} queued"
    return ""


def _describe_wandb_sweep(wandb: Mapping[str, object]) -> str:
    """Returns the sweep's page at W&B, its state there, the number of runs and the best value."""
    runs = wandb.get("runCount")
    of = wandb.get("runCountExpected")
    counted = f"{runs} of {of} runs" if of is not None else f"{runs} runs"
    parts = [wandb.get("url"), str(wandb.get("state") or "").lower(), runs is not None and counted]
    best = wandb.get("bestLoss")
    parts.append(isinstance(best, int | float) and f"best {best:g}")
    return ", ".join(str(it) for it in parts if it) or "not known yet"


def _link_best_wandb_run(seen: View, reading: StoreReading) -> Iterator[str]:
    """Yields a line with the W&B page of the best trial's run, where that is known."""
    index = seen.map("best").get("index")
    tried = list(reading.attempts(seen, index=index)) if isinstance(index, int) else []
    url = wandb_run(tried[-1], seen).get("url") if tried else None
    if url:
        yield escape_line(f"best {seen.kind.unit} {index}: {url}")


def _describe_checkpoint(newest: Mapping[str, object], now_s: float) -> str:
    """Returns `step 1200, 3m ago, 14.2 GiB, every ~9m`."""
    at_s, size, every_s = (newest.get(key) for key in ("at", "bytes", "everySeconds"))
    parts = [f"step {newest.get('step')}"]
    if isinstance(at_s, (int, float)):
        parts.append(f"{format_age(now_s - at_s)} ago")
    if isinstance(size, int):
        parts.append(byte_size(size))
    if isinstance(every_s, (int, float)):
        parts.append(f"every ~{format_age(every_s)}")
    return escape_line(", ".join(parts))


def _checkpoint_location(seen: View, newest: Mapping[str, object]) -> str:
    """Returns `at /ckpt/step-1200; each is copied to s3://bucket/run`; events name the checkpoints
    that are not copied."""
    mirror = as_mapping(seen.spec().get("checkpoint")).get("mirror")
    path = str(newest.get("path"))
    copied = (
        f"; copied to {mirror}/{path.rpartition('/')[2]}, unless an event reports otherwise"
        if mirror
        else ""
    )
    return escape_line(f"at {path}{copied}")
