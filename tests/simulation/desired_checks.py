"""What must hold after every commit: safety invariants over specs, their status and their runs.

Each has the invariant as its docstring and yields what broke it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from fleetctl.controllers.model import CACHED, LIVE_STATES, Resource, RunState
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.controllers.reuse.row_matching import RowIndexes
from fleetctl.controllers.status_keys import describe_keys
from fleetctl.specs.content import Pins, template_hash
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.hashing import params_hash
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.tracking.annotations import INDEXES, PARAMS, RESULTS
from tests.simulation.editing import UNREADABLE_SPEC
from tests.simulation.scene import Scene
from tests.simulation.snapshot import parsed, spec, status


def finished_stays_finished(scene: Scene) -> Iterator[str]:
    """I9: a finished object stays finished until its spec changes or it is deleted."""
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


def deletions_stay(scene: Scene) -> Iterator[str]:
    """I20: what was desired gone is never wanted back, whoever had read it before."""
    for uid, old in scene.before.resources.items():
        new = scene.now.resources.get(uid)
        if old.deleted_at_s is not None and new is not None and new.deleted_at_s is None:
            yield f"{old.key} was deleted, and a later write took that back"


def conserved(scene: Scene) -> Iterator[str]:
    """I10: counts add up, and versions and generations never decrease."""
    for uid, resource in scene.now.resources.items():
        old = scene.before.resources.get(uid)
        if old is resource:
            continue
        yield from _adds_up(resource.key, status(resource))
        if unknown := status(resource).keys() - describe_keys().keys():
            yield f"{resource.key} has a status with unknown keys: {sorted(unknown)}"
        if old is not None and (
            resource.version < old.version or resource.generation < old.generation
        ):
            yield f"{resource.key} went back from version {old.version} to {resource.version}"
        if old is not None and _decided(status(resource))[1] < _decided(status(old))[1]:
            yield f"{resource.key} observed an older generation than before"


def cost_adds_up(scene: Scene) -> Iterator[str]:
    """I10: the cost in a status is the sum over all ended runs of the object."""
    for uid, resource in scene.now.resources.items():
        cost = status(resource).get("cost")
        if scene.before.resources.get(uid) is resource or cost is None:
            continue
        ended = [run for run in scene.now.runs_of(uid) if run.state not in LIVE_STATES]
        spent_usd = sum(run.cost_usd or 0.0 for run in ended)
        if status(resource).get("observedGeneration") == resource.generation and (
            abs(cost["actual"] - spent_usd) > 1e-5
        ):
            yield f"{resource.key} says it cost {cost['actual']}; its runs cost {spent_usd:.6f}"


def readable_is_handled(scene: Scene) -> Iterator[str]:
    """P7: only what nobody can read is set aside; no pass fails by what it decides."""
    for uid, resource in scene.now.resources.items():
        if scene.before.resources.get(uid) is resource or resource.spec == UNREADABLE_SPEC:
            continue
        said = status(resource)
        if said.get("reason") == "Quarantined":
            yield f"{resource.key}: {said.get('message')}"


def status_is_true(scene: Scene) -> Iterator[str]:
    """I2, I12: status claims no success without a record, and no end or rest while runs go on."""
    for uid, resource in scene.now.resources.items():
        if scene.before.resources.get(uid) is resource:
            continue
        seen = status(resource)
        runs = scene.now.runs_of(uid)
        done = {run.index for run in runs if run.state is RunState.SUCCEEDED}
        if seen.get("succeeded", 0) > len(done):
            yield f"{resource.key} claims {seen['succeeded']} successes; {len(done)} are recorded"
        if seen.get("observedGeneration") != resource.generation:
            continue
        live = [run for run in runs if run.state in LIVE_STATES]
        going_on = [run for run in live if run.state is not RunState.STOPPING]
        if seen.get("phase") in TERMINAL_PHASES and live:
            yield f"{resource.key} is {seen['phase']} and `{live[0].name}` is {live[0].state}"
        if seen.get("phase") in ("Suspended", "Deleting") and going_on:
            yield f"{resource.key} is {seen['phase']} and `{going_on[0].name}` goes on"


def only_the_wanted_goes_on(scene: Scene) -> Iterator[str]:
    """I8: once a spec is observed, no run goes on that it does not want."""
    for uid, resource in scene.now.resources.items():
        seen = status(resource)
        if resource.kind != "BatchJob" or seen.get("observedGeneration") != resource.generation:
            continue
        wanted = read_desired(resource)
        if wanted is None:
            continue
        hashes, template = wanted
        for run in scene.now.live_of(uid):
            if run.state is RunState.STOPPING:
                continue
            if hashes.get(run.index) != run.params_hash:
                yield f"`{run.name}` goes on and {resource.key} does not want it"
            elif template not in ("", run.template_hash):
                yield f"`{run.name}` goes on with an older template of {resource.key}"


def starts_within_parallelism(scene: Scene) -> Iterator[str]:
    """I4: no commit asks for more live runs than parallelism; unknown starts and stopping runs
    count.
    """
    for uid, resource in scene.now.resources.items():
        allowed = scene.parallelism(uid)
        if allowed is None:
            continue
        _remember_limit(scene, resource, allowed)
        new = [run for run in scene.now.live_of(uid) if run.name not in scene.before.runs]
        live = len(scene.now.live_of(uid))
        if new and live > allowed:
            yield f"{resource.key} has {live} live runs after a start; parallelism is {allowed}"


def the_desired_content_counts(scene: Scene) -> Iterator[str]:
    """I25: what a succeeded object counts was really made by the program that it names."""
    for uid, resource in scene.now.resources.items():
        desired, old = spec(resource), scene.before.resources.get(uid)
        phase, generation = _decided(status(resource))
        done = phase == "Succeeded" and generation == resource.generation
        command = (
            desired.get("template", {}).get("command") if resource.kind == "BatchJob" else None
        )
        spares = desired.get("onChange") == "Keep" or desired.get("rollout") == "FinishRunning"
        if old is resource or not done or command is None or spares:
            continue
        newest = {run.index: run for run in scene.now.runs_of(uid) if run.params_hash}
        wanted, _ = read_desired(resource) or ({}, "")
        for index, run in newest.items():
            work = scene.work_of(run)
            if run.state is not RunState.SUCCEEDED or run.reason == CACHED or work is None:
                continue
            if index in wanted and list(work.order.template.command or ()) != command:
                yield f"{resource.key} counts `{run.name}`, which ran {work.order.template.command}"


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
            if landing.order.uid == uid and scene.world.can_begin(landing.order):
                yield f"{resource.key} is gone and the start of `{landing.order.run}` is on its way"
        for provider, uids in scene.world.scratch.items():
            if uid in uids:
                yield f"{resource.key} is gone and its scratch at `{provider}` is left"
        if resource.kind == "Volume" and spec(resource).get("deletionPolicy") == "Delete":
            for provider, names in scene.world.volumes.items():
                called = asset_name(resource.name, resource.namespace)
                if called in names and scene.now.find("Volume", called) is None:
                    yield f"{resource.key} is gone and its data at `{provider}` is left"


def read_desired(resource: Resource) -> tuple[dict[int, str], str] | None:
    """Returns what `_wanted` does of an object."""
    notes = resource.annotations
    noted = (notes.get(PARAMS, ""), notes.get(RESULTS, ""), notes.get(INDEXES, ""))
    return _wanted(resource.spec, *noted)


DESIRED_CHECKS = (
    finished_stays_finished,
    deletions_stay,
    conserved,
    cost_adds_up,
    readable_is_handled,
    status_is_true,
    only_the_wanted_goes_on,
    starts_within_parallelism,
    the_desired_content_counts,
    nothing_left,
)


def _remember_limit(scene: Scene, resource: Resource, allowed: int) -> None:
    """A greater limit is in force at once, a smaller one when the engine has seen it."""
    known = scene.limits[resource.uid]
    seen = status(resource).get("observedGeneration") == resource.generation
    if not known or allowed > known[-1][1] or (seen and allowed != known[-1][1]):
        known.append((scene.world.now_s, allowed))


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


@lru_cache(maxsize=512)
def _wanted(text: str, given: str, taken: str, indexes: str) -> tuple[dict[int, str], str] | None:
    """Params hash by index, and the template's hash where live runs must have it. given: what
    `paramsFrom` has given, taken: the results that are its tasks, indexes: of its rows, all as they
    are noted.

    None: the spec cannot be read.
    """
    try:
        desired = parse_spec("BatchJob", text)
    except ValueError:
        return None
    assert isinstance(desired, BatchJobSpec)
    count = desired.count()
    if count is None:
        rows = parsed(taken).get("rows", ())
        hashes = {index: params_hash(params) for index, params in rows}
    else:
        places = RowIndexes.parse(indexes) if indexes else range(count)
        hashes = {index: params_hash(desired.params(at)) for at, index in enumerate(places)}
    replaces = desired.rollout == "Replace"
    told = template_hash(
        desired.template, desired.placement, Pins(params=given), desired.params_from
    )
    return hashes, told if replaces else ""
