"""What must hold at every instant: reliability's safety invariants as small functions over a Scene.

Each has the invariant as its docstring and yields what broke it. EFFECT_CHECKS run after every
change at a provider, COMMIT_CHECKS after every commit. Numbers such as I4 are those of the
project's list of invariants.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from controllers.model import LIVE_STATES, Run, RunState
from controllers.plan import TERMINAL_PHASES
from fleetctl.providers.base import RunRef
from tests.simulation.observing import journal_bytes, result_of
from tests.simulation.politeness import Politeness
from tests.simulation.snapshot import EMPTY, Snapshot, spec, status
from tests.simulation.world import Work, World

# Volumes and unknown kinds have no runs; a job without `parallelism` takes its provider's default.
MEANS_NO_WORK = frozenset({RunState.STOPPED, RunState.REFUSED})


@dataclass(slots=True)
class Scene:
    """All that a check may look at: the truth, the committed state now and before, and what was
    promised.
    """

    world: World
    store_id: str = ""
    now: Snapshot = EMPTY
    before: Snapshot = EMPTY
    politeness: Politeness = field(default_factory=Politeness)
    limits: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    stops: list[RunRef] = field(default_factory=list)  # asked for since the last check

    def work_of(self, run: Run) -> Work | None:
        return self.world.works.get(run.name)


Check = Callable[[Scene], Iterator[str]]


# ---- after every effect at a provider


def owned(scene: Scene) -> Iterator[str]:
    """I1: the work of a sandbox of ours has a durable, live record before it begins and while it
    goes on.
    """
    for work in _working(scene):
        row = scene.now.runs.get(work.order.run)
        if row is None:
            yield f"`{work.order.run}` works and no record speaks of it"
        elif row.state not in LIVE_STATES:
            yield f"`{row.name}` works and its record says {row.state}"


def tagged(scene: Scene) -> Iterator[str]:
    """I1b: every sandbox of ours carries our store's tag and its resource's uid from birth."""
    for box in scene.world.alive():
        if box.work is not None and (box.owner != scene.store_id or not box.uid):
            yield f"sandbox `{box.sandbox}` was made without our tag"


def within_parallelism(scene: Scene) -> Iterator[str]:
    """I4: never more sandboxes of an object alive than its parallelism allowed since the oldest of
    them was wished.
    """
    counts = Counter(
        box.uid for box in scene.world.alive() if not box.twin and box.owner == scene.store_id
    )
    for uid, count in counts.items():
        allowed = _parallelism_since(scene, uid)
        if allowed is not None and count > allowed:
            yield f"{count} sandboxes of {uid} are alive; parallelism allows {allowed}"


def one_at_a_time(scene: Scene) -> Iterator[str]:
    """I7: at most one attempt of a unit works at any instant."""
    counts = Counter((work.order.uid, work.order.index) for work in _working(scene))
    for (uid, index), count in counts.items():
        if count > 1:
            yield f"{count} attempts of index {index} of {uid} work at once"


def no_friendly_fire(scene: Scene) -> Iterator[str]:
    """I13: only what carries our tag is stopped, and only if the committed state wants it
    stopped.
    """
    for ref in scene.stops:
        box = scene.world.by_sandbox.get(ref.sandbox)
        if box is None or not box.alive:
            continue
        if box.owner != scene.store_id or (ref.uid and box.uid != ref.uid):
            yield f"a stop for `{ref.run}` hits sandbox `{box.sandbox}` of {box.owner}/{box.uid}"
        for run in scene.now.runs.values():
            if run.sandbox == box.sandbox and run.state in (RunState.STARTING, RunState.RUNNING):
                yield f"`{run.name}` was stopped and no wish to stop it is committed"
    scene.stops.clear()


def polite(scene: Scene) -> Iterator[str]:
    """I16: calls stay within the contract's rate and number at once; Retry-After is kept."""
    yield from scene.politeness.broken


# ---- after every commit


def succeeds_once(scene: Scene) -> Iterator[str]:
    """I2: a unit succeeds at most once under the same parameters."""
    for (uid, index), runs in scene.now.units():
        counts = Counter(run.params_hash for run in runs if run.state is RunState.SUCCEEDED)
        if any(count > 1 for count in counts.values()):
            yield f"index {index} of {uid} has succeeded {max(counts.values())} times"


def truthful_outcomes(scene: Scene) -> Iterator[str]:
    """I3, I12: a recorded outcome is what really happened, and nothing of an ended run still
    works.
    """
    for run in _changed(scene):
        if run.state in LIVE_STATES:
            continue
        work = scene.work_of(run)
        if run.name in scene.world.landing:
            yield f"`{run.name}` is {run.state} and its start is still on its way"
        if work is None:
            if run.state in (RunState.SUCCEEDED, RunState.FAILED):
                yield f"`{run.name}` is {run.state} and has never begun"
        else:
            yield from _compare(run, work, scene.now.results.get(run.name))


def results_match(scene: Scene) -> Iterator[str]:
    """I2: the journal of an ended run is read to its end, not a byte more or less."""
    for run in _changed(scene):
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
        if resource is None:
            continue
        wish = spec(resource)
        app_limit = wish.get("backoffLimitPerIndex", wish.get("maxRestarts", 0))
        same = [run for run in runs if run.template_hash == runs[-1].template_hash]
        failed = sum(run.state is RunState.FAILED for run in same)
        lost = sum(run.state is RunState.LOST for run in same)
        if failed > app_limit + 1 and len(same) == len(runs):
            yield f"index {index} of {uid} failed {failed} times; the limit is {app_limit}"
        if lost > wish.get("maxInfraRetries", 5) + 1:
            yield f"index {index} of {uid} was lost {lost} times"


def only_the_newest_lives(scene: Scene) -> Iterator[str]:
    """I8: attempts of a unit are numbered 1, 2, 3...; only the newest may be live."""
    for (uid, index), runs in scene.now.units():
        if [run.attempt for run in runs] != list(range(1, len(runs) + 1)):
            yield f"index {index} of {uid} has the attempts {[run.attempt for run in runs]}"
        for run in runs[:-1]:
            if run.state in LIVE_STATES:
                yield f"`{run.name}` is {run.state} although a newer attempt exists"


def terminal_is_terminal(scene: Scene) -> Iterator[str]:
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
    for uid, resource in scene.before.resources.items():
        new = scene.now.resources.get(uid)
        old_phase, old_generation = _decided(status(resource))
        if (
            new is None
            or new is resource
            or old_phase not in TERMINAL_PHASES
            or new.deleted_at_s is not None
        ):
            continue
        phase, generation = _decided(status(new))
        if generation == old_generation and phase != old_phase:
            yield f"{resource.key} was {old_phase} at generation {generation} and became {phase}"


def conserved(scene: Scene) -> Iterator[str]:
    """I10: counts add up, and versions, generations, offsets never decrease."""
    for uid, resource in scene.now.resources.items():
        old = scene.before.resources.get(uid)
        if old is resource:
            continue
        yield from _adds_up(resource.key, status(resource))
        if old is not None and (
            resource.version < old.version or resource.generation < old.generation
        ):
            yield f"{resource.key} went back from version {old.version} to {resource.version}"
        if old is not None and _decided(status(resource))[1] < _decided(status(old))[1]:
            yield f"{resource.key} observed an older generation than before"
    for name, run in scene.before.runs.items():
        after = scene.now.runs.get(name)
        if after is not None and after.journal_offset < run.journal_offset:
            yield f"the journal offset of `{name}` went back to {after.journal_offset}"


def records_stay(scene: Scene) -> Iterator[str]:
    """I11: a record that was committed is there until its object is gone."""
    for name, run in scene.before.runs.items():
        if name not in scene.now.runs and run.uid in scene.now.resources:
            yield f"the record of `{name}` vanished"


def starts_within_parallelism(scene: Scene) -> Iterator[str]:
    """I4: no commit wishes for more live runs than parallelism; unknown starts and stopping runs
    count.
    """
    for uid, resource in scene.now.resources.items():
        allowed = _parallelism(scene, uid)
        if allowed is None:
            continue
        if not scene.limits[uid] or scene.limits[uid][-1][1] != allowed:
            scene.limits[uid].append((scene.world.now_s, allowed))
        new = [run for run in scene.now.live_of(uid) if run.name not in scene.before.runs]
        live = len(scene.now.live_of(uid))
        if new and live > allowed:
            yield f"{resource.key} has {live} live runs after a start; parallelism is {allowed}"


def nothing_left(scene: Scene) -> Iterator[str]:
    """I5: when an object's row disappears, no sandbox, no scratch and no deletable volume of it is
    left.
    """
    for uid, resource in scene.before.resources.items():
        if uid in scene.now.resources:
            continue
        for box in scene.world.alive():
            if box.uid == uid and not box.twin:
                yield f"{resource.key} is gone and its sandbox `{box.sandbox}` is alive"
        for landing in scene.world.landing.values():
            if landing.order.uid == uid:
                yield f"{resource.key} is gone and the start of `{landing.order.run}` is on its way"
        for provider, uids in scene.world.scratch.items():
            if uid in uids:
                yield f"{resource.key} is gone and its scratch at `{provider}` is left"
        if resource.kind == "Volume" and spec(resource).get("deletionPolicy") == "Delete":
            for provider, names in scene.world.volumes.items():
                if resource.name in names and scene.now.find("Volume", resource.name) is None:
                    yield f"{resource.key} is gone and its data at `{provider}` is left"


EFFECT_CHECKS: tuple[Check, ...] = (
    owned,
    tagged,
    within_parallelism,
    one_at_a_time,
    no_friendly_fire,
    polite,
)
COMMIT_CHECKS: tuple[Check, ...] = (
    succeeds_once,
    truthful_outcomes,
    results_match,
    attempts_in_bounds,
    only_the_newest_lives,
    terminal_is_terminal,
    conserved,
    records_stay,
    starts_within_parallelism,
    nothing_left,
)


def broken(scene: Scene, checks: tuple[Check, ...]) -> Iterator[str]:
    """One text per breach: the invariant's sentence and what broke it."""
    for check in checks:
        for what in check(scene):
            yield f"{check.__doc__} -- {what}"


# ---- helpers


def _working(scene: Scene) -> Iterator[Work]:
    for box in scene.world.boxes:
        if box.work is not None:
            yield box.work


def _changed(scene: Scene) -> Iterator[Run]:
    for name, run in scene.now.runs.items():
        if scene.before.runs.get(name) != run:
            yield run


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


def _decided(of: dict[str, object]) -> tuple[str, int]:
    generation = of.get("observedGeneration")
    return str(of.get("phase", "")), generation if isinstance(generation, int) else 0


def _adds_up(key: str, of: dict[str, object]) -> Iterator[str]:
    total, parts = of.get("total"), [of.get(name, 0) for name in ("active", "succeeded", "failed")]
    if not isinstance(total, int):
        return
    numbers = [part for part in parts if isinstance(part, int)]
    if min(numbers) < 0 or numbers[1] + numbers[2] > total:
        yield f"{key} counts {parts} of {total}"


def _parallelism(scene: Scene, uid: str) -> int | None:
    resource = scene.now.resources.get(uid)
    if resource is None or not spec(resource).get("template"):
        return None
    value = spec(resource).get("parallelism")
    # The models' contracts all have the same default.
    return int(value) if value is not None else 4


def _parallelism_since(scene: Scene, uid: str) -> int | None:
    """The greatest limit in force at any time since the oldest live run of the object was wished
    for.
    """
    limits = scene.limits.get(uid)
    if not limits:
        return None
    names = {box.sandbox for box in scene.world.alive() if box.uid == uid}
    wished = [scene.now.runs[name].created_at_s for name in names if name in scene.now.runs]
    since_s = min(wished, default=scene.world.now_s)
    before = [limit for at_s, limit in limits if at_s <= since_s][-1:]
    return max([*before, *(limit for at_s, limit in limits if at_s > since_s)])
