"""What the parts of one engine share; each field names who writes it. Lives on one event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from fleetctl.common.clock import Clock
from fleetctl.controllers.model import Resource
from fleetctl.engine.shared.dependents import Dependents
from fleetctl.engine.shared.inbox import Inbox
from fleetctl.engine.shared.queue import Queue
from fleetctl.engine.shared.settings import Settings
from fleetctl.providers.contract.base import Backend
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.sources import Sources
from fleetctl.tracking.track import Tracks


class Recovery(Protocol):
    """After a store was put back from a backup; see daemon/adoption/recover.py."""

    unasked: set[str]  # providers at which nothing may start yet

    async def begin(self) -> None: ...
    async def go_on(self) -> None: ...


class State:
    """All of it but the store can be lost, and is read back."""

    def __init__(
        self,
        *,
        store: Store,
        providers: Mapping[str, Backend],
        clock: Clock,
        settings: Settings,
        sources: Sources | None = None,
    ) -> None:
        self.store, self.clock, self.settings, self.sources = store, clock, settings, sources
        self.random = Random(settings.seed)  # noqa: S311 - jitter
        self.built_in = frozenset(providers)  # those that nobody has to declare
        # By the engine alone: an account that is declared brings another.
        self.providers = dict(providers)
        # By decide/load.py, decide/intents.py, tick.py and sleeping.py.
        self.tracks = Tracks()
        # Run name -> uid: live runs, and the last of open sandboxes. By decide/load.py,
        # decide/intents.py and observe/records.py.
        self.owner_of: dict[str, str] = {}
        # By decide/load.py, decide/intents.py, tick.py and sleeping.py.
        self.dependents = Dependents()
        self.queue = Queue()  # by anybody
        self.inbox = Inbox(gather_s=settings.news_wait_s)  # by anybody; emptied by tick.py
        self.events: list[EventRow] = []  # by `say`; written and emptied by tick.py
        # Sandboxes without a record yet, whose adoption is under way. By daemon/adoption.
        self.adopting: set[str] = set()
        # Uids of deleted objects that nobody waits for. By daemon/verbs.py.
        self.abandoned: set[str] = set()
        # Uids of sweeps at W&B that are to be talked about at once. By hurry.py; emptied by
        # wandb/talks.py.
        self.hurried: set[str] = set()
        # Uid of an object -> what its calls of endpoints under way may cost at worst, in USD. By
        # endpoints/charging.py.
        self.calling_usd: dict[str, float] = {}
        # Provider -> sandboxes of ours without a record. By execute/orphan_sweep.py.
        self.unrecorded: dict[str, int] = {}
        # Uid of an object that is over -> why what its runs left on disk is to go. By
        # execute/retention.py; lost in a crash, and then found again.
        self.past_retention: dict[str, str] = {}
        # Keys of the status of the settings, as they are known since it was written. By
        # execute/retention.py and backups.
        self.settings_status: dict[str, object] = {}
        # Since when answers to our calls are known. By tick.py, which may start over.
        self.started_at_s = clock.now_s()
        self.recovery: Recovery | None = None  # by daemon/serve.py, before the loop runs
        # Told the uid of an object whose status was written, or that is gone, inside the tick's
        # transaction. By operator/mirror, which alone asks for it.
        self.on_change: Callable[[str], None] | None = None

    def say(self, uid: str, reason: str, message: str, *, kind: str = "Normal") -> None:
        """An event for people; written after the tick's transaction."""
        self.events.append(EventRow(uid, self.clock.now_s(), kind, reason, message))

    def changed(self, uid: str) -> None:
        """Its status was written, or it is gone."""
        if self.on_change is not None:
            self.on_change(uid)

    def poke(self, uid: str) -> None:
        """A spec changed."""
        self.queue.add(uid)
        self.inbox.wake()

    def holds_starts(self, provider: str) -> bool:
        """What it has begun since the backup is not known yet; see adoption/recover.py."""
        return self.recovery is not None and provider in self.recovery.unasked

    def backoff_s(self, tries: int) -> float:
        """Doubles per try up to retry_max_s, times a jitter in [0.5, 1.5)."""
        settings = self.settings
        base_s = min(settings.retry_initial_s * 2.0 ** min(tries - 1, 32), settings.retry_max_s)
        return base_s * (0.5 + self.random.random())

    def resource_of(self, uid: str) -> Resource | None:
        """As it is in memory, or of one that is over; None once it is deleted."""
        track = self.tracks.get(uid)
        return self.store.resources.of(uid) if track is None else track.resource

    def live_runs(self) -> int:
        return sum(len(it.work.history.live) for it in self.tracks.values() if it.work is not None)
