"""What must hold after every change at a provider: safety invariants over the ground truth.

Each has the invariant as its docstring and yields what broke it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.controllers.model import LIVE_STATES, RunState
from fleetctl.specs.values.namespaces import asset_name
from tests.simulation.models import MODELS
from tests.simulation.scene import Scene
from tests.simulation.snapshot import spec


def owned(scene: Scene) -> Iterator[str]:
    """I1: the work of a sandbox of ours has a durable, live record before it begins and while it
    goes on.
    """
    for work in scene.working():
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
    """I4: no sandbox is made beyond the parallelism in force since it was asked for."""
    alive = [box for box in scene.world.alive() if not box.twin and box.owner == scene.store_id]
    counts = Counter(box.uid for box in alive)
    for uid, count in counts.items():
        asked_at_s = max(box.asked_at_s for box in alive if box.uid == uid)
        allowed = scene.parallelism_since(uid, asked_at_s)
        if allowed is not None and count > allowed:
            yield f"{count} sandboxes of {uid} are alive; parallelism allows {allowed}"


def one_at_a_time(scene: Scene) -> Iterator[str]:
    """I7: at most one attempt of a unit works at any instant."""
    counts = Counter((work.order.uid, work.order.index) for work in scene.working())
    for (uid, index), count in counts.items():
        if count > 1:
            yield f"{count} attempts of index {index} of {uid} work at once"


def begun_once(scene: Scene) -> Iterator[str]:
    """I2: the work of an attempt begins at most once, wherever its requests landed."""
    for run in scene.world.begun_again:
        yield f"the work of `{run}` began a second time"


def no_friendly_fire(scene: Scene) -> Iterator[str]:
    """I13: only what carries our tag is stopped, and only when a committed spec says so."""
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


def within_provider(scene: Scene) -> Iterator[str]:
    """I4: over all objects, a provider holds no more sandboxes than its contract says."""
    alive = [box for box in scene.world.alive() if box.work is not None or box.reusable]
    counts = Counter(box.model.name for box in alive if box.owner == scene.store_id)
    for name, count in counts.items():
        limit = MODELS[name].contract.sandboxes_at_once
        if limit is not None and count > limit:
            yield f"`{name}` holds {count} sandboxes; its contract says {limit}"


def within_reuse(scene: Scene) -> Iterator[str]:
    """I4: a sandbox runs no more tasks than `sandbox.reuse` allows."""
    counts = Counter(work.box.sandbox for work in scene.world.works.values())
    for name, count in counts.items():
        run = scene.now.runs.get(name)
        if count > 1 and run is not None:
            desired = spec(scene.now.resources[run.uid])
            allowed = desired.get("sandbox", {}).get("reuse", desired.get("trialsPerWorker", 1))
            if allowed != "all" and count > allowed:
                yield f"sandbox `{name}` has run {count} tasks; reuse is {allowed}"


def within_a_life(scene: Scene) -> Iterator[str]:
    """I4: no run is desired in a sandbox older than `sandbox.maxLifetimeSeconds` allows."""
    for run in scene.now.runs.values():
        first = scene.now.runs.get(run.sandbox)
        if first is None or first is run:
            continue
        life_s = spec(scene.now.resources[run.uid]).get("sandbox", {}).get("maxLifetimeSeconds")
        age_s = run.created_at_s - first.created_at_s
        if life_s is not None and age_s >= life_s:
            yield f"`{run.name}` gets a sandbox that is {age_s:g} s old, of {life_s:g} s"


def data_is_safe(scene: Scene) -> Iterator[str]:
    """I5: data is removed of deleted volumes with policy Delete alone, and under no live run."""
    removed, scene.world.removed = scene.world.removed, []
    for provider, name in removed:
        volumes = [
            it
            for it in scene.now.resources.values()
            if it.kind == "Volume" and asset_name(it.name, it.namespace) == name
        ]
        owed = (
            it
            for it in volumes
            if it.deleted_at_s is not None and spec(it).get("deletionPolicy") == "Delete"
        )
        if not any(owed):
            yield f"the data of volume `{name}` at `{provider}` was removed and nobody wished it"
        for work in scene.working():
            if any(mount.name == name for mount in work.order.template.volumes):
                yield f"the data of volume `{name}` was removed under `{work.order.run}`"


WORLD_CHECKS = (
    owned,
    tagged,
    within_parallelism,
    within_provider,
    within_reuse,
    within_a_life,
    one_at_a_time,
    begun_once,
    no_friendly_fire,
    data_is_safe,
    polite,
)
