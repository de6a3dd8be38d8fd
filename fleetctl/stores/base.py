"""Defines a store, for the one process that writes it, with the notices that it keeps until they
are delivered.

The CLI does not use a store, but reads through `read/reader.py`. A store never calls a provider and
takes no decisions. tests/contracts/test_store.py is the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from typing import Protocol

from fleetctl.controllers.kinds.notices import Notice
from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState, SavedCheckpoint
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

FROM_NOW = 1 << 62  # for `watch`: beyond every change that there is
EVENTS_PER_OBJECT_MAX = 1000
EVENT_REPEAT_S = 60.0  # equal events closer than this are counted, not repeated
EVENT_MESSAGE_CHARS_MAX = 2048
# One entry is some 200 bytes beside its result, so that this many are 50 MB at the most usual: what
# some hundred large jobs did last.
CACHE_ROWS_MAX = 200_000
CACHE_BYTES_MAX = 256 << 20  # results are at most 256 KiB each, and most are far below 1 KiB

# Delivered and given up ones that stay to be seen; about 1 KB each.
NOTICES_KEPT_MAX = 2000


@dataclass(frozen=True, slots=True)
class EventRow:
    """One sentence about an object, for users, and what they can do about it. Equal (uid, reason,
    message, hint) within a minute are counted, not repeated.
    """

    uid: str
    at_s: float
    kind: str  # Normal | Warning
    reason: str
    message: str
    count: int = 1
    hint: str = ""


@dataclass(frozen=True, slots=True)
class CachedSuccess:
    """A success under the key of its content."""

    template_key: str
    unit_key: str
    result: str | None  # canonical JSON object
    metrics: str  # JSON object: the last value of each, null for what is not a number
    run: str
    object: str  # its key
    index: int
    duration_s: float | None
    usd: float | None
    ended_at_s: float
    owner: str  # the uid of the object that may take it as its own


@dataclass(frozen=True, slots=True)
class ReuseScope:
    """Selects the successes that an object may take over. owners: uids of objects that had them,
    the preferred first; shared: also those of all other objects. after_s: only successes that ended
    later, in seconds since the epoch.
    """

    owners: tuple[str, ...]
    shared: bool = False
    after_s: float = -inf


class ResourceStore(Protocol):
    """Specs. spec and status are written by different verbs, so that neither overwrites the other
    (M2).
    """

    def get(
        self,
        kind: str,
        name: str,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Resource | None:
        """Returns the living resource of that name; one that is being deleted is not found here."""
        ...

    def of(self, uid: str) -> Resource | None:
        """Returns the resource with this uid, also while it is being deleted; None once it is
        dropped.
        """
        ...

    def living(self, kind: str) -> Sequence[Resource]:
        """Returns the resources of a kind that are not being deleted, oldest first. Reads no
        others.
        """
        ...

    def naming(self, text: str) -> Sequence[Resource]:
        """Returns the living resources that have this text in their stored spec, oldest first; to
        find it reads no row of the others.
        """
        ...

    def annotations(self) -> Sequence[dict[str, str]]:
        """Returns the annotations of every resource that has any, equal ones once."""
        ...

    def list(self) -> Sequence[Resource]:
        """Returns all resources, also those being deleted, oldest first."""
        ...

    def put(self, resource: Resource, *, expected_version: int | None) -> Resource:
        """Creates (expected_version None) or replaces spec, name, labels, annotations, generation
        and deleted_at_s.

        Returns the row with its new version; the stored status is kept. Raises Conflict when the
        living name exists, or the stored version is another (replace). `deleted_at_s` is never
        unset.
        """
        ...

    def put_status(
        self,
        uid: str,
        status: str,
        *,
        expected_version: int,
    ) -> int | None:
        """Writes the status only. Returns the new version, or None when the row has another version
        or is gone.
        """
        ...

    def delete(self, uid: str) -> None:
        """Deletes the resource: it and its runs are no longer found here. Idempotent.

        Its records stay for users' queries, until GoneStore.forget takes them.
        """
        ...

    def watch(self, after: int) -> tuple[int, Sequence[Resource]]:
        """Returns the store-wide counter of writes, and the resources put after `after`, in order.

        Rises with every put and delete, not with a status, and never falls, across openings too. A
        dropped resource is not among them: it only moves the counter.
        """
        ...


class SleepStore(Protocol):
    """The objects that a controller must look at by itself: all but those that were put to sleep.
    Every write of a resource's spec or status wakes it.
    """

    def put(
        self,
        uid: str,
        *,
        until_s: float | None,
        expected_version: int,
    ) -> bool:
        """Marks a finished object asleep: it has no work due before until_s (None = ever). False
        when the row has another version or is gone: a newer request exists.
        """
        ...

    def awake(self, now_s: float) -> Sequence[str]:
        """Returns the uids of the objects that do not sleep now, oldest first. Costs as much as
        their number.
        """
        ...

    def next_at_s(self, now_s: float) -> float | None:
        """Returns when the first sleeping resource is due, after now_s; None when no resource
        sleeps.
        """
        ...


class RunStore(Protocol):
    def begin(self, runs: Sequence[Run]) -> None:
        """Inserts intents. Raises Conflict when a name exists: attempt numbers are never reused."""
        ...

    def advance(
        self,
        run: Run,
        *,
        from_states: frozenset[RunState] = LIVE_STATES,
        result: str | None = None,
        metrics: Sequence[Metric] = (),
        saved: Sequence[SavedCheckpoint] = (),
    ) -> bool:
        """Replaces the row of run.name if its stored state is in from_states; False = stale, and
        the row is unchanged. A run that was put aside stays so.

        The result, the metrics and the checkpoints are written with it or not at all; an existing
        one is kept once.
        """
        ...

    def of(self, uid: str) -> Iterator[tuple[Run, str | None]]:
        """Yields every run of a resource with its result, ordered by (index, attempt). Streams."""
        ...

    def checkpoints_of(self, uid: str) -> Sequence[SavedCheckpoint]:
        """Returns the checkpoints of all runs of a resource, the newest last."""
        ...

    def calls_usd_of(self, uid: str) -> float:
        """Returns the cost of calls to model endpoints, of all runs of a resource."""
        ...

    def metrics_of(self, run: str, *, after: int = -1, limit: int = -1) -> Sequence[Metric]:
        """Returns reports of the run, by seq: those beyond `after`, at most `limit` (-1: all)."""
        ...

    def last_values_of(self, run: str) -> Mapping[str, float]:
        """Returns the last finite number of each metric of the run."""
        ...

    def thin(self, uid: str) -> bool:
        """Takes a small step towards keeping only the last value of each metric of each run. False
        = it is complete.
        """
        ...

    def last_step(self, run: str) -> int | None:
        """Returns the greatest step that the run reported; None without a report."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The charges of ended runs on one day, for objects of a namespace with these labels."""

    day: int  # since 1970, UTC
    labels: dict[str, str]
    usd: float
    unpriced_s: float = 0.0
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class CallSums:
    """The requests to an endpoint: sums. hits: replies from a cache. refused: by a limit or a
    budget. unpriced: calls of models of unknown price.
    """

    calls: int = 0
    tries: int = 0
    fallbacks: int = 0
    hits: int = 0
    refused: int = 0
    unpriced: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class EndpointUsage:
    """All requests from a run to one endpoint, as its gateway counted them last. times_ms: waiting
    for a slot, p50 and p95, and replying, p50 and p95; None while unknown.
    """

    run: str
    endpoint: str  # its name
    endpoint_uid: str  # empty: it is gone
    total: CallSums
    times_ms: tuple[float | None, float | None, float | None, float | None] = (None,) * 4


class CallStore(Protocol):
    """The requests of runs to model endpoints. Removed with the runs; the sums are removed with the
    endpoint.
    """

    def record(self, usages: Sequence[EndpointUsage]) -> list[float]:
        """Replaces the stored counts by these, and adds the difference to the sum of the endpoint.
        Returns by how many USD each usage has risen; a repeated report adds zero.
        """
        ...

    def sum_of(self, endpoint_uid: str) -> CallSums: ...

    def forget(self, endpoint_uid: str) -> None:
        """Deletes the sum of an endpoint that is deleted, or about to be."""
        ...


class LedgerStore(Protocol):
    """Spending that outlives its objects: dropping a resource leaves it unchanged."""

    def add(self, entries: Sequence[LedgerEntry]) -> None:
        """Adds entries to the existing one of the same day, namespace and labels."""
        ...

    def entries(self) -> Sequence[LedgerEntry]:
        """Returns all entries, oldest first; one for each day, namespace and set of labels."""
        ...


class CreateStore(Protocol):
    """Times of requests for new sandboxes, at providers that limit how many a minute."""

    def add(
        self,
        provider: str,
        at_s: float,
        *,
        forget_until_s: float,
    ) -> None:
        """Records one more create; drops those up to forget_until_s."""
        ...

    def times(self, provider: str) -> Sequence[float]:
        """Returns times in ascending order; some may be older than a minute."""
        ...


class CacheStore(Protocol):
    """The successes, by content and owner. Removed with the owner; the oldest are removed when
    there are too many.
    """

    def remember(self, successes: Sequence[CachedSuccess]) -> None:
        """Stores successes, each replacing an older one with the same keys and owner."""
        ...

    def recall(self, template_key: str, among: ReuseScope) -> Collection[str]:
        """Returns the unit keys that are known below this template key."""
        ...

    def get(
        self,
        template_key: str,
        unit_key: str,
        among: ReuseScope,
    ) -> CachedSuccess | None:
        """Returns the first owner's success, where it has one; else the newest."""
        ...

    def hand_on(self, owner: str, heir: str) -> None:
        """Copies the owner's successes to its heir: an object that replaces it."""
        ...

    def forget(self, owner: str) -> None:
        """Drops all successes of this owner, which is, or is about to be, deleted."""
        ...

    def put_aside(self, runs: Sequence[str]) -> None:
        """Excludes the results of these runs."""
        ...


class GoneStore(Protocol):
    """The records of deleted objects: last status, runs, results, metrics, events."""

    def forget(
        self,
        *,
        until_s: float,
        bytes_max: int,
        objects_max: int,
    ) -> bool:
        """Takes a small step towards removing the records of objects deleted by until_s, and
        towards the two limits: the oldest goes first. False = it is complete.
        """
        ...


class EventStore(Protocol):
    def record(self, events: Sequence[EventRow]) -> None:
        """Appends events, collapsing repeats; keeps the newest EVENTS_PER_OBJECT_MAX. Not durable
        against power loss.
        """
        ...

    def replace(self, last: EventRow) -> None:
        """Replaces all events of this object by this one, which reports it."""
        ...


class ReadableStore(Protocol):
    """The rows that a decision reads; the writer's store and a read-only one alike."""

    @property
    def store_id(self) -> str: ...

    @property
    def resources(self) -> ResourceStore: ...

    @property
    def runs(self) -> RunStore: ...

    @property
    def cache(self) -> CacheStore: ...


class Store(Protocol):
    """The writer. Holding it means holding the state directory's lock and the newest epoch."""

    @property
    def store_id(self) -> str:
        """Returns a random id, made with the store: the owner tag on everything that we create."""
        ...

    @property
    def resources(self) -> ResourceStore: ...

    @property
    def sleep(self) -> SleepStore: ...

    @property
    def runs(self) -> RunStore: ...

    @property
    def ledger(self) -> LedgerStore: ...

    @property
    def calls(self) -> CallStore: ...

    @property
    def creates(self) -> CreateStore: ...

    @property
    def cache(self) -> CacheStore: ...

    @property
    def events(self) -> EventStore: ...

    @property
    def gone(self) -> GoneStore: ...

    def shrink(self) -> bool:
        """Returns a little of the freed space in the files to the disk. True if there is more. To
        be called inside a transaction.
        """
        ...

    @property
    def notices(self) -> NoticeStore: ...

    def close(self) -> None:
        """Releases the lock. Idempotent."""
        ...

    def whole(self) -> AbstractContextManager[None]:
        """Groups writes inside a transaction: all writes of the block count, or if it raises, they
        are undone, and the transaction goes on. Not nested.
        """
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Makes all writes inside durable together when the block ends, or undoes them all.

        One barrier per block (power loss included). Raises StoreError when the disk refuses, when
        another process has taken a newer epoch, and on nesting. Writes outside a block are an error
        of ours.
        """
        ...


class NoticeStore(Protocol):
    def add(self, notices: Sequence[Notice]) -> None:
        """Adds new notices: an existing row with this id, for this sink, stays as it is."""
        ...

    def waiting(self, *, after: int, count_max: int) -> Sequence[Notice]:
        """Returns unsent notices, neither delivered nor given up, the first with a number above
        `after`.
        """
        ...

    def advance(self, notices: Sequence[Notice]) -> None:
        """Writes state, tries, due_at_s, message, problem and ended_at_s of notices that still
        wait, by number. The newest NOTICES_KEPT_MAX finished ones stay.
        """
        ...
