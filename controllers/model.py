"""Defines the records that every floor shares: stored objects, runs, and observations of providers.

Plain frozen data, no pydantic, so that read paths and stores stay light. Imported everywhere;
imports no module of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.specs.values.hints import NO_TEXT, HintedText
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key


class RunState(StrEnum):
    STARTING = "Starting"  # the intent is durable; the provider may or may not have received it
    RUNNING = "Running"  # the provider confirmed the start
    STOPPING = "Stopping"  # the spec to stop is durable; not yet confirmed gone
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"  # the application failed: counts against backoffLimitPerIndex
    LOST = "Lost"  # the infrastructure failed: counts against maxInfraRetries
    STOPPED = "Stopped"  # ended by us; consumes no attempt of either sort
    REFUSED = "Refused"  # the provider refuses this template; never started


LIVE_STATES = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})


# The reason of a run that was not made: an equal unit had succeeded, and its result was taken.
CACHED = "Cached"
# The reason for the provider of an adopted run: its sandbox lived before its record.
ADOPTED = "adopted"


@dataclass(frozen=True, slots=True)
class Resource:
    """One stored object. `spec` and `status` are JSON texts: a reader that needs neither pays for
    neither.
    """

    uid: str
    kind: str
    name: str
    generation: int  # counts changes of spec, from 1
    version: int  # counts every write, for compare-and-swap
    spec: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]
    created_at_s: float
    deleted_at_s: float | None = (
        None  # set = to be deleted; the row stays until all is confirmed gone
    )
    namespace: str = DEFAULT_NAMESPACE

    @property
    def key(self) -> str:
        return object_key(self.kind, self.name, self.namespace)


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a unit. The row is durable before the provider is called.

    name is a pure function of (store, resource uid, index, attempt), so a lost reply can be looked
    up.
    sandbox is the name of the run that created the sandbox this run executes in (its own name
    unless reused).
    """

    name: str
    uid: str
    index: int
    attempt: int  # from 1
    state: RunState
    provider: str
    sandbox: str
    template_hash: str
    params: str  # canonical JSON object
    params_hash: str
    created_at_s: float
    handle: str = ""  # the provider's id
    started_at_s: float | None = None
    ended_at_s: float | None = None
    exit_code: int | None = None
    reason: str = (
        ""  # Completed, ExitCode:2, Error, Timeout, OOMKilled, ProviderLost, Superseded, ...
    )
    message: str = ""
    journal_offset: int = 0  # bytes of the journal that are already ingested
    sandbox_open: bool = False  # ended, but its sandbox lives on and can take another task
    usd_per_s: float | None = None  # price of its sandbox when it began; unset: unknown, never free
    placed: str = ""  # why it is at this provider; empty where there was no choice
    # Its amount in budgets: its worst case while it lives, its charge once it has finished.
    usd: float | None = None  # unset: the price is not known, or its time is unlimited
    put_aside: bool = False  # a user requested another attempt: this one's outcome counts no more
    content: str = ""  # of its unit when it began, see specs/content.py; empty: not known
    wandb: str = ""  # the id of the run at W&B that it is an attempt of; empty without one
    resumed_step: int | None = None  # of the checkpoint that it began from
    saved_step: int | None = None  # the highest completed checkpoint
    # For a run that took a result over: the time and cost of the original work; unset: not known.
    worth_s: float | None = None
    worth_usd: float | None = None
    # Its usage of its queue, see controllers/queues/queue_state.py; empty without a queue.
    queued: str = ""
    hint: str = ""  # what its user can do about the message

    @property
    def cost_usd(self) -> float | None:
        """Returns the cost of an ended run, by its price and its duration; None while unknown.

        An estimate: the provider's bill also has the time before the work began and after it ended.
        """
        if self.started_at_s is None:
            return 0.0
        if self.usd_per_s is None or self.ended_at_s is None:
            return None
        return self.usd_per_s * max(0.0, self.ended_at_s - self.started_at_s)


@dataclass(frozen=True, slots=True)
class Metric:
    """One `report(step=, **metrics)` value. seq is its position in the run's journal, from 0; below
    0 for a sample of the machine, which no program reported and no decision goes by.
    """

    seq: int
    step: int
    name: str
    value: float
    at_s: float

    @property
    def sampled(self) -> bool:
        return self.seq < 0


@dataclass(frozen=True, slots=True)
class WandbTrial:
    """The settings for a trial's program that calls `wandb.init` for its parameters.

    only: the command passes no parameters, so `wandb.init` has to. compares: values that the
    program gives `wandb.init` itself must equal the trial's. metric: compared by the search, each
    of its values is recorded, or "". run_id: the run that W&B has assigned, which the program
    uploads itself; "" without W&B. base_url: of the service, where it is not W&B's own.
    """

    sweep_id: str
    project: str
    entity: str
    only: bool
    metric: str = ""
    run_id: str = ""
    base_url: str = ""
    compares: bool = False

    def order(self) -> dict[str, object]:
        """Returns the fields for the guest; upper-case names are variables that it sets, prefixed
        with WANDB_.
        """
        handed = {"RUN_ID": self.run_id, "BASE_URL": self.base_url} if self.run_id else {}
        compared = {"compares": True} if self.compares else {}
        return {
            **handed,
            **compared,
            "SWEEP_ID": self.sweep_id,
            "PROJECT": self.project,
            "ENTITY": self.entity,
            "only": self.only,
            "metric": self.metric,
        }


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of an attempt that has several; its position in the list is its rank."""

    state: str  # Running, Succeeded, Failed, Lost, or Stopped: ended because another one was
    address: str = ""
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A group of a run, as its other groups see it. index: of its unit, which stays while the run
    exists; port: that its nodes listen on, None where they name none; gpu: of each node, `A100:2`,
    or empty.
    """

    name: str
    index: int
    nodes: int
    port: int | None
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class RunGroups:
    """The groups of a run, for an attempt of the group `own`."""

    own: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """The checkpoint settings of an attempt.

    resume: `Latest`, `None` or `step:N`. below: exclusive upper bound of the step, since attempts
    from checkpoints at or above it failed. anew: the checkpoints are those of an earlier success,
    so the first attempt begins without a checkpoint. arguments: arguments for its command, with
    `${checkpoint}` in them. last, every: the checkpoints to keep; None = all. mirror: a URL to copy
    each checkpoint to, or "".
    """

    path: str
    format: str
    resume: str
    verify: str = "Fast"
    below: int | None = None
    anew: bool = False
    arguments: tuple[str, ...] = ()
    last: int | None = None
    every: int | None = None
    mirror: str = ""

    def order(self) -> dict[str, object]:
        """Returns the fields for the guest; see fleetctl/guest/checkpoints."""
        return {
            "path": self.path.rstrip("/") or "/",
            "format": self.format,
            "resume": self.resume,
            "verify": self.verify,
            "below": self.below,
            "anew": self.anew,
            "args": list(self.arguments),
            "keep": None if self.last is None else {"last": self.last, "every": self.every},
            "mirror": self.mirror or None,
        }


@dataclass(frozen=True, slots=True)
class ProgressOrder:
    """When an attempt counts as hung: seconds without progress, and seconds until the first
    progress.
    """

    timeout_s: float
    start_s: float


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A complete checkpoint, as durable as its volume makes it. took_s: seconds from its first file
    to its last, as exactly as it was looked at.
    """

    step: int
    path: str  # as the program knows it
    at_s: float
    size: int  # bytes
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """The checkpoint events of a run since the last observation. resumed: the step that it began
    from; aside: sentences about files that it moved out of the way; left: about files there that it
    does not manage; unmirrored: about files that could not be copied to the mirror, or brought back
    from it.
    """

    saved: tuple[SavedCheckpoint, ...] = ()
    resumed: int | None = None
    aside: tuple[str, ...] = ()
    unmirrored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


NO_CHECKPOINTS = CheckpointReport()


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """How busy the GPUs of a run were at one moment. percent: the mean over its devices; memory in
    MiB, of all together; steps_per_s: since the sample before, None where it reports no steps.
    """

    gpus: int
    percent: float
    memory_mib: int
    memory_total_mib: int
    steps_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """The provider knows the run and it has not ended."""

    run: str
    handle: str
    started_at_s: float | None
    journal_offset: int
    metrics: tuple[Metric, ...] = ()
    note: str = ""  # how it runs, for users, such as `namespaces+landlock`
    # why its end is not yet known, though its work has finished; or empty
    held: HintedText = NO_TEXT
    gpus: tuple[str, ...] = ()  # its GPUs, as their driver names them; empty: not reported
    remarks: tuple[str, ...] = ()  # remarks for its user, as they happened
    nodes: tuple[Node, ...] = ()  # where it has several, and one changed
    checkpoints: CheckpointReport = NO_CHECKPOINTS
    usage: GpuUsage | None = None  # of its GPUs, where there is a new sample
    stragglers: tuple[str, ...] = ()  # sentences about nodes that fall behind the others
    more: bool = False  # more of its journal is there than one look takes: it is due again at once


@dataclass(frozen=True, slots=True)
class Ended:
    """The work of the run has finished, and all its processes are gone unless sandbox_open."""

    run: str
    handle: str
    started_at_s: float | None
    ended_at_s: float
    ok: bool
    infrastructure: bool  # not ok, and not the application's fault
    reason: str
    message: str
    exit_code: int | None
    journal_offset: int
    metrics: tuple[Metric, ...] = ()
    result: str | None = None  # canonical JSON object, within the size cap
    sandbox_open: bool = False
    note: str = ""
    gpus: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    checkpoints: CheckpointReport = NO_CHECKPOINTS
    hint: str = ""  # what its user can do about the message


@dataclass(frozen=True, slots=True)
class Gone:
    """A reply for a run's id that the provider has no such run: it never existed, or was lost
    without an end record.

    Never concluded from a list.
    """

    run: str
    seen_at_s: float


Observation = Alive | Ended | Gone
