"""All that a check may look at: the truth, the committed state now and before, and what was
promised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fleetctl.controllers.model import Run
from fleetctl.providers.contract.base import RunRef
from fleetctl.stores.base import Store
from tests.simulation.payers import Known
from tests.simulation.politeness import Politeness
from tests.simulation.snapshot import EMPTY, Snapshot, spec
from tests.simulation.world import Work, World

DEFAULT_PARALLELISM = 4  # all models' contracts say so


@dataclass(slots=True)
class Scene:
    """limits: since when each was in force: parallelism by uid, maxConcurrent by provider.
    stops: asked for since the last check.
    """

    world: World
    store: Store | None = None  # of the controller that lives
    store_id: str = ""
    now: Snapshot = EMPTY
    before: Snapshot = EMPTY
    politeness: Politeness = field(default_factory=Politeness)
    limits: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    stops: list[RunRef] = field(default_factory=list)
    successes: dict[str, str | None] = field(default_factory=dict)  # run -> result, ever committed
    mounts: dict[str, frozenset[str]] = field(default_factory=dict)  # at that success: volumes
    # By uid: the runs that were there when it was asked to run all again.
    aside: dict[str, set[str]] = field(default_factory=dict)
    # Runs that succeeded after an edit had replaced their work: kept with their run alone.
    late: set[str] = field(default_factory=set)
    never: set[str] = field(default_factory=set)  # uids whose results nobody may use again
    # By uid: the works, as chains.py tells them apart, of which something has begun.
    released: dict[str, set[str]] = field(default_factory=dict)
    payers: dict[str, Known] = field(default_factory=dict)  # by uid; also of what is gone
    # Runs that W&B has handed out, with their parameters.
    handed: Callable[[], dict[str, dict[str, object]]] = dict
    # Two snapshots and the runs that differ: a dozen checks read them after each commit.
    _changed: tuple[Snapshot, Snapshot, list[Run]] = (EMPTY, EMPTY, [])

    def work_of(self, run: Run) -> Work | None:
        return self.world.works.get(run.name)

    def working(self) -> Iterator[Work]:
        for box in self.world.boxes:
            if box.work is not None:
                yield box.work

    def changed(self) -> Sequence[Run]:
        """Runs whose record is new or was written in the last commit."""
        before, now, _ = self._changed
        if before is not self.before or now is not self.now:
            runs = [it for name, it in self.now.runs.items() if self.before.runs.get(name) != it]
            self._changed = (self.before, self.now, runs)
        return self._changed[2]

    def parallelism(self, uid: str) -> int | None:
        """In force now; None for what runs nothing."""
        resource = self.now.resources.get(uid)
        if resource is None or not spec(resource).get("template"):
            return None
        value = spec(resource).get("parallelism")
        placement = spec(resource).get("placement", {})
        places = placement.get("ordered") or placement.get("anyOf") or [placement]
        return int(value) if value is not None else DEFAULT_PARALLELISM * len(places)

    def parallelism_since(self, uid: str, since_s: float) -> int | None:
        """The greatest parallelism that was in force at any time since then."""
        return self.limit_since(uid, since_s)

    def limit_since(self, key: str, since_s: float) -> int | None:
        """The greatest limit that was in force at any time since then."""
        limits = self.limits.get(key)
        if not limits:
            return None
        before = [limit for at_s, limit in limits if at_s < since_s][-1:]
        return max([*before, *(limit for at_s, limit in limits if at_s >= since_s)], default=0)


Check = Callable[[Scene], Iterator[str]]
