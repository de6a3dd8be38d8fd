"""Holds the state that the parts of an engine share; each field names its writer. Lives on one
event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from fleetctl.common.clock import Clock
from fleetctl.controllers.model import Resource
from fleetctl.engine.shared.dependents import Dependents
from fleetctl.engine.shared.due_queue import DueQueue
from fleetctl.engine.shared.engine_figures import EngineFigures
from fleetctl.engine.shared.engine_settings import EngineSettings
from fleetctl.engine.shared.inbox import Inbox
from fleetctl.providers.contract.base import Backend
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.track import Tracks


class Recovery(Protocol):
    """The recovery after a store was restored from a backup; see daemon/adoption/recover.py."""

    unasked: set[str]  # providers at which starts are not allowed yet

    async def begin(self) -> None: ...
    async def go_on(self) -> None: ...


class EngineState:
    """The shared state. All but the store can be lost, and is read back."""

    def __init__(
        self,
        *,
        store: Store,
        providers: Mapping[str, Backend],
        clock: Clock,
        settings: EngineSettings,
        sources: ManifestSources | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.sources = sources
        self.random = Random(settings.seed)  # noqa: S311 - jitter
        self.built_in = frozenset(providers)  # those that need no declaration
        # By the engine alone: an account that is declared brings another.
        self.providers = dict(providers)
        # By decide/work_loader.py, decide/intents.py, tick.py and sleeping.py.
        self.tracks = Tracks()
        # Rows that were written since their tracks were read. By tick.py and kinds/gitops; taken in
        # by decide/work_loader.py.
        self.changed_rows: dict[str, Resource] = {}
        # Run name -> uid: live runs, and the last of open sandboxes. By decide/work_loader.py,
        # decide/intents.py and observe/records.py.
        self.owner_of: dict[str, str] = {}
        # By decide/work_loader.py, decide/intents.py, tick.py and sleeping.py.
        self.dependents = Dependents()
        self.queue = DueQueue()  # filled by every part
        self.inbox = Inbox(gather_s=settings.news_wait_s)  # by every part; emptied by tick.py
        self.events: list[EventRow] = []  # by `say`; written and emptied by tick.py
        # Sandboxes without a record yet, whose adoption is under way. By daemon/adoption.
        self.adopting: set[str] = set()
        # Uids of deleted objects that are no longer awaited. By daemon/verbs.py.
        self.abandoned: set[str] = set()
        # Uids of sweeps at W&B whose agent should poll at once. By start_nudges.py; emptied by
        # wandb/wandb_agents.py.
        self.hurried: set[str] = set()
        # Uid of an object -> what its calls of endpoints under way may cost at worst, in USD. By
        # endpoints/charging.py.
        self.calling_usd: dict[str, float] = {}
        # Provider -> sandboxes of ours without a record. By execute/orphan_sweep.py.
        self.unrecorded: dict[str, int] = {}
        # Uid of a finished object -> why its runs' files on disk are past retention. By
        # execute/retention.py; lost in a crash, and then found again.
        self.past_retention: dict[str, str] = {}
        # Keys of the status of the settings, as they are known since it was written. By
        # execute/retention.py and backups.
        self.settings_status: dict[str, object] = {}
        self.figures = EngineFigures()  # by tick.py and the rate limiters
        # Since when replies to our calls are known. By tick.py, which may start over.
        self.started_at_s = clock.now_s()
        self.recovery: Recovery | None = None  # by daemon/serve.py, before the loop runs
        # Receives the uid of an object whose status was written, or that is gone, inside the tick's
        # transaction. Set by operator/mirror, its only user.
        self.on_change: Callable[[str], None] | None = None

    def say(
        self,
        uid: str,
        reason: str,
        message: str,
        *,
        hint: str = "",
        kind: str = "Normal",
    ) -> None:
        """Adds an event for users; written after the tick's transaction."""
        self.events.append(
            EventRow(
                uid,
                self.clock.now_s(),
                kind,
                reason,
                message,
                hint=hint,
            )
        )

    def changed(self, uid: str) -> None:
        """Its status was written, or it is gone."""
        if self.on_change is not None:
            self.on_change(uid)

    def poke(self, uid: str) -> None:
        """Schedules a look at an object whose spec changed."""
        self.queue.add(uid)
        self.inbox.wake()

    def holds_starts(self, provider: str) -> bool:
        """Returns true while its sandboxes begun since the backup are not known; see
        adoption/recover.py.
        """
        return self.recovery is not None and provider in self.recovery.unasked

    def backoff_s(self, tries: int) -> float:
        """Doubles per try up to retry_max_s, times a jitter in [0.5, 1.5)."""
        settings = self.settings
        base_s = min(settings.retry_initial_s * 2.0 ** min(tries - 1, 32), settings.retry_max_s)
        return base_s * (0.5 + self.random.random())

    def resource_of(self, uid: str) -> Resource | None:
        """Returns the object in memory, or a finished one from the store; None once it is
        deleted.
        """
        track = self.tracks.get(uid)
        if track is None:
            return self.store.resources.of(uid)
        return track.resource

    def live_runs(self) -> int:
        return sum(len(it.work.history.live) for it in self.tracks.values() if it.work is not None)
