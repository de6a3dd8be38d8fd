"""Holds the state that the parts of an engine share, each field with its writer; the counts of what
a controller does; and the pace of the engine.

The state lives on one event loop. The counts decide nothing. Each number of the pace has a unit and
a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from fleetctl.common.clock import Clock
from fleetctl.controllers.model import Resource
from fleetctl.engine.shared.due_queue import Dependents, DueQueue
from fleetctl.engine.shared.messages import Inbox
from fleetctl.providers.contract.base import Backend
from fleetctl.stores.base import EventRow, Store
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.track import Tracks


class Recovery(Protocol):
    """The recovery after a store was restored from a backup; see daemon/adopt.py."""

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
        # Rows that were written since their tracks were read. By tick.py and kinds/source_pass.py;
        # taken in by decide/work_loader.py.
        self.changed_rows: dict[str, Resource] = {}
        # Run name -> uid: live runs, and the last of open sandboxes. By decide/work_loader.py,
        # decide/intents.py and observe/records.py.
        self.owner_of: dict[str, str] = {}
        # By decide/work_loader.py, decide/intents.py, tick.py and sleeping.py.
        self.dependents = Dependents()
        self.queue = DueQueue()  # filled by every part
        self.inbox = Inbox(gather_s=settings.news_wait_s)  # by every part; emptied by tick.py
        self.events: list[EventRow] = []  # added by `say`; written and emptied by tick.py
        # Sandboxes without a record yet, whose adoption is under way. By daemon/adopt.py.
        self.adopting: set[str] = set()
        # Uids of deleted objects that are no longer awaited. By daemon/verbs.py.
        self.abandoned: set[str] = set()
        # Uids of sweeps at W&B whose agent should poll at once. By sleeping.py; emptied by
        # wandb/wandb_agents.py.
        self.hurried: set[str] = set()
        # Uid of an object -> what its calls of endpoints under way may cost at worst, in USD. By
        # endpoints/grants.py.
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
        adopt.py.
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


@dataclass(slots=True)
class CallCounts:
    """Calls of one provider's API. seconds: from each call's begin to its end, without the wait for
    a rate limit; limited: answered with 429; failed: not served, all reasons.
    """

    calls: int = 0
    seconds: float = 0.0
    limited: int = 0
    failed: int = 0


@dataclass(slots=True)
class EngineFigures:
    """The counts. Written by tick.py, by the rate limiter of each provider, and by the sweep.

    orphans: provider -> sandboxes of ours without a record that the sweep found and ended.
    """

    ticks: int = 0
    tick_s: float = 0.0  # with their commits
    tick_failures: int = 0
    commit_s: float = 0.0  # of these, the commits
    orphans: Counter[str] = field(default_factory=Counter)
    calls: dict[str, CallCounts] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Returns them as the controller sends them."""
        return {
            "ticks": self.ticks,
            "tickSeconds": round(self.tick_s, 6),
            "tickFailures": self.tick_failures,
            "commitSeconds": round(self.commit_s, 6),
            "orphans": dict(self.orphans),
            "calls": {
                name: {
                    "calls": counts.calls,
                    "seconds": round(counts.seconds, 6),
                    "limited": counts.limited,
                    "failed": counts.failed,
                }
                for name, counts in self.calls.items()
            },
        }


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The numbers of an engine. Defaults suit one user's machine; the simulator shortens them."""

    # A pass takes about half a millisecond, and a user's request waits for the tick's end.
    keys_per_tick_max: int = 64
    messages_per_tick_max: int = 1024
    # Many live runs make so many events that a tick for each would dominate all other work; a few
    # are handled at once. For each live run beyond those, ticks are this much further apart.
    few_live: int = 16
    tick_gap_each_s: float = 0.0005
    tick_gap_max_s: float = 0.02  # a fiftieth of a one-second task, twice in its life
    # Beyond a few live runs, a third of all ticks would handle events that no object waits for,
    # such as the begin of a run. These are handled in the next tick, or after this delay.
    news_wait_s: float = 0.25  # users hardly see it
    # A run with this many reports in a row is looked at in steps of the gap: of a thousand reports
    # a second each would cost a tick. A user, or a search that stops trials, sees no difference.
    few_reports: int = 5
    report_gap_s: float = 0.1
    resync_s: float = 60.0  # the slow full scan under the watch
    # A sandbox without a record is ended within two minutes of its beginning: a list that lags, the
    # grace, and the next sweep.
    sweep_s: float = 30.0  # how often sandboxes without a record are looked for
    sweep_stops_max: int = 50  # a wrong sweep must not be able to stop everything at once
    sweep_grace_s: float = 30.0  # beyond the provider's visibility bound
    second_look_s: float = 2.0  # until a call that a provider refused is repeated
    retry_initial_s: float = 0.5  # after a call with an unknown outcome, or a refusing world
    retry_max_s: float = 60.0
    stop_again_s: float = 15.0  # an unconfirmed stop is repeated after grace plus this
    pass_retry_max_s: float = 300.0  # an object whose pass raises is looked at ever more rarely
    wandb_beat_s: float = 5.0  # between two heartbeats at W&B, as its own agent has it
    attention_after: int = 5  # failed stops or passes before an event asks a user to look
    # Records of deleted objects (spend, outcomes, events) stay this long, and at most this many.
    keep_deleted_s: float | None = None  # None = the limit of kind Settings and its defaults
    keep_deleted_objects_max: int = 100_000
    forget_every_s: float = 3600.0
    seed: int = 0
