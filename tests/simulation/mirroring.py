"""Custom resources before an API server whose watch lags, loses events and goes back in time, and
the real decisions of the mirror. What is checked is the truth that the server alone knows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random

from fleetctl.operator.mirror import custom_resource
from fleetctl.operator.mirror.custom_resource import (
    CustomResource,
    MirrorAction,
    MirroredObject,
    ResourceOrigin,
)

STEPS = 120
NAMES = ("a", "b")


@dataclass
class World:
    """server: name -> custom resource. cache: what the mirror sees of it. stored: what the engine
    has, and begun: names with work that would be lost.
    """

    rng: Random
    server: dict[str, CustomResource] = field(default_factory=dict)
    history: list[dict[str, CustomResource]] = field(default_factory=list)
    cache: dict[str, CustomResource] = field(default_factory=dict)
    stored: dict[str, MirroredObject] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    made: int = 0
    applied: dict[str, int] = field(default_factory=dict)  # uid -> newest generation

    # -- what people do ------------------------------------------------------------------------

    def edit(self) -> None:
        name = self.rng.choice(NAMES)
        known, roll = self.server.get(name), self.rng.random()
        if known is None:
            self.made += 1
            self.server[name] = CustomResource(ResourceOrigin(f"u{self.made}", 1, f"d{self.made}"))
        elif known.deleting:
            return
        elif roll < 0.5:
            self.made += 1
            origin = ResourceOrigin(known.origin.uid, known.origin.generation + 1, f"d{self.made}")
            self._write(name, CustomResource(origin, held=known.held))
        elif known.held:
            self._write(name, CustomResource(known.origin, deleting=True, held=True))
        else:
            del self.server[name]
        self._note()

    def force(self) -> None:
        """Somebody takes the finalizers off by hand, and the object is gone."""
        if self.server:
            del self.server[self.rng.choice(sorted(self.server))]
            self._note()

    def _write(self, name: str, wanted: CustomResource) -> None:
        self.server[name] = wanted
        self._note()

    def _note(self) -> None:
        self.history.append(copy.copy(self.server))

    # -- what the mirror sees ------------------------------------------------------------------

    def deliver(self) -> None:
        """The cache catches up with all, with one name, or goes back to an old list."""
        roll = self.rng.random()
        if roll < 0.1 and self.history:
            self.cache = copy.copy(self.rng.choice(self.history))
        elif roll < 0.2 and self.cache:
            del self.cache[self.rng.choice(sorted(self.cache))]  # an event that was never sent
        elif roll < 0.6:
            self.sync(self.rng.choice(NAMES))
        else:
            self.cache = copy.copy(self.server)

    def sync(self, name: str) -> None:
        self.cache.pop(name, None)
        if name in self.server:
            self.cache[name] = self.server[name]

    # -- what the mirror does ------------------------------------------------------------------

    def visit(self, name: str) -> None:
        looked = False
        for _ in range(8):
            wanted, stored = self.cache.get(name), self.stored.get(name)
            step = custom_resource.choose_action(wanted, stored, looked=looked)
            if step in (MirrorAction.NOTHING, MirrorAction.WAIT):
                return
            if step is MirrorAction.LOOK:
                self.sync(name)
                looked = True
            elif step is MirrorAction.DELETE:
                assert stored is not None
                self._judge_deletion(name, stored)
                self.stored[name] = MirroredObject(stored.origin, deleting=True)
            elif step is MirrorAction.RELEASE:
                assert wanted is not None
                self._release(name, wanted)
                return
            elif wanted is not None and not self._act(name, step, wanted):
                return  # refused: the cache was old; it is looked at again when that catches up
            looked = looked or step is MirrorAction.HOLD

    def _act(self, name: str, step: MirrorAction, wanted: CustomResource) -> bool:
        truth = self.server.get(name)
        if step is MirrorAction.HOLD:
            # A write of an old version is refused; the server's own answer is heard.
            if truth != wanted:
                self.sync(name)
                return False
            self._write(name, CustomResource(wanted.origin, wanted.deleting, held=True))
            self.sync(name)
            return True
        newest = self.applied.get(wanted.origin.uid, 0)
        if wanted.origin.generation < newest:
            self.wrong.append(f"{name}: generation {wanted.origin.generation} after {newest}")
        self.applied[wanted.origin.uid] = wanted.origin.generation
        self.stored[name] = MirroredObject(wanted.origin)
        return True

    def _judge_deletion(self, name: str, stored: MirroredObject) -> None:
        truth = self.server.get(name)
        alive = truth is not None and not truth.deleting
        if alive and stored.origin is not None and truth.origin.uid == stored.origin.uid:  # type: ignore[union-attr]
            self.wrong.append(f"{name}: deleted, and its custom resource lives")

    def _release(self, name: str, wanted: CustomResource) -> None:
        truth, stored = self.server.get(name), self.stored.get(name)
        if truth != wanted:
            self.sync(name)
            return
        if (
            stored is not None
            and stored.origin is not None
            and stored.origin.uid == wanted.origin.uid
        ):
            self.wrong.append(f"{name}: let go while something of it is left")
        del self.server[name]
        self._note()
        self.sync(name)

    def finish(self) -> None:
        """The engine confirms one deletion."""
        for name in [it for it, row in self.stored.items() if row.deleting]:
            if self.rng.random() < 0.5:
                del self.stored[name]


def live(seed: int) -> World:
    """A life of many edits, then quiet: what is stored must be what is wanted."""
    world = World(Random(seed))
    acts = (world.edit, world.deliver, world.finish)
    for _ in range(STEPS):
        world.rng.choice(acts)()
        if world.rng.random() < 0.03:
            world.force()
        world.visit(world.rng.choice(NAMES))
    for _ in range(40):
        world.cache = copy.copy(world.server)
        world.finish()
        for name in NAMES:
            world.visit(name)
    for name in NAMES:
        wanted, stored = world.server.get(name), world.stored.get(name)
        if (wanted and wanted.origin) != (stored and stored.origin):
            world.wrong.append(f"{name}: {stored} is stored, and {wanted} is wanted")
    return world
