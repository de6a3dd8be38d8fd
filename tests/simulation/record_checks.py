"""What must hold after every commit: safety invariants over the runs' records and what really
happened.

Each has the invariant as its docstring and yields what broke it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fleetctl.controllers.model import CACHED, LIVE_STATES, Run, RunState
from tests.simulation.observing import journal_bytes, result_of
from tests.simulation.scene import Scene
from tests.simulation.snapshot import spec
from tests.simulation.world import Work

# Reasons for a stop that say that nobody wants the outcome any more.
FENCED = ("Superseded", "NoLongerWanted", "Deleted", "EarlyTerminated")


def succeeds_once(scene: Scene) -> Iterator[str]:
    """I2: a unit succeeds at most once under the same parameters and content, unless it was asked
    for again, or another content was desired in between.
    """
    for (uid, index), runs in scene.now.units():
        kept = _since_asked(runs)
        for params, attempts in groupby(kept, key=lambda run: (run.params_hash, run.content)):
            times = sum(run.state is RunState.SUCCEEDED for run in attempts)
            if times > 1:
                yield f"index {index} of {uid} has succeeded {times} times as {params}"


def truthful_outcomes(scene: Scene) -> Iterator[str]:
    """I3, I12: a recorded outcome is what really happened, and no ended run still works."""
    for run in scene.changed():
        if run.state in LIVE_STATES:
            continue
        work = scene.work_of(run)
        if scene.world.may_begin(run.name):
            yield f"`{run.name}` is {run.state} and its start is still on its way"
        if work is None:
            if run.state in (RunState.SUCCEEDED, RunState.FAILED) and run.reason != CACHED:
                yield f"`{run.name}` is {run.state} and has never begun"
        else:
            yield from _compare(run, work, scene.now.results.get(run.name))


def nothing_is_forgotten(scene: Scene) -> Iterator[str]:
    """What a deleted object's runs were charged stays, as long as retention lasts."""
    for name in scene.before.kept.keys() - scene.now.runs.keys():
        if name not in scene.now.kept:
            yield f"`{name}` is forgotten"
        elif name not in scene.before.runs and scene.now.kept[name] != scene.before.kept[name]:
            yield f"the charge of `{name}` changed after its object was gone"


def closed_is_closed(scene: Scene) -> Iterator[str]:
    """I12: a sandbox that no record holds open or live any more is gone."""
    for run in scene.changed():
        box = scene.world.by_sandbox.get(run.sandbox)
        if box is None or not box.alive:
            continue
        mates = (it for it in scene.now.runs_of(run.uid) if it.sandbox == run.sandbox)
        if not any(it.sandbox_open or it.state in LIVE_STATES for it in mates):
            yield f"sandbox `{run.sandbox}` is alive, and `{run.name}` says {run.state}, closed"


def results_match(scene: Scene) -> Iterator[str]:
    """I2: the journal of an ended run is read to its end, not a byte more or less."""
    for run in scene.changed():
        work = scene.work_of(run)
        if work is None or run.state not in (RunState.SUCCEEDED, RunState.FAILED):
            continue
        length = journal_bytes(work, at_s=scene.world.now_s)
        if run.journal_offset != length:
            yield f"`{run.name}` is {run.state} with {run.journal_offset} of {length} journal bytes"


def attempts_in_bounds(scene: Scene) -> Iterator[str]:
    """I3: application and infrastructure failures stay within their limits, and a reply of "not
    now" costs neither.
    """
    for (uid, index), runs in scene.now.units():
        resource = scene.now.resources.get(uid)
        if resource is None or "checkpoint" in spec(resource):
            continue  # those count since their last checkpoint: savings.counts_from_progress
        desired = spec(resource)
        app_limit = desired.get("backoffLimitPerIndex", desired.get("maxRestarts", 0))
        runs = _since_asked(runs)
        same = [run for run in runs if run.template_hash == runs[-1].template_hash]
        failed = sum(run.state is RunState.FAILED for run in same)
        lost = sum(run.state is RunState.LOST for run in same)
        if failed > app_limit + 1 and len(same) == len(runs):
            yield f"index {index} of {uid} failed {failed} times; the limit is {app_limit}"
        if lost > desired.get("maxInfraRetries", 5) + 1:
            yield f"index {index} of {uid} was lost {lost} times"


def backs_off(scene: Scene) -> Iterator[str]:
    """I16: after an application failure the next attempt waits at least half its backoff."""
    for (uid, _), runs in scene.now.units():
        newest = runs[-1]
        if newest.name in scene.before.runs or len(runs) == 1 or uid not in scene.now.resources:
            continue
        last = runs[-2]
        if (
            last.put_aside
            or last.state is not RunState.FAILED
            or last.template_hash != newest.template_hash
        ):
            continue
        backoff = spec(scene.now.resources[uid]).get("retry", {}).get("backoff", {})
        least_s = float(backoff.get("initial", 1.0)) / 2
        assert last.ended_at_s is not None
        if newest.created_at_s < last.ended_at_s + least_s - 0.001:
            waited_s = newest.created_at_s - last.ended_at_s
            yield f"`{newest.name}` came {waited_s:.2f} s after a failure; least is {least_s:.2f} s"


def only_the_newest_lives(scene: Scene) -> Iterator[str]:
    """I8: attempts of a unit are numbered 1, 2, 3...; only the newest may be live."""
    for (uid, index), runs in scene.now.units():
        if [run.attempt for run in runs] != list(range(1, len(runs) + 1)):
            yield f"index {index} of {uid} has the attempts {[run.attempt for run in runs]}"
        for run in runs[:-1]:
            if run.state in LIVE_STATES:
                yield f"`{run.name}` is {run.state} although a newer attempt exists"


def the_stopped_never_count(scene: Scene) -> Iterator[str]:
    """I8: an attempt that was stopped because its spec had changed is no success, however it
    ended.
    """
    for name, run in scene.before.runs.items():
        after = scene.now.runs.get(name)
        fenced = run.state is RunState.STOPPING and run.reason in FENCED
        if fenced and after is not None and after.state is RunState.SUCCEEDED:
            yield f"`{name}` was being stopped as {run.reason} and has succeeded"


def outcomes_stay(scene: Scene) -> Iterator[str]:
    """I9: an ended run keeps its outcome and result; a finished object stays finished until its
    spec changes.
    """
    for name, run in scene.before.runs.items():
        after = scene.now.runs.get(name)
        if after is None or run.state in LIVE_STATES:
            continue
        if after.state is not run.state:
            yield f"`{name}` was {run.state} and became {after.state}"
        if scene.now.results.get(name) != scene.before.results.get(name):
            yield f"the result of `{name}` changed after its end"


def records_stay(scene: Scene) -> Iterator[str]:
    """I11: a record that was committed is there until its object is gone."""
    for name, run in scene.before.runs.items():
        if name not in scene.now.runs and run.uid in scene.now.resources:
            yield f"the record of `{name}` vanished"


def offsets_grow(scene: Scene) -> Iterator[str]:
    """I10: what is read of a journal is never read back."""
    for name, run in scene.before.runs.items():
        after = scene.now.runs.get(name)
        if after is not None and after.journal_offset < run.journal_offset:
            yield f"the journal offset of `{name}` went back to {after.journal_offset}"


RECORD_CHECKS = (
    succeeds_once,
    truthful_outcomes,
    closed_is_closed,
    nothing_is_forgotten,
    results_match,
    attempts_in_bounds,
    backs_off,
    only_the_newest_lives,
    the_stopped_never_count,
    outcomes_stay,
    records_stay,
    offsets_grow,
)


def _since_asked(runs: list[Run]) -> list[Run]:
    """The attempts that count: those after the last that was put aside, or the newest of all."""
    cut = max((at for at, run in enumerate(runs) if run.put_aside), default=-1)
    return runs[cut + 1 :] or runs[-1:]


def _compare(run: Run, work: Work, result: str | None) -> Iterator[str]:
    if work.ended_at_s is None:
        yield f"`{run.name}` is {run.state} and still works"
        return
    end = work.end
    match run.state:
        case RunState.SUCCEEDED:
            if end is None or not end.ok:
                yield f"`{run.name}` is Succeeded and really ended with {end}"
            elif result != result_of(work):
                yield f"the result of `{run.name}` is {result} and really was {result_of(work)}"
        case RunState.FAILED:
            if end is None or end.ok or end.infrastructure:
                yield f"`{run.name}` is Failed and really ended with {end}"
        case RunState.LOST:
            if end is not None and not end.infrastructure:
                yield f"`{run.name}` is Lost and really ended with {end}"
        case RunState.REFUSED:
            yield f"`{run.name}` is Refused and really began"
        case _:
            return
