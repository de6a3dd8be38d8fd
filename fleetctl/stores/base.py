"""What a store is, for the one process that writes it. The CLI reads through `read/reader.py`.

Called by the engine and by `cli`'s controller process. A store never calls a provider and decides
nothing. tests/contracts/test_store.py is the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from typing import Protocol

from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState, Saved
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.outbox import NoticeStore

FROM_NOW = 1 << 62  # for `watch`: beyond every change that there is
EVENTS_PER_OBJECT_MAX = 1000
EVENT_REPEAT_S = 60.0  # equal events closer than this are counted, not repeated
EVENT_MESSAGE_CHARS_MAX = 2048
# One entry is some 200 bytes beside its result, so that this many are 50 MB at the most usual: what
# some hundred large jobs did last.
CACHE_ROWS_MAX = 200_000
CACHE_BYTES_MAX = 256 << 20  # results are at most 256 KiB each, and most are far below 1 KiB


@dataclass(frozen=True, slots=True)
class EventRow:
    """One sentence about an object, for people. Equal (uid, reason, message) within a minute are
    counted, not repeated.
    """

    uid: str
    at_s: float
    kind: str  # Normal | Warning
    reason: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Remembered:
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
class Reusable:
    """Says which successes an object may take. owners: uids of the objects that they are of, the
    first to be preferred; shared: those of all others too. after_s: only what ended later, in
    seconds since the epoch.
    """

    owners: tuple[str, ...]
    shared: bool = False
    after_s: float = -inf


class ResourceStore(Protocol):
    """Specs. spec and status are written by different verbs, so that neither overwrites the other
    (M2).
    """

    def get(self, kind: str, name: str, namespace: str = DEFAULT_NAMESPACE) -> Resource | None:
        """The living resource of that name; one that is being deleted is not found here."""
        ...

    def of(self, uid: str) -> Resource | None:
        """The one with this uid, also while it is being deleted; None once it is dropped."""
        ...

    def living(self, kind: str) -> Sequence[Resource]:
        """The resources of a kind that are not being deleted, oldest first. Reads no others."""
        ...

    def naming(self, text: str) -> Sequence[Resource]:
        """The living resources that have this text in their stored spec, oldest first; to find it
        reads no row of the others.
        """
        ...

    def annotations(self) -> Sequence[dict[str, str]]:
        """The annotations of every resource that has any, equal ones once."""
        ...

    def list(self) -> Sequence[Resource]:
        """All, also those being deleted, oldest first."""
        ...

    def put(self, resource: Resource, *, expected_version: int | None) -> Resource:
        """Create (expected_version None) or replace spec, labels, annotations, generation and
        deleted_at_s.

        Returns the row with its new version; the stored status is kept. Raises Conflict when the
        living name exists (create) or the stored version is another (replace). `deleted_at_s` is
        never unset.
        """
        ...

    def put_status(self, uid: str, status: str, *, expected_version: int) -> int | None:
        """Write the status only; the new version, or None when the row has another version or is
        gone.
        """
        ...

    def delete(self, uid: str) -> None:
        """Delete the resource: nothing here knows of it or of its runs any more. Idempotent.

        What it leaves behind stays for people's questions, until GoneStore.forget takes it.
        """
        ...

    def watch(self, after: int) -> tuple[int, Sequence[Resource]]:
        """The store-wide counter of writes, and the resources put after `after`, in order.

        Rises with every put and delete, not with a status, and never falls, across openings too. A
        dropped resource is not among them: it only moves the counter.
        """
        ...


class SleepStore(Protocol):
    """Which objects a controller must look at of itself: all but those that were put to sleep.
    Every write of a resource's spec or status wakes it.
    """

    def put(self, uid: str, *, until_s: float | None, expected_version: int) -> bool:
        """It is over, and nothing of it is due before until_s (None = ever). False when the row has
        another version or is gone: somebody wants something of it.
        """
        ...

    def awake(self, now_s: float) -> Sequence[str]:
        """The uids of those that do not sleep now, oldest first. Costs as much as there are."""
        ...

    def next_at_s(self, now_s: float) -> float | None:
        """When the first resource that sleeps is due, after now_s; None when none sleeps."""
        ...


class RunStore(Protocol):
    def begin(self, runs: Sequence[Run]) -> None:
        """Insert intents. Raises Conflict when a name exists: attempt numbers are never reused."""
        ...

    def advance(
        self,
        run: Run,
        *,
        from_states: frozenset[RunState] = LIVE_STATES,
        result: str | None = None,
        metrics: Sequence[Metric] = (),
        saved: Sequence[Saved] = (),
    ) -> bool:
        """Replace the row of run.name if its stored state is in from_states; False = stale, nothing
        written. What was put aside stays so.

        The result, the metrics and the checkpoints are written with it or not at all; what is
        already there is kept once.
        """
        ...

    def of(self, uid: str) -> Iterator[tuple[Run, str | None]]:
        """Every run of a resource with its result, ordered by (index, attempt). Streams."""
        ...

    def checkpoints_of(self, uid: str) -> Sequence[Saved]:
        """What all runs of a resource saved, the newest last."""
        ...

    def calls_usd_of(self, uid: str) -> float:
        """What the calls of model endpoints came to, of all runs of a resource."""
        ...

    def metrics_of(self, run: str) -> Sequence[Metric]:
        """What the run reported, by seq."""
        ...

    def thin(self, uid: str) -> bool:
        """Take a small step towards keeping only what each metric of each run came to last. False =
        there is nothing to take.
        """
        ...

    def last_step(self, run: str) -> int | None:
        """The greatest step that the run reported; None when it reported none."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """What the ended runs of one day are charged, of objects of a namespace with these labels."""

    day: int  # since 1970, UTC
    labels: dict[str, str]
    usd: float
    unpriced_s: float = 0.0
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class Calls:
    """What was asked of an endpoint: sums. hits: answers that a cache gave. refused: by a limit or
    a budget. unpriced: calls of models of unknown price.
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
class Asked:
    """What one run asked of one endpoint in all, as its gateway counted it last. times_ms: waiting
    for a slot, p50 and p95, and answering, p50 and p95; None while nobody knows.
    """

    run: str
    endpoint: str  # its name
    endpoint_uid: str  # empty: it is gone
    total: Calls
    times_ms: tuple[float | None, float | None, float | None, float | None] = (None,) * 4


class CallStore(Protocol):
    """What runs asked of model endpoints. Goes with the runs; the sums go with the endpoint."""

    def keep(self, asked: Sequence[Asked]) -> list[float]:
        """Put each in place of what was known, and add the difference to the endpoint's sum. By how
        much the USD of each rose; what is heard twice adds nothing.
        """
        ...

    def sum_of(self, endpoint_uid: str) -> Calls: ...

    def forget(self, endpoint_uid: str) -> None:
        """Its sum; it is, or is about to be, deleted."""
        ...


class LedgerStore(Protocol):
    """Spending that outlives its objects: dropping a resource takes nothing out of it."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries to what is there for the same day, namespace and labels."""
        ...

    def entries(self) -> Sequence[Entry]:
        """All, oldest first; one for each day, namespace and set of labels."""
        ...


class CreateStore(Protocol):
    """When new sandboxes were asked for, at providers that limit how many a minute."""

    def add(self, provider: str, at_s: float, *, forget_until_s: float) -> None:
        """Record one more create; those up to forget_until_s matter no more."""
        ...

    def times(self, provider: str) -> Sequence[float]:
        """Ascending; some may be older than a minute."""
        ...


class CacheStore(Protocol):
    """What succeeded, by content and owner. Goes with its owner; the oldest go when there are too
    many.
    """

    def remember(self, successes: Sequence[Remembered]) -> None:
        """Keep them, each in place of an older one of the same keys and owner."""
        ...

    def recall(self, template_key: str, among: Reusable) -> Collection[str]:
        """The unit keys that are known below this template key."""
        ...

    def get(self, template_key: str, unit_key: str, among: Reusable) -> Remembered | None:
        """The first owner's, where it has one; else the newest."""
        ...

    def hand_on(self, owner: str, heir: str) -> None:
        """What this owner has is its heir's too: an object that takes its place."""
        ...

    def forget(self, owner: str) -> None:
        """All of this owner; it is, or is about to be, deleted."""
        ...

    def put_aside(self, runs: Sequence[str]) -> None:
        """What these runs came to counts no more."""
        ...


class GoneStore(Protocol):
    """What objects left behind that are gone: how they stood, runs, results, metrics, events."""

    def forget(self, *, until_s: float, bytes_max: int, objects_max: int) -> bool:
        """Take a small step towards having nothing of objects that went by then, and no more than
        so much: the oldest goes first. False = there is nothing to take.
        """
        ...


class EventStore(Protocol):
    def record(self, events: Sequence[EventRow]) -> None:
        """Append, collapsing repeats; keeps the newest EVENTS_PER_OBJECT_MAX. Not durable against
        power loss.
        """
        ...

    def replace(self, last: EventRow) -> None:
        """Forget all events of this object but this one, which says so."""
        ...


class Stored(Protocol):
    """What a decision reads; the writer's store and a read-only one alike."""

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
        """Random, made with the store: the owner tag on everything that we create."""
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
        """Give a little of the room that was freed in the files back to the disk. Whether there is
        more. To be called inside a transaction.
        """
        ...

    @property
    def notices(self) -> NoticeStore: ...

    def close(self) -> None:
        """Let go of the lock. Idempotent."""
        ...

    def whole(self) -> AbstractContextManager[None]:
        """Inside a transaction: all writes of the block count, or where it raises none of them, and
        the transaction goes on. Not nested.
        """
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """All writes inside become durable together when the block ends, or none of them.

        One barrier per block (power loss included). Raises StoreError when the disk refuses, when
        another process has taken a newer epoch, and on nesting. Writes outside a block are an error
        of ours.
        """
        ...
