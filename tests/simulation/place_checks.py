"""What must hold of places: limits of Provider objects, prices, and where runs may be.

Each has the invariant as its docstring and yields what broke it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.controllers.model import LIVE_STATES, Resource
from tests.simulation.models import MODELS
from tests.simulation.scene import Scene
from tests.simulation.snapshot import spec, status

NO_LIMIT = 1_000_000
USD_SLACK = 1e-9


def limits_of_providers(scene: Scene) -> Iterator[str]:
    """I4: no sandbox is made beyond a Provider object's maxConcurrent in force since it was asked
    for, over all objects and across crashes.
    """
    alive = [box for box in scene.world.alive() if box.owner == scene.store_id and not box.twin]
    alive = [box for box in alive if box.work is not None or box.reusable]
    for name, count in Counter(box.model.name for box in alive).items():
        asked_at_s = max(box.asked_at_s for box in alive if box.model.name == name)
        allowed = scene.limit_since(f"provider {name}", asked_at_s)
        if allowed is not None and count > allowed:
            yield f"`{name}` holds {count} sandboxes; its maxConcurrent is {allowed}"


def creates_in_a_minute(scene: Scene) -> Iterator[str]:
    """I16: a provider is asked for no more new sandboxes in any minute than createsPerMinute."""
    for resource in _providers(scene):
        most = spec(resource).get("limits", {}).get("createsPerMinute")
        asked = scene.politeness.creates_in_the_last_minute(resource.name)
        if most is not None and asked > most:
            yield f"{asked} creates in a minute at `{resource.name}`; allowed are {most}"


def remember_limits(scene: Scene) -> Iterator[str]:
    """A greater limit is in force at once, a smaller one when the engine has seen it."""
    for name in MODELS:
        living = next((it for it in _providers(scene) if it.name == name), None)
        most = spec(living).get("limits", {}).get("maxConcurrent") if living else None
        allowed = NO_LIMIT if most is None else int(most)
        seen = living is None or status(living).get("observedGeneration") == living.generation
        known = scene.limits[f"provider {name}"]
        if not known or allowed > known[-1][1] or (seen and allowed != known[-1][1]):
            known.append((scene.world.now_s, allowed))
    return iter(())


def starts_within_breakers(scene: Scene) -> Iterator[str]:
    """I6: no commit asks for a new sandbox that takes live spend above maxSpendPerHour."""
    for resource in _providers(scene):
        most = spec(resource).get("breaker", {}).get("maxSpendPerHour")
        live = [run for run in scene.now.runs.values() if run.state in LIVE_STATES]
        live = [run for run in live if run.provider == resource.name]
        new = [it for it in live if it.name not in scene.before.runs and it.sandbox == it.name]
        if most is None or not new:
            continue
        if any(run.usd_per_s is None for run in live):
            yield f"a run of unknown price was wished for at `{resource.name}`"
        usd = sum((run.usd_per_s or 0.0) for run in {it.sandbox: it for it in live}.values())
        if usd * 3600 > most + USD_SLACK:
            yield f"`{resource.name}` costs ${usd * 3600:.4f}/h; maxSpendPerHour is {most}"


def starts_at_candidates(scene: Scene) -> Iterator[str]:
    """I24: a run starts only where its placement lets it, and its row says why it is there."""
    for name, run in scene.now.runs.items():
        resource = scene.now.resources.get(run.uid)
        if name in scene.before.runs or resource is None or run.state not in LIVE_STATES:
            continue
        placement = spec(resource).get("placement", {})
        many = placement.get("ordered") or placement.get("anyOf")
        if not many or status(resource).get("observedGeneration") != resource.generation:
            continue
        if run.provider not in [it["provider"] for it in many]:
            yield f"`{name}` is wished for at `{run.provider}`, which is no candidate"
        if len(many) > 1 and not run.placed:
            yield f"`{name}` does not say why it is at `{run.provider}`"


PLACE_EFFECT_CHECKS = (limits_of_providers, creates_in_a_minute)
PLACE_COMMIT_CHECKS = (remember_limits, starts_within_breakers, starts_at_candidates)


def _providers(scene: Scene) -> list[Resource]:
    rows = scene.now.resources.values()
    return [it for it in rows if it.kind == "Provider" and it.deleted_at_s is None]
