"""The `describe` of an object that runs work: its dependencies, providers, cost and time, and the
state of its search, in the order of its kind's row.

Each field is made by a function here, which gets the object, a reading of the store and the time
now, and yields no line where the object has no such figure. Every text from users is made safe
here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from fleetctl.cli.output.artifacts import output_line
from fleetctl.cli.show.summary import best_line, format_work_time, front_lines
from fleetctl.common.text import (
    and_more,
    byte_size,
    count_noun,
    did_you_mean,
    escape_line,
    format_age,
    format_assignments,
    format_duration,
    format_money,
    format_scalar,
)
from fleetctl.controllers.status_keys import EARLY_TERMINATED
from fleetctl.specs.kinds.shown import default_fields
from fleetctl.views.objects import SUCCEEDED, View, as_mapping
from fleetctl.views.sections.queues import format_queue_position
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import wandb_run

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import LiveRunPrices


Lines = Iterator[str]

SHOWN_MAX = 10
_WORDS = {
    "Succeeded": "must succeed",
    "Complete": "must succeed",
    "Failed": "must fail",
    "Finished": "must end",
}

# With fewer tasks the median is no guide to the rest.
SAMPLES_MIN = 3
QUEUED_S_MIN = 1.0  # a shorter wait is normal

STOPPED_SHOWN_MAX = 5
PARAMETERS_SHOWN_MAX = 5
LOADS_MAX = 16  # live runs whose samples are summed
NAMES_SHOWN_MAX = 8
MACHINES_SHOWN_MAX = 4
MACHINES_READ_MAX = 100  # tasks, which may all be of this machine, so that the screen is quick
# All results are read for it, 500 in some 50 ms of CPU; for more trials `plot` shows it.
IMPORTANCE_TRIALS_MAX = 500


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


def stage_counts_lines(seen: View, reading: StoreReading, now_s: float) -> Lines:
    """Yields the counts of stages; those of groups stand beside their names."""
    if not seen.spec().get("groups"):
        yield from units_lines(seen, reading, now_s)


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
    yield attempts_line(seen)


def where_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    yield where_line(seen)


def machines_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    """Yields `task 3 attempt 2: Slurm job 42` for the first attempts that hold a machine; where
    none does, for the newest attempts of the first tasks.
    """
    live = reading.live_attempts(seen)
    newest = islice(reading.tasks(seen), MACHINES_READ_MAX) if not live else ()
    shown = 0
    for run in chain(live, (it.run for it in newest)):
        machine = reading.machine_of(run)
        if not machine.name:
            continue
        if shown == MACHINES_SHOWN_MAX:
            yield f"others: fleetctl get attempts {escape_line(seen.key)} -o wide"
            return
        shown += 1
        unit = seen.name_unit(run)
        yield escape_line(f"{unit} attempt {run.attempt}: {machine.word} {machine.name}")


def cost_lines(seen: View, reading: StoreReading, now_s: float) -> Lines:
    yield cost_line(seen, reading.live_prices(seen, now_s))


def timing_lines(seen: View, reading: StoreReading, now_s: float) -> Lines:
    yield timing_line(seen, reading, now_s)


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


def groups_lines(seen: View, reading: StoreReading, now_s: float) -> Lines:
    groups = seen.status.get("groups")
    if groups:
        yield from units_lines(seen, reading, now_s)
    for group in map(as_mapping, groups if isinstance(groups, list) else ()):
        nodes = count_noun(int(str(group.get("nodes"))), "node")
        yield escape_line(f"{group.get('name')}: {nodes}, {group.get('state')}")


def nodes_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    if nodes := seen.status.get("nodes"):
        yield nodes_line(nodes)


def gpus_lines(seen: View, _reading: StoreReading, _now_s: float) -> Lines:
    if usage := seen.map("usage"):
        yield usage_line(usage)


def load_lines(seen: View, reading: StoreReading, _now_s: float) -> Lines:
    """Yields `187 % of a core, 3.1 GiB, by 2 runs`, by the newest samples of live runs."""
    percent = mib = 0.0
    sampled = 0
    for run in reading.live_attempts(seen)[:LOADS_MAX]:
        newest = {row.name: row.value or 0.0 for row in reading.samples(run.name)}
        if "system/cpu.percent" in newest:
            percent += newest["system/cpu.percent"]
            mib += newest.get("system/memory_mib", 0.0)
            sampled += 1
    if sampled:
        memory = f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"
        yield f"{percent:.0f} % of a core, {memory}, by {count_noun(sampled, 'run')}"


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


def dependency_lines(seen: View) -> Iterator[str]:
    """Yields `batchjob/prep must succeed: Waiting`."""
    found = seen.status.get("dependencies")
    listed = [as_mapping(it) for it in found] if isinstance(found, list) else []
    for it in listed[:SHOWN_MAX]:
        condition = str(it.get("condition"))
        yield escape_line(f"{it.get('on')} {_WORDS.get(condition, condition)}: {it.get('state')}")
    if len(listed) > SHOWN_MAX:
        yield f"and {len(listed) - SHOWN_MAX} more"


def cost_line(seen: View, live: LiveRunPrices) -> str:
    """Returns `$4.02 so far, $6.10 estimated, $25.00 cap, $20.98 left, burn $5.10/h`; runs without
    a known price are listed apart.
    """
    cost = seen.map("cost")
    budget = seen.map("budget")
    ended = _as_number(cost.get("actual"))
    unpriced = _as_whole(cost.get("unpricedRuns")) + live.unpriced
    parts = []
    if ended + live.usd:
        parts.append(
            f"{format_money(ended + live.usd)} "
            f"{'so far' if live.runs or not seen.over else 'spent'}"
        )
    if calls := _as_number(cost.get("calls")):
        parts.append(f"{format_money(calls)} of it for model calls")
    if estimate := _format_estimate(cost):
        parts.append(f"{estimate} estimated")
    if most := _as_number(budget.get("maxCost")):
        parts.append(
            f"{format_money(most)} cap, {format_money(_as_number(budget.get('left')))} left"
        )
    if live.usd_per_h:
        parts.append(f"burn {format_money(live.usd_per_h)}/h")
    if reserved := _as_number(cost.get("reserved")):
        parts.append(f"{format_money(reserved)} set aside for what runs")
    line = [", ".join(parts)] if parts else []
    if unpriced:
        line.append(f"{count_noun(unpriced, 'run')} without a known price")
    return " and ".join(line)


def _format_estimate(cost: Mapping[str, object]) -> str:
    expected = cost.get("estimated")
    high = cost.get("estimatedHigh")
    if isinstance(expected, (int, float)):
        return format_money(expected)
    if isinstance(high, (int, float)):
        return f"at most {format_money(high)}"
    return ""


def attempts_line(seen: View) -> str:
    """Returns `66: 4 failed, 3 ended by the infrastructure, not counted`; empty where all went
    well."""
    places = seen.status.get("placement")
    totals = (
        [_as_whole(as_mapping(it).get("total")) for it in places]
        if isinstance(places, list)
        else []
    )
    infra = seen.count("infraFailures")
    lasting = seen.count("failed")
    failed = seen.count("retries") + lasting - infra  # as History.retries is reckoned
    parts = [f"{failed} failed"] if failed > 0 else []
    if infra:
        parts.append(f"{infra} ended by the infrastructure, not counted")
    if not parts:
        return ""
    if sum(totals):
        return f"{sum(totals)}: {', '.join(parts)}"
    return ", ".join(parts)


def where_line(seen: View) -> str:
    """Returns `modal 36 active of 120, local 8 active`: in the order of the placement. Before
    anything runs the places where it may.
    """
    live = seen.map("where")
    parts = list[str]()
    named = list[str]()
    word = "starting" if seen.starting and not seen.active else "active"
    places = seen.status.get("placement")
    for place in places if isinstance(places, list) else ():
        name = str(as_mapping(place).get("provider"))
        total = _as_whole(as_mapping(place).get("total"))
        active = _as_whole(live.get(name))
        named.append(name)
        if total > active:
            parts.append(f"{name} {active} {word} of {count_noun(total, 'run')}")
        elif active:
            parts.append(f"{name} {active} {word}")
    parts += [f"{name} {count} {word}" for name, count in live.items() if name not in named]
    return escape_line(", ".join(parts or named))


def timing_line(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> str:
    """Returns `queued 2s, first result 1m04s, p50 task 3m12s, ETA 9m`."""
    begun = seen.status.get("startTime")
    first = seen.status.get("firstResultTime")
    parts = []
    if isinstance(begun, (int, float)):
        queued_s = begun - seen.resource.created_at_s
        if queued_s >= QUEUED_S_MIN:
            parts.append(f"queued {format_duration(queued_s)}")
        if isinstance(first, (int, float)):
            parts.append(f"first result {format_duration(first - begun)}")
        elif not seen.over:
            parts.append(f"begun {format_age(now_s - begun)} ago")
    took = sorted(reading.durations(seen)) if seen.count("succeeded") else []
    if len(took) >= SAMPLES_MIN:
        parts.append(f"p50 {seen.kind.unit} {format_duration(pick_median(took))}")
        if left := eta_s(seen, took):
            parts.append(f"ETA {format_duration(left)}")
    return ", ".join(parts)


def pick_median(ascending: Sequence[float]) -> float:
    return ascending[(len(ascending) - 1) // 2]


def eta_s(seen: View, took: Sequence[float]) -> float | None:
    """Returns the seconds left, at the mean duration of tasks and the present parallelism. None
    without running tasks, or with an unknown number of tasks.
    """
    total = seen.status.get("total")
    active = seen.count("active")
    if seen.over or not isinstance(total, int) or not active:
        return None
    left = total - seen.settled
    # A running task is half done, on average.
    return max(0.0, left - active / 2) * sum(took) / len(took) / active


def _as_number(value: object) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    return 0.0


def _as_whole(value: object) -> int:
    if isinstance(value, int):
        return value
    return 0


def usage_line(usage: Mapping[str, object]) -> str:
    """Returns `8, 93 % busy, 488.1 of 640.0 GiB, 2.1 steps/s`, by the newest samples."""
    used, whole, speed = (
        it if isinstance(it := usage.get(key), (int, float)) else None
        for key in ("memoryMib", "memoryTotalMib", "stepsPerSecond")
    )
    parts = [str(usage.get("gpus")), f"{usage.get('gpuPercent')} % busy"]
    if used is not None and whole is not None:
        parts.append(f"{used / 1024:.1f} of {whole / 1024:.1f} GiB")
    if speed is not None:
        parts.append(f"{speed:.3g} steps/s")
    return escape_line(", ".join(parts))


def nodes_line(nodes: object) -> str:
    """Returns `3: 2 Stopped, 1 Failed; node 1: Signal:KILL`, of the newest attempt."""
    parts = [as_mapping(it) for it in nodes] if isinstance(nodes, list) else []
    states = Counter(str(it.get("state")) for it in parts)
    failed = (
        f"node {rank}: {it['reason']}"
        for rank, it in enumerate(parts)
        if it.get("state") in ("Failed", "Lost") and it.get("reason")
    )
    first = next(failed, "")
    message = ", ".join(f"{count} {state}" for state, count in states.items())
    return escape_line(f"{len(parts)}: {message}" + (f"; {first}" if first else ""))


def list_reported(seen: View, reading: StoreReading) -> list[str]:
    """Returns the metrics of the first trial that succeeded, where no trial has reported the
    search's metric: a name with another spelling is found here.
    """
    wanted = seen.map("metric").get("name")
    if not isinstance(wanted, str) or seen.map("best") or not seen.count("succeeded"):
        return []
    succeeded = (one.run for one in reading.tasks(seen) if one.state == SUCCEEDED)
    run = next(succeeded, None)
    names = reading.metric_names(run.name) if run is not None else []
    if run is None or wanted in names:
        return []
    told = and_more(names, most=NAMES_SHOWN_MAX) or "nothing"
    near = did_you_mean(wanted, names)
    return [escape_line(f"{told} ({seen.kind.unit} {run.index})" + (f"; {near}" if near else ""))]


def describe_rungs(seen: View) -> list[str]:
    """Returns `iteration 9: 12 trials, loss up to 2.4 goes on`, a line for each look of the
    search."""
    metric = seen.map("metric")
    side = "from" if metric.get("goal") == "maximize" else "up to"
    rungs = seen.status.get("rungs")
    return [
        escape_line(
            f"iteration {format_scalar(rung.get('iteration'))}: {_count_trials(rung)}, "
            f"{metric.get('name')} {side} {_format_short(rung.get('threshold'))} goes on"
        )
        for rung in map(as_mapping, rungs if isinstance(rungs, list) else [])
    ]


def _count_trials(rung: Mapping[str, object]) -> str:
    trials = rung.get("trials")
    return count_noun(trials if isinstance(trials, int) else 0, "trial")


def _format_short(value: object) -> str:
    if isinstance(value, (int, float)):
        return f"{value:.6g}"
    return format_scalar(value)


def list_stopped(seen: View, reading: StoreReading) -> list[str]:
    """Returns `trial 4: value 3.1 at iteration 9 is above 2.4`, of the first ones."""
    count = seen.count("stopped")
    if not count:
        return []
    early = (one.run for one in reading.tasks(seen) if one.run.reason == EARLY_TERMINATED)
    lines = [
        escape_line(f"{seen.kind.unit} {run.index}: {run.message}")
        for run in islice(early, STOPPED_SHOWN_MAX)
    ]
    if count > len(lines):
        lines.append(f"and {count - len(lines):,} more: fleetctl results {escape_line(seen.key)}")
    return lines


def describe_importance(seen: View, reading: StoreReading) -> list[str]:
    """Returns `lr 87% (higher is better), depth 0% (within chance)`, a line for each metric."""
    ended = seen.count("succeeded") + seen.count("stopped")
    if not seen.kind.searches or not 0 < ended <= IMPORTANCE_TRIALS_MAX:
        return []
    from fleetctl.views.plotting.gather import build_studies
    from fleetctl.views.plotting.trials import TRIALS_MIN, compute_importances

    if ended < TRIALS_MIN:
        return []
    lines = []
    for study in build_studies(seen, reading):
        shares = [
            f"{one.name} {one.share:.0%}" + (f" ({one.remark})" if one.remark else "")
            for one in compute_importances(study)
            if one.share is not None
        ]
        if shares and study.metric:
            listed = and_more(shares, most=PARAMETERS_SHOWN_MAX)
            lines.append(f"of {study.metric}: {listed}" if seen.status.get("metrics") else listed)
    return lines
