"""One resource as the engine holds it in memory: its row, and what is remembered of calls for it.

Everything here can be dropped and read back from the store; nothing is known here alone that
matters. What runs its units is its Work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.sandboxes import Place
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind import KindController
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, AssetAction, CloseSandbox, Shortage
from fleetctl.controllers.reuse.cache import Content, Key
from fleetctl.controllers.schedule.desired import Prior, Wait
from fleetctl.controllers.status import prior_of
from fleetctl.providers.contract.endpoints import ServerAddress
from fleetctl.specs.values.scalars import Spec


@dataclass(slots=True)
class Track:
    """Read by the loop and its calls; changed by the loop alone.

    work: None for kinds without runs, and until the first pass. What stands below it outlives a
    change of the spec, as calls do.
    """

    resource: Resource
    status: dict[str, object]
    spec: Spec | None = None
    work: Work | None = None
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
    begun_with: dict[str, str] = field(
        default_factory=dict
    )  # run -> content key, where other objects have a say in it
    _read: tuple[dict[str, object], Prior] | None = None  # a status, and what it says
    _held: Mapping[Place, int] = field(default_factory=dict)  # by the work that was outdated

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
        self.outdate()
        self._held = {}
        self.asset_actions = []
        for memory in (self.waits, self.held, self.calls, self.latest, self.missing):
            memory.clear()
        self.begun_with.clear()
        self.forget_places()

    def outdate(self) -> None:
        """The spec is another, or cannot be read: the next pass reads it and the rows anew."""
        if self.work is not None:
            self._held = dict(self.work.history.sandboxes.held.counts)
        self.spec, self.work = None, None

    @property
    def places(self) -> Mapping[Place, int]:
        """How many sandboxes it holds of each sort; until it is read anew, those that it held: they
        are there all the same, and count against every limit.
        """
        return self._held if self.work is None else self.work.history.sandboxes.held.counts

    def forget_places(self) -> None:
        """What was learned of providers is learned anew."""
        self.shortages.clear()
        self.refusals.clear()
        self.doubts.clear()
        self.spilled_to.clear()

    @property
    def over(self) -> bool:
        """Nothing of it can still need a volume."""
        ending = self.work is not None and self.resource.deleted_at_s is not None
        return self.dormant or (ending and self.work is not None and not self.work.history.live)


@dataclass(slots=True, eq=False)
class Work:
    """What runs the units of one resource, from the pass that reads it until it is over. Functions
    that deal with runs take it; a Track without it has none.

    cached: units with a known result. uncached: why none can have one. contents: Contents.memo.
    """

    track: Track
    controller: KindController
    history: History
    cached: dict[int, Key] = field(default_factory=dict)
    uncached: str = ""
    contents: dict[tuple[str, str], Content] = field(default_factory=dict)
    remarks: int = 0  # events that told what could not be read as metrics
    left: set[str] = field(default_factory=set)  # sentences about checkpoints that stay, told once
    release_key: str = ""  # see controllers/depends/released.py; empty until it is asked for

    @property
    def resource(self) -> Resource:
        return self.track.resource


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
    # Of a Function with a server: where it is asked, and the containers seen last; None = nobody
    # has looked since this controller began.
    address: ServerAddress | None = None
    containers: int | None = None
    warning: str = ""  # why its server did not become ready, when it was asked last


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
    # Where a server is asked, and its key, are in memory alone: its provider is to tell them again.
    told = "url" not in status
    track.asset.ready = current and told and status.get("phase") == "Ready"
    return track
