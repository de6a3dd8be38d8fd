"""One resource as the engine holds it in memory: its row, the state of calls for it, and the names
of its runs.

Every field can be dropped and read back from the store; no fact that matters is held here alone.
Its Work runs its units.
"""

from __future__ import annotations

import json
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.open_sandboxes import SandboxCountKey
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind_controller import KindController
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, AssetAction, CloseSandbox, Shortage
from fleetctl.controllers.reuse.content_keys import ReuseKey, WorkContent
from fleetctl.controllers.schedule.desired import PriorStatus, StartWait
from fleetctl.controllers.status import prior_of
from fleetctl.providers.contract.base import ServerAddress
from fleetctl.specs.values.hints import NO_TEXT, HintedText
from fleetctl.specs.values.scalars import Spec

RUN_NAME_LENGTH = 29  # `fl-` and 26 characters: 130 bits, valid as a DNS-1123 label everywhere


@dataclass(slots=True)
class Track:
    """One resource in memory. Read by the loop and its calls; changed by the loop alone.

    work: None for kinds without runs, and until the first pass. The fields below it outlast a
    change of the spec, as calls do.
    """

    resource: Resource
    status: dict[str, object]
    spec: Spec | None = None
    work: ResourceWork | None = None
    waits: dict[str, StartWait] = field(default_factory=dict)  # run name -> why it has not started
    # run name -> why it has not ended yet
    held: dict[str, HintedText] = field(default_factory=dict)
    calls: dict[str, RunCalls] = field(
        default_factory=dict
    )  # run or sandbox name -> its provider calls
    latest: dict[str, dict[str, float]] = field(default_factory=dict)  # run -> last metric values
    asset: Asset = field(default_factory=lambda: Asset())
    asset_actions: list[CloseSandbox | AssetAction] = field(
        default_factory=list
    )  # of the last plan, for drive
    shortages: dict[str, Shortage] = field(default_factory=dict)  # provider -> shortage seen there
    # (template hash, provider) -> why the provider refuses that template
    refusals: dict[tuple[str, str], str] = field(default_factory=dict)
    # The same for a first refusal -> when a second one counts.
    doubts: dict[tuple[str, str], float] = field(default_factory=dict)
    missing: dict[str, float] = field(
        default_factory=dict
    )  # run -> when the first reply of its provider came that it is gone
    spilled_to: set[str] = field(default_factory=set)  # providers named in an event already
    passes_failed: int = 0
    begun_with: dict[str, str] = field(
        default_factory=dict
    )  # run -> content key, where other objects have a say in it
    _read: tuple[dict[str, object], PriorStatus] | None = None  # a status, and its parsed form
    _held: Mapping[SandboxCountKey, int] = field(
        default_factory=dict
    )  # by the work that was outdated

    @property
    def prior(self) -> PriorStatus:
        """Parses the status once: a status is replaced and never changed."""
        if self._read is None or self._read[0] is not self.status:
            self._read = self.status, prior_of(self.status)
        return self._read[1]

    @property
    def dormant(self) -> bool:
        """Returns true for a finished object, at this generation, that is not being deleted: its
        runs need not be read."""
        over = self.status.get("phase") in TERMINAL_PHASES
        current = self.status.get("observedGeneration") == self.resource.generation
        return over and current and self.resource.deleted_at_s is None

    @property
    def free_at_s(self) -> float | None:
        """Returns when the leavings of a dormant object's runs are to be freed; None for never."""
        if '"ttlSecondsAfterFinished"' not in self.resource.spec or self.prior.scratch_freed:
            return None
        ttl_s = json.loads(self.resource.spec).get("ttlSecondsAfterFinished")
        since_s = self.prior.completed_at_s
        return None if ttl_s is None or since_s is None else since_s + ttl_s

    def release(self) -> None:
        """Drops data that only a pass needs; it is read back for the next pass."""
        self.outdate()
        self._held = {}
        self.asset_actions = []
        for memory in (self.waits, self.held, self.calls, self.latest, self.missing):
            memory.clear()
        self.begun_with.clear()
        self.forget_places()

    def outdate(self) -> None:
        """Marks the spec as changed or unreadable: the next pass reads it and the rows again."""
        if self.work is not None:
            self._held = dict(self.work.history.sandboxes.held.counts)
        self.spec = None
        self.work = None

    @property
    def places(self) -> Mapping[SandboxCountKey, int]:
        """Returns how many sandboxes it holds of each sort; until it is read again, the last known:
        they still exist, and count against every limit.
        """
        return self._held if self.work is None else self.work.history.sandboxes.held.counts

    def forget_places(self) -> None:
        """Drops the facts on providers, which are found out again."""
        self.shortages.clear()
        self.refusals.clear()
        self.doubts.clear()
        self.spilled_to.clear()

    @property
    def over(self) -> bool:
        """Returns true if no part of the resource can still need a volume."""
        ending = self.work is not None and self.resource.deleted_at_s is not None
        return self.dormant or (ending and self.work is not None and not self.work.history.live)


@dataclass(slots=True, eq=False)
class ResourceWork:
    """The state that runs a resource's units, from the pass that reads it until it has finished.
    Functions that deal with runs take it; a Track without runs has no Work.

    cached: units with a known result. uncached: why none can have one. contents: Contents.memo.
    """

    track: Track
    controller: KindController
    history: History
    cached: dict[int, ReuseKey] = field(default_factory=dict)
    uncached: str = ""
    contents: dict[tuple[str, str], WorkContent] = field(default_factory=dict)
    remarks: int = 0  # events on reports that could not be read as metrics
    # sentences about checkpoints that stay, reported once
    left: set[str] = field(default_factory=set)
    release_key: str = ""  # see controllers/depends/edges.py; empty until computed

    @property
    def resource(self) -> Resource:
        return self.track.resource


@dataclass(slots=True)
class RunCalls:
    """The engine's memory of its calls for one run. Lost in a crash, and safe to lose."""

    busy: str = ""  # `start` or `stop` while a call is under way
    tries: int = 0
    retry_at_s: float = 0.0
    asked_at_s: float = 0.0  # when the last start began
    appeared_at_s: float = 0.0  # end of the last call after which the run could still appear
    short_since_s: float | None = None  # since when its start reports that there is no room
    # Every reply so far confirms that no sandbox was made; a restart knows no reply.
    nothing_made: bool = False
    held_from_s: float | None = None  # begin of the first start that may have made one


@dataclass(slots=True)
class Asset:
    """The confirmed state of a volume or a function, or of a deleted resource's leavings."""

    busy: bool = False
    ready: bool = False
    removed: bool = False
    freed: bool = False  # scratch without logs
    swept: bool = False  # logs too
    problem: HintedText = NO_TEXT
    tries: int = 0
    retry_at_s: float = 0.0
    # For a Function with a server: the server's address, and the containers seen last; None = not
    # read since this controller began.
    address: ServerAddress | None = None
    containers: int | None = None
    warning: str = ""  # why its server did not become ready, at the last check


class Tracks(dict[str, Track]):
    """All unfinished objects in the engine's memory, by uid. Changed by these verbs alone.

    assets: those that run no work. They are few, and every end of an object reads them.
    asset_kinds: kinds of the assets that were ever in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.assets: dict[str, Track] = {}
        self.asset_kinds: set[str] = set()

    def hold(self, track: Track) -> Track:
        uid = track.resource.uid
        self[uid] = track
        if track.resource.kind not in CONTROLLERS:
            self.assets[uid] = track
            self.asset_kinds.add(track.resource.kind)
        return track

    def of_kind(self, kind: str) -> list[Track]:
        """Returns the objects of a kind that runs no work, deleted ones too."""
        return [it for it in self.assets.values() if it.resource.kind == kind]

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
    # A server's address and its key are in memory alone: its provider is asked again.
    told = "url" not in status
    track.asset.ready = current and told and status.get("phase") == "Ready"
    return track


def run_name(
    store_id: str,
    uid: str,
    index: int,
    attempt: int,
) -> str:
    """Returns the name of an attempt, the same after every restart."""
    digest = blake2b(f"{store_id}/{uid}/{index}/{attempt}".encode(), digest_size=17).digest()
    return "fl-" + b32encode(digest).decode().lower()[:26]
