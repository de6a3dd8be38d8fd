"""Takes what a run reports, by events, files and output, and judges at its end what it handed in.

Shared by the supervisors of all hosts, which bring the events, choose when to look, and decide when
the run ends. A task could write anything, so what is invalid is dropped or shortened. Parts that a
run does not use are never imported.
"""

from __future__ import annotations

import os
import time

from fleetctl.guest.task.lazy import LazyModule, load_module

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Optional, Protocol, Sequence

    from fleetctl.guest.checkpoints import disk, mirror, watch
    from fleetctl.guest.journal import digest, results
    from fleetctl.guest.journal.record import Journal
    from fleetctl.guest.metrics import followed
    from fleetctl.guest.supervision import pace
    from fleetctl.guest.supervision.services.process import ServiceRecords

    class Follower(Protocol):
        """Reads reports of a run beside its events."""

        def take(self, journal: Journal, *, whole: bool = False) -> bool: ...
        def conclude(self, line: str, ended: dict[str, Any], journal: Journal) -> str: ...

else:
    disk = LazyModule("fleetctl.guest.checkpoints.disk")
    mirror = LazyModule("fleetctl.guest.checkpoints.mirror")
    watch = LazyModule("fleetctl.guest.checkpoints.watch")
    digest = LazyModule("fleetctl.guest.journal.digest")
    results = LazyModule("fleetctl.guest.journal.results")
    followed = LazyModule("fleetctl.guest.metrics.followed")
    pace = LazyModule("fleetctl.guest.supervision.pace")

REMARKS_MAX = 3  # a task could go on for ever
REMARK_CHARACTERS_MAX = 1024
REASON_CHARACTERS_MAX = 64
MESSAGE_CHARACTERS_MAX = 4096
RESULT_INVALID = "ResultInvalid"  # the reason of a run whose result cannot be kept whole

LOAD_FIRST_S = 15.0

METRICS = "metrics.jsonl"
RESULT = "result.json"


def load_parts() -> None:
    """Imports all parts now, for a supervisor that cannot import them later."""
    for part in (disk, mirror, watch, digest, results, followed, pace):
        load_module(part)


class ReportFiles:
    """The directory in which a task leaves its result and metrics; never follows a link there."""

    def __init__(self, directory: str, *, below: str = "") -> None:
        """below: the directory that holds it, where the task may replace it, too."""
        self._directory = directory
        self._below = below

    def path(self, name: str) -> str:
        return os.path.join(self._below, self._directory, name)

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def read(self, name: str, offset: int, limit: int) -> Optional[bytes]:
        """Returns at most `limit` + 1 bytes; None for a missing or irregular file."""
        if not self._below:
            return results.read_below(self._directory, name, offset, limit)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            below = os.open(self._below, flags)
        except OSError:
            return None
        try:
            return results.read_below(self._directory, name, offset, limit, dir_fd=below)
        finally:
            os.close(below)


class RunReports:
    """say: writes a line to the log of the run. files: in which its task leaves reports."""

    def __init__(self, journal: Journal, say: Callable[[str], None], files: ReportFiles) -> None:
        self.journal = journal
        self.result: Optional[tuple[Any]] = None  # as the task handed it in; judged at its end
        self.error: Optional[dict[str, str]] = None
        self.exit_code: Optional[int] = None  # reported by a worker that lives on
        self.remarks: list[str] = []  # for the user, although the run may succeed
        self.checkpoints: Optional[watch.Watch] = None
        self.services: Optional[ServiceRecords] = None  # their output and states
        self.followers: list[Follower] = []  # the watch among them
        self._notify = say
        self._files = files
        self._metrics: Optional[results.MetricLines] = None  # of its file, once there is one
        self._pace: Optional[pace.Pace] = None
        self._load: Optional[pace.Load] = None  # from its first sample on
        self._begun_s = time.monotonic()
        self._output_bytes = 0
        self._listener: Optional[Callable[[bytes], None]] = None  # of its output

    # Readers, made before the program starts

    def follow_metrics(self, asked: dict[str, Any], directory: str) -> None:
        """Follows the metrics that its template defines. directory: where the program begins."""
        reader = followed.Followed(asked, directory, self._notify)
        reader.begin()
        self._listener = reader.hear
        self.followers.append(reader)

    def watch_checkpoints(
        self,
        order: Mapping[str, Any],
        place: str,
        variables: Callable[[], Mapping[str, str]],
        commit: Optional[watch.Commit] = None,
    ) -> None:
        """Follows the checkpoints of the run. place: their directory as the supervisor sees it;
        variables: of the program; commit: None where a file is durable once it is written.
        """
        asked = order["checkpoint"]
        copier = mirror.mirror_of(order, place, variables()) if asked["mirror"] else None
        self.checkpoints = watch.Watch(
            asked,
            disk.Disk(place),
            path=asked["path"],
            commit=commit,
            say=self._notify,
            mirror=copier,
        )
        self.followers.append(self.checkpoints)

    def sample_gpus(self, gpus: Optional[Sequence[int]]) -> None:
        """Samples the usage of GPUs while the run works. gpus: their indices; None for all of
        the machine.
        """
        self.followers.append(pace.Gpus(gpus))

    def limit_stalls(self, asked: Mapping[str, float]) -> None:
        self._pace = pace.Pace(asked, time.monotonic())

    # While the run lives

    def hear(self, data: bytes) -> None:
        """Takes some of the task's output."""
        self._output_bytes += len(data)
        if self._listener is not None:
            self._listener(data)

    def take_event(self, event: dict[str, Any]) -> bool:
        """Takes an event of the task; returns whether the journal gained a line."""
        kind = event.get("e")
        if kind == "metric":
            return self.journal.metric(event.get("step"), event.get("values"), event.get("at"))
        if kind == "result" and self.result is None:
            self.result = (event.get("value"),)
        elif kind == "error" and isinstance(event.get("reason"), str):
            message = str(event.get("message"))[:MESSAGE_CHARACTERS_MAX]
            self.error = {"reason": event["reason"][:REASON_CHARACTERS_MAX], "message": message}
        elif kind == "remark" and len(self.remarks) < REMARKS_MAX:
            self.remarks.append(str(event.get("message"))[:REMARK_CHARACTERS_MAX])
        else:
            parts = (self.checkpoints, self.services)
            return any(part.hear(event, self.journal) for part in parts if part is not None)
        return False

    def read(self, *, whole: bool = False) -> bool:
        """Records new reports of files; returns whether there were any. whole: the last call."""
        news = self._files.has(METRICS) and self._read_metrics(whole=whole)
        for follower in self.followers:
            news = follower.take(self.journal, whole=whole) or news
        return news

    def _read_metrics(self, *, whole: bool) -> bool:
        """Records new lines of $FLEETCTL_METRICS. whole: also more than one look's bytes, and a
        line without an end.
        """
        lines = self._metrics = self._metrics or results.MetricLines()
        news = 0
        last = False
        while True:
            before = lines.offset
            data = self._files.read(METRICS, before, results.METRICS_READ_BYTES_MAX) or b""
            found, wrong = lines.take(data, last=last)
            for problem in wrong:
                self._notify(problem)
            news += sum(self.journal.metric(step, values, None) for step, values in found)
            if last or not whole:
                return news > 0
            last = lines.offset == before

    def copies(self) -> bool:
        """Returns whether a checkpoint is still being copied, once the program has ended."""
        return self.checkpoints is not None and self.checkpoints.copies(self.journal)

    @property
    def load_due(self) -> bool:
        """Returns whether a sample of its processes is due. A run of some seconds has none."""
        if self._load is None:
            return time.monotonic() - self._begun_s >= LOAD_FIRST_S
        return self._load.is_due()

    def note_load(self, pids: Iterable[int]) -> bool:
        """Samples the processes of the run; returns whether the journal gained a line."""
        self._load = self._load or pace.Load(self._begun_s)
        return self._load.take(pids, self.journal)

    def ends_in_s(self, pids: Callable[[], Iterable[int]]) -> Optional[float]:
        """Returns seconds until a task that hangs is to be ended, once; None while it makes
        progress. See pace.py.
        """
        if self._pace is None:
            return None
        count = self.checkpoints.count if self.checkpoints is not None else 0
        signs = (self.journal.step, count, self._output_bytes)
        wait_s = pace.ends_in_s(self._pace, signs, say=self._notify, pids=pids)
        if wait_s is not None:
            self._pace = None
        return wait_s

    # At its end

    def note_odd_result(self) -> None:
        """Logs a result file that is not a valid result; called while the log is open."""
        if self.result is not None or not self._files.has(RESULT):
            return
        odd = results.explain_odd_file(self._files.path(RESULT))
        if odd and odd not in self.remarks:
            self._notify(odd)
            self.remarks.append(odd)

    def judge_result(self, ended: dict[str, Any]) -> str:
        """Returns the journal's line for the result, or "". Turns a success into a failure when its
        result cannot be kept; of a result that the task could not keep whole, the rest is.
        """
        partial = ended["reason"] == RESULT_INVALID and self.result is not None
        if not ended["ok"] and not partial:
            return ""
        value, problem = self._handed_in()
        text = ""
        if value is not None and not problem:
            text, problem, changed = results.judge_result(value[0])
            self.remarks += [changed] if changed and changed not in self.remarks else []
        if problem and ended["ok"]:
            ended.update(ok=False, reason=RESULT_INVALID, message=problem)
        return digest.result_line(text) if text else ""

    def _handed_in(self) -> tuple[Optional[tuple[Any]], str]:
        """Returns (the result, by an event or in its file, if there is any; its problem or "")."""
        if self.result is not None or not self._files.has(RESULT):
            return self.result, ""
        data = self._files.read(RESULT, 0, results.RESULT_BYTES_MAX)
        if data is None:
            return None, ""
        value, problem = results.parse_result(data)
        return (value,), problem

    def join_remarks(self, more: Iterable[str]) -> str:
        """Returns all remarks for the user as one message. more: on the kept outputs."""
        metrics = self._metrics.remark if self._metrics is not None else ""
        return "; ".join(filter(None, [*self.remarks, *more, metrics]))

    def conclude(self, line: str, ended: dict[str, Any]) -> str:
        """Returns the journal's line for the result, after the followers changed it and the end."""
        for follower in self.followers:
            line = follower.conclude(line, ended, self.journal)
        return line
