"""Defines rows for screens; light, because `get` loads no other part of the store."""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE


class ResourceRow(NamedTuple):
    uid: str
    kind: str
    name: str
    generation: int
    version: int
    created_at_s: float
    deleted_at_s: float | None
    labels: dict[str, str]
    annotations: dict[str, str]
    status: str  # JSON object
    spec: str | None = None  # JSON object; unset if a list did not read it
    namespace: str = DEFAULT_NAMESPACE


class RunRow(NamedTuple):
    index: int  # type: ignore[assignment] # hides tuple.index, which a row does not need
    attempt: int
    state: str  # a RunState's value
    name: str
    provider: str
    sandbox: str
    handle: str
    created_at_s: float
    started_at_s: float | None
    ended_at_s: float | None
    exit_code: int | None
    reason: str
    message: str
    sandbox_open: bool
    params: str  # JSON object
    usd_per_s: float | None = None  # unset = the price is not known
    placed: str = ""  # why it is at this provider; empty where there was no choice
    content: str = ""  # the content of its unit when it began; empty: not known
    wandb: str = ""  # the run at W&B that it is an attempt of; empty without W&B
    hint: str = ""  # what its user can do about the message


RUN_COLUMNS = len(RunRow._fields)


class TaskRow(NamedTuple):
    """One index for users: its newest run, and how many runs there were."""

    run: RunRow
    attempts: int
    result: str | None  # JSON object
    older: tuple[RunRow, ...] = ()  # the attempts before it


class MetricRow(NamedTuple):
    seq: int
    step: int
    name: str
    value: float | None  # None = not a number
    at_s: float


class CheckpointRow(NamedTuple):
    """A complete checkpoint, and the attempt that wrote it."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    attempt: int
    step: int
    path: str
    at_s: float
    size: int  # bytes
    took_s: float


class MetricEnd(NamedTuple):
    """A metric of a run: its last report, and the number of reports."""

    name: str
    reports: int
    step: int
    value: float | None  # unset = not a number
    at_s: float


class LiveRunPrices(NamedTuple):
    """The prices of an object's runs that have begun and hold a sandbox."""

    runs: int
    usd: float  # so far
    usd_per_h: float
    unpriced: int


class NoticeRow(NamedTuple):
    """A notice and its delivery; see controllers/kinds/notices/notice.py."""

    id: str
    event: str
    uid: str
    object: str  # key
    namespace: str
    sink: str  # JSON object
    state: str  # a NoticeState's value
    tries: int
    problem: str
    at_s: float
    due_at_s: float
    ended_at_s: float | None
    message: str
    body: str  # JSON object


class EventLine(NamedTuple):
    uid: str
    at_s: float
    kind: str
    reason: str
    message: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    hint: str | None = None
