"""The parts of an engine: each carries out a kind of objects, or adds to what is decided for all.

The loop, its ticks and its passes call the hooks below on every part, in the order of
engine.py, and know no part by name. A part overrides what it needs; each hook does nothing by
itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from fleetctl.controllers.planning.plan import Plan
from fleetctl.controllers.schedule.desired import DesiredObject
from fleetctl.controllers.status_keys import Status
from fleetctl.specs.values.hints import HintedText
from fleetctl.tracking.track import ResourceWork, Track

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource, Run
    from fleetctl.engine.shared.engine_state import EngineState

Helper = Callable[[], Awaitable[None]]
Found = TypeVar("Found")


@dataclass(frozen=True)
class WorkDecision:
    """The decision of a pass over an object that does work."""

    work: ResourceWork
    desired: DesiredObject
    plan: Plan
    now_s: float

    @cached_property
    def next_unit(self) -> int | None:
        """The unit whose parameters are to be computed, as it could start at once. Not earlier:
        until then other trials may end, and the search has to know them.
        """
        plan = self.plan
        desired = self.desired
        waits = plan.at_capacity or plan.denied or plan.queued
        if plan.final or waits or desired.controller.policy.suspend:
            return None
        if desired.deleted or desired.blocked:
            return None
        return desired.controller.asks(self.work.history)

    @property
    def most_units(self) -> int:
        """How many units may be live at once."""
        controller = self.desired.controller
        if controller.policy.parallelism is not None:
            return controller.policy.parallelism
        names = controller.candidates
        return sum(it for name, it in self.desired.providers.items() if name in names)


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """A call for a run, once it has ended. what: create, begin or stop. problem: the reason of its
    failure, or empty.
    """

    uid: str
    run: str
    provider: str
    what: str
    began_at_s: float
    ended_at_s: float
    problem: str = ""


class EnginePart:
    kind: ClassVar[str] = ""  # whose objects it carries out
    # Its objects apply from the tick in which they are written, whichever pass comes first.
    applies_at_once: ClassVar[bool] = False
    # The kinds of work that its hooks of work are about; empty: all.
    works_for: ClassVar[frozenset[str]] = frozenset()
    # It rests until an object of its kind is declared: hooks of ticks and passes are called only
    # from then on, and hooks of passes for each object with this field in its spec.
    rests: bool = False
    field: ClassVar[str] = ""
    # `run_pass` and `remove` decide for its objects; False: they are assets, to which it may add.
    makes_passes: ClassVar[bool] = False

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        raise NotImplementedError(f"{cls.__name__} says how it is built")

    # -- a tick, in this order ---------------------------------------------------------------------

    def load(self) -> None:
        """Reads its state back, once the tracks are loaded."""

    def row_written(self, row: Resource) -> None:
        """Takes in an object that was written, or removed, since the last tick."""

    def take(self, uid: str) -> None:
        """Takes in an object of its kind; for parts that apply at once."""

    def begin_tick(self, _now_s: float) -> Iterable[str]:
        """Counts; returns the uids of objects that this tick has to look at."""
        return ()

    def order(self, uids: list[str], _rows: Mapping[str, Resource]) -> list[str]:
        """Returns the same uids in the order of their passes. rows: that were written since."""
        return uids

    def end_tick(self) -> Iterable[str]:
        """Returns the uids of objects that need one more pass in this tick."""
        return ()

    def committed(self) -> None:
        """Takes note that the tick is durable; its effects begin after this."""

    def forget(self) -> None:
        """Drops what it received since the last commit, as the tick is undone; `load` follows."""

    # -- passes over objects of its kind -----------------------------------------------------------

    def begin_pass(self, track: Track) -> None:
        """Takes in the object as it is stored, before its pass."""

    def run_pass(self, track: Track, now_s: float) -> Status:
        """Carries out the object; returns its status. For parts that make passes."""
        raise NotImplementedError(f"{type(self).__name__} makes no passes")

    def remove(self, _track: Track) -> Status | None:
        """Removes a deleted object; returns its status, None once nothing is left of it."""
        return None

    def find_lack(self, _track: Track) -> tuple[str, HintedText] | None:
        """Returns reason and sentence of what an asset lacks, such as a server."""
        return None

    def limit_asset(self, _track: Track, plan: Plan) -> Plan:
        """Returns the plan of an asset, or one that waits."""
        return plan

    def add_status(
        self,
        _track: Track,
        status: Status,
        _now_s: float,
    ) -> Status:
        """Returns the status of an asset with what this part knows of it."""
        return status

    # -- passes over objects that do work ----------------------------------------------------------

    def begin_work(self, work: ResourceWork) -> None:
        """Gives the object's controller what came from elsewhere."""

    def list_inputs(self, _work: ResourceWork, _now_s: float) -> Mapping[str, Any]:
        """Returns fields of DesiredObject."""
        return {}

    def take_decision(self, decision: WorkDecision) -> None:
        """Takes note of what was decided."""

    def run_ended(
        self,
        work: ResourceWork,
        run: Run,
        result: str | None,
    ) -> None:
        """Takes the record of a run that ended, in the transaction that writes it."""

    # -- calls of providers, beside the ticks ------------------------------------------------------

    def list_variables(self, _work: ResourceWork, _run: Run) -> Mapping[str, str]:
        """Returns variables for the program of a run that is about to start."""
        return {}

    def call_ended(self, call: ProviderCall) -> None:
        """Takes note of a call that the provider has answered, or not."""

    # -- passes over any object --------------------------------------------------------------------

    def status_written(
        self,
        track: Track,
        before: Mapping[str, object],
        after: Mapping[str, object],
    ) -> None:
        """Takes a new status, in the transaction that writes it."""

    def object_moved(self, track: Track) -> None:
        """Takes an object of another phase or generation, for which other objects may wait."""

    def pass_failed(self, uid: str) -> None:
        """Takes note of a pass that raised."""

    def dropped(self, track: Track) -> None:
        """Takes note of an object whose last row is removed in this transaction."""

    # -- beside the ticks --------------------------------------------------------------------------

    def list_helpers(self) -> tuple[Helper, ...]:
        """Returns loops that run as long as the engine does."""
        return ()

    def is_idle(self) -> bool:
        """Returns whether a controller has nothing to wait for here."""
        return True

    async def close(self) -> None:
        """Ends what it has under way."""


class EngineParts:
    """All parts of an engine, in order. declared: the kinds of which there are objects; a part that
    rests without its own is not entered. None: no part rests.
    """

    def __init__(
        self,
        parts: Iterable[EnginePart] = (),
        *,
        declared: Container[str] | None = None,
    ) -> None:
        self._declared = declared
        self._parts: list[EnginePart] = []
        self._by_kind: dict[str, EnginePart] = {}
        self._that: dict[tuple[str, str], tuple[EnginePart, ...]] = {}
        self.at_once: dict[str, EnginePart] = {}  # those that apply at once, by kind
        for part in parts:
            self.add(part)

    def __iter__(self) -> Iterator[EnginePart]:
        return iter(self._parts)

    def add(self, part: EnginePart) -> None:
        self._parts.append(part)
        self._that.clear()
        if part.kind:
            self._by_kind[part.kind] = part
        if part.applies_at_once:
            self.at_once[part.kind] = part

    def of_kind(self, kind: str) -> EnginePart | None:
        """Returns the part that carries out a kind; None for one without behavior of its own."""
        return self._by_kind.get(kind)

    def get(self, sort: type[Found]) -> Found:
        """Returns the part of this class."""
        for part in self._parts:
            if isinstance(part, sort):
                return part
        raise LookupError(f"no part is a {sort.__name__}")

    def that(self, hook: str, kind: str = "") -> tuple[EnginePart, ...]:
        """Returns the parts that have this hook, in order: a part without it is never entered.
        kind: of the work that it is called for.
        """
        found = self._that.get((hook, kind))
        if found is None:
            bare = getattr(EnginePart, hook)
            about = (it for it in self._parts if not (it.works_for and kind not in it.works_for))
            found = tuple(it for it in about if getattr(type(it), hook) is not bare)
            self._that[hook, kind] = found
        return found

    def awake(self, hook: str) -> Iterator[EnginePart]:
        """Yields the parts that have this hook and do not rest."""
        for part in self.that(hook):
            if not self._rests(part):
                yield part

    def awake_for(self, hook: str, track: Track) -> Iterator[EnginePart]:
        """Yields the parts that have this hook and whom this object concerns."""
        for part in self.that(hook, track.resource.kind):
            if not self._rests(part) or (part.field and getattr(track.spec, part.field, None)):
                yield part

    def _rests(self, part: EnginePart) -> bool:
        declared = self._declared
        return part.rests and declared is not None and part.kind not in declared

    def list_variables(self, work: ResourceWork, run: Run) -> dict[str, str]:
        """Returns the variables that parts give to a run's program."""
        found: dict[str, str] = {}
        for part in self.awake_for("list_variables", work.track):
            found |= part.list_variables(work, run)
        return found

    def list_inputs(self, work: ResourceWork, now_s: float) -> dict[str, Any]:
        """Returns the fields of DesiredObject that parts add."""
        found: dict[str, Any] = {}
        for part in self.awake_for("list_inputs", work.track):
            found |= part.list_inputs(work, now_s)
        return found


class PartWiring:
    """The objects that a part may be built from.

    services: an EngineServices; secrets, accounts, aside: as Engine has them. parts: those that are
    built by now. others: by class, such as a PriceBook.
    """

    def __init__(
        self,
        state: EngineState,
        *,
        services: Any,
        secrets: Any,
        aside: Any,
        parts: EngineParts,
        others: Iterable[object],
    ) -> None:
        self.state, self.services, self.secrets, self.aside = state, services, secrets, aside
        self.parts = parts
        self._others = tuple(others)

    def get(self, sort: type[Found]) -> Found:
        """Returns the part of this class that was built before, or another object of it."""
        for known in self._others:
            if isinstance(known, sort):
                return known
        return self.parts.get(sort)
