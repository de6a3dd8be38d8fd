"""One resource as the engine holds it in memory: the row, its controller and its history.

Everything here can be dropped and read back from the store; nothing is known here alone that
matters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fleetctl.controllers.cache import Content, Key
from fleetctl.controllers.history.curves import Curves
from fleetctl.controllers.history.facts import Score
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.replay import Replayed, replay
from fleetctl.controllers.kind import KindController, outdated, superseded
from fleetctl.controllers.kinds import CONTROLLERS
from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState
from fleetctl.controllers.plan import TERMINAL_PHASES, AssetAction, CloseSandbox, Shortage
from fleetctl.controllers.status import prior_of
from fleetctl.controllers.unreadable import Leaving
from fleetctl.controllers.wish import Prior, Wait
from fleetctl.specs.kinds import parse_spec
from fleetctl.specs.values.scalars import Spec
from fleetctl.stores.base import RunStore
from fleetctl.tracking.annotations import pins_of


@dataclass(slots=True)
class Track:
    """Read by the loop and its effects; changed by the loop alone.

    controller is None for kinds without runs, and until the first pass.
    """

    resource: Resource
    status: dict[str, object]
    spec: Spec | None = None
    controller: KindController | None = None
    history: History | None = None
    waits: dict[str, Wait] = field(default_factory=dict)  # run name -> why it has not started
    held: dict[str, str] = field(default_factory=dict)  # run name -> why it is not over yet
    calls: dict[str, Call] = field(
        default_factory=dict
    )  # run or sandbox name -> its provider calls
    latest: dict[str, dict[str, float]] = field(default_factory=dict)  # run -> last metric values
    asset: Asset = field(default_factory=lambda: Asset())
    asset_actions: list[CloseSandbox | AssetAction] = field(
        default_factory=list
    )  # of the last plan, for drive
    shortages: dict[str, Shortage] = field(default_factory=dict)  # provider -> what was learned
    # (template hash, provider) -> why the provider does not take that template
    refusals: dict[tuple[str, str], str] = field(default_factory=dict)
    # The same of what was refused once -> when it may be believed, if it is refused again.
    doubts: dict[tuple[str, str], float] = field(default_factory=dict)
    missing: dict[str, float] = field(
        default_factory=dict
    )  # run -> when its provider was asked that said for the first time that it is gone
    spilled_to: set[str] = field(default_factory=set)  # providers that an event has told of
    passes_failed: int = 0
    cached: dict[int, Key] = field(default_factory=dict)  # units with a known result
    uncached: str = ""  # why none can have one
    contents: dict[tuple[str, str], Content] = field(default_factory=dict)  # see Contents.memo
    begun_with: dict[str, str] = field(
        default_factory=dict
    )  # run -> content key, where other objects have a say in it
    _read: tuple[dict[str, object], Prior] | None = None  # a status, and what it says

    @property
    def prior(self) -> Prior:
        """Read from the status once: a status is replaced and never changed."""
        if self._read is None or self._read[0] is not self.status:
            self._read = self.status, prior_of(self.status)
        return self._read[1]

    @property
    def dormant(self) -> bool:
        """Over, at this generation, and not being deleted: its runs need not be read."""
        over = self.status.get("phase") in TERMINAL_PHASES
        current = self.status.get("observedGeneration") == self.resource.generation
        return over and current and self.resource.deleted_at_s is None

    @property
    def free_at_s(self) -> float | None:
        """When what the runs of a dormant one left behind is to be freed; None for never."""
        if '"ttlSecondsAfterFinished"' not in self.resource.spec or self.prior.scratch_freed:
            return None
        ttl_s = json.loads(self.resource.spec).get("ttlSecondsAfterFinished")
        since_s = self.prior.completed_at_s
        return None if ttl_s is None or since_s is None else since_s + ttl_s

    def release(self) -> None:
        """Let go of what only a pass needs; it is read back when there is need of one."""
        self.spec, self.controller, self.history = None, None, None
        self.asset_actions = []
        for memory in (self.waits, self.held, self.calls, self.latest, self.cached, self.missing):
            memory.clear()
        self.begun_with.clear()
        self.contents.clear()
        self.forget_places()

    def forget_places(self) -> None:
        """What was learned of providers is learned anew."""
        self.shortages.clear()
        self.refusals.clear()
        self.doubts.clear()
        self.spilled_to.clear()

    @property
    def over(self) -> bool:
        """Nothing of it can still need a volume."""
        ending = self.history is not None and self.resource.deleted_at_s is not None
        return self.dormant or (ending and self.history is not None and not self.history.live)


@dataclass(slots=True)
class Call:
    """What the engine remembers of its calls for one run. Lost in a crash, and safe to lose."""

    busy: str = ""  # `start` or `stop` while a call is under way
    tries: int = 0
    retry_at_s: float = 0.0
    asked_at_s: float = 0.0  # when the last start began
    appeared_at_s: float = 0.0  # end of the last call after which the run could still appear
    short_since_s: float | None = None  # since when its start is told that there is no room
    # Every answer so far says that no sandbox was made; a restart knows of no answer.
    nothing_made: bool = False
    held_from_s: float | None = None  # begin of the first start that may have made one


@dataclass(slots=True)
class Asset:
    """What is confirmed of a volume or a function, or of a deleted resource's leavings."""

    busy: bool = False
    ready: bool = False
    removed: bool = False
    freed: bool = False  # scratch without logs
    swept: bool = False  # logs too
    problem: str = ""
    tries: int = 0
    retry_at_s: float = 0.0


class Tracks(dict[str, Track]):
    """What the engine holds in memory, by uid: all that is not over. Changed by these verbs alone.

    assets: of those, the ones that run nothing. They are few, and every end of an object asks them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.assets: dict[str, Track] = {}

    def hold(self, track: Track) -> Track:
        uid = track.resource.uid
        self[uid] = track
        if track.resource.kind not in CONTROLLERS:
            self.assets[uid] = track
        return track

    def let_go(self, uid: str) -> None:
        """Idempotent."""
        self.pop(uid, None)
        self.assets.pop(uid, None)

    def forget(self) -> None:
        self.clear()
        self.assets.clear()


def track_of(resource: Resource) -> Track:
    status = json.loads(resource.status) if resource.status else {}
    track = Track(resource, status)
    current = status.get("observedGeneration") == resource.generation
    track.asset.ready = current and status.get("phase") == "Ready"
    return track


def load(track: Track, runs: RunStore, *, rerun: bool = False) -> None:
    """Parse the spec and rebuild the history from the rows; rerun: as if none of them counted.

    Raises pydantic's ValidationError when the stored spec cannot be read by this version and the
    resource is not deleted.
    """
    resource = track.resource
    rows: Iterable[tuple[Run, str | None]] = runs.of(resource.uid)
    try:
        track.spec = parse_spec(resource.kind, resource.spec)
    except ValueError:
        if resource.deleted_at_s is None:
            raise
        # What nobody can read can still be deleted (I23).
        track.controller = Leaving() if resource.kind in CONTROLLERS else None
    else:
        make = CONTROLLERS.get(resource.kind)
        if make is None:
            return
        allocated: dict[str, int] = {}
        if make.keeps_indexes:
            rows = list(rows)
            allocated = {run.params_hash: run.index for run, _ in rows}
        track.controller = make(track.spec, allocated, pins_of(resource.annotations))
        if make.keeps_indexes:
            for run, _ in rows:
                track.controller.recall(run)
    if track.controller is None:
        return
    track.history = History(track.controller.limits, track.controller.curves())
    found: Iterable[Replayed] = _replayed(track.controller, rows, runs)
    if track.history.curves is not None:
        found = _told(found, track.history.curves, runs)
    replay(track.history, map(_discounted, found) if rerun else found)
    for run in track.history.live.values():
        track.latest[run.name] = last_values(runs.metrics_of(run.name))


def last_values(metrics: Sequence[Metric]) -> dict[str, float]:
    """The last value of each metric, as W&B's summary has it."""
    return {metric.name: metric.value for metric in metrics}


def score_of(
    controller: KindController,
    run: Run,
    result: str | None,
    latest: Callable[[], Mapping[str, float]],
) -> Score | None:
    """The unit's value, where its kind compares units; of one that its kind ended, what it reported
    last. `latest` is asked only when the result has none.
    """
    ended = run.state is RunState.STOPPED and run.reason in controller.limits.final
    if not controller.compares or not (ended or run.state is RunState.SUCCEEDED):
        return None
    result = None if ended else result  # half a result says nothing
    value = controller.score(result, {})
    return value if value is not None else controller.score(result, latest())


def _replayed(
    controller: KindController, rows: Iterable[tuple[Run, str | None]], runs: RunStore
) -> Iterator[Replayed]:
    for run, result in rows:
        wanted = controller.unit(run.index) is not None
        score = None
        if wanted:
            score = score_of(controller, run, result, partial(_stored_values, runs, run.name))
        old = outdated(controller, run)
        yield Replayed(run, score, superseded(controller, run), old, wanted)


def _told(rows: Iterable[Replayed], curves: Curves, runs: RunStore) -> Iterator[Replayed]:
    """The rows; what each attempt under the present wish reported is read on the way, before any
    decision: by half of it a trial would be judged wrongly.
    """
    for row in rows:
        if row.wanted and not row.superseded:
            curves.take(row.run.index, row.run.name, runs.metrics_of(row.run.name))
        yield row


def _discounted(row: Replayed) -> Replayed:
    """The success of a wanted unit is to be had anew."""
    counts = row.run.state is RunState.SUCCEEDED and row.wanted and not row.superseded
    over = row.run.state not in LIVE_STATES
    return replace(row, superseded=row.superseded or over, outdated=row.outdated or counts)


def _stored_values(runs: RunStore, run: str) -> dict[str, float]:
    return last_values(runs.metrics_of(run))
