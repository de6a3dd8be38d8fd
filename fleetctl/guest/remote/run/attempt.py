"""One run in this sandbox, from its preparations and the start of its processes to its end
record.

Never waits: slow work ends in a call of the loop.
"""

from __future__ import annotations

import _signal
import os
import time

from fleetctl.guest.journal.ending import decide_outcome
from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.remote import place
from fleetctl.guest.remote.place import start_directory
from fleetctl.guest.remote.process.child import (
    Leader,
    begin_training,
    build_environment,
    execute_program,
    send_line,
)
from fleetctl.guest.remote.run.keeping import Keeping
from fleetctl.guest.remote.run.output import Output
from fleetctl.guest.reports import ReportFiles, RunReports
from fleetctl.guest.supervision.processes import (
    carry_mark,
    directory_mark,
    limit_data,
    send_signal,
)
from fleetctl.guest.task.parameters import remark_on_long, write_inputs
from fleetctl.guest.task.program import start_failure

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Optional, Protocol

    from fleetctl.guest.journal.record import Journal
    from fleetctl.guest.remote.loop import Loop
    from fleetctl.guest.remote.process.tree import Tree
    from fleetctl.guest.remote.visitors import Visitors

    class Box(Protocol):
        """The sandbox, as its run sees it; see supervise.py."""

        loop: Loop
        visitors: Visitors
        runs: int
        base: dict[str, str]
        marks: list[str]
        worker: Optional[Leader]
        closing: bool

        def worker_ended(self) -> None: ...
        def relay_secrets(
            self, order: dict[str, Any], secrets: dict[str, str]
        ) -> dict[str, str]: ...
        def may_stay(self, order: dict[str, Any]) -> bool: ...
        def finished(self, run: str, *, staying: bool) -> None: ...

    class Workers(Protocol):
        """A part of the sandbox that holds the worker which continues after its task."""

        loop: Loop
        worker: Optional[Leader]


SETTLE_S, SETTLE_MAX_S = 0.02, 0.5  # between two looks at processes that a run left behind
GIVE_UP_S = 5.0  # after KILL; processes that live even then end with the sandbox
HANG_UP_S = 5.0  # for a worker to leave by itself after its last task
TICK_S = 1.0  # between two looks at metrics files and memory
RETRY_S = 1.0  # until an end record that the disk refused is written again
COPIES_S = 0.2  # between two looks at copies of checkpoints that the end waits for
SETUP_S = 900.0  # for all preparations of a sandbox, such as a clone of the source
TAKEN = "SandboxEnded"  # why a run ends when its sandbox was asked to end
REPORTING = ("metrics", "checkpoint", "samples", "progress")  # what of an order needs readers
TIMERS = ("timeout", "tick", "sync", "stall", "kill", "settle")


class Attempt:
    def __init__(
        self,
        box: Box,
        order: dict[str, Any],
        secrets: dict[str, str],
        journal: Journal,
    ) -> None:
        self.name: str = order["run"]
        self.order = order
        self.journal = journal
        self.started_at_s = time.time()
        self._box = box
        self._loop = box.loop
        self._secrets = secrets
        log = LogFile(box.runs, self.name, order["log_bytes_max"], journal.masking)
        self._output = Output(log, box.loop, tell=box.visitors.tell_soon)
        self._reports = RunReports(journal, self._output.say, ReportFiles(place.FILES))
        if order.get("services"):
            from fleetctl.guest.remote.run.files import services_of

            self._reports.services = services_of(order, box.runs, journal.masking)
        self._keeping = Keeping(box.loop, order, box.runs, self._output.say)
        self._output.hears = self._reports.hear
        self._steps: list[list[str]] = []
        self._leader: Optional[Leader] = None
        self._began = False  # the task itself, after all preparations
        self._ending = self._message = ""  # why we end it, if we do
        self._trees: Optional[Tree] = None
        self._memory_used = 0  # when the run was ended for it
        self._left_at_s = 0.0  # when its process ended; processes that it left may end later
        self._kill_at_s = 0.0  # monotonic; 0 = no request to end
        self._settle_s = SETTLE_S

    # Beginning

    def start(self, *, fresh: bool) -> None:
        """Starts the run. fresh: the sandbox is still to be prepared."""
        if self.order.get("relay"):
            self._attempt(self._join_relay)
        if fresh:
            from fleetctl.guest.remote.place import prepare_sandbox

            self._steps = list(self.order["setup"])
            self._loop.after("timeout", SETUP_S, lambda: self.end("SourceFailed", 0.0))
            self._attempt(lambda: prepare_sandbox(self.order))
        self._advance()

    def _join_relay(self) -> None:
        self._secrets = self._box.relay_secrets(self.order, self._secrets)

    def _advance(self) -> None:
        """Begins the next preparation, or the task itself."""
        if self._ending or self._reports.error:
            self._drain_output()
        elif self._steps:
            argv = self._steps.pop(0)
            self._attempt(lambda: self._start_preparation(argv))
        else:
            self._start_task()
        if self._reports.error and self._leader is None:
            self._drain_output()

    def _attempt(self, act: Callable[[], None]) -> None:
        """Calls `act`, and fails the run when that raises OSError or ValueError."""
        try:
            act()
        except (OSError, ValueError) as error:
            self._reports.error = start_failure(error)

    def _start_preparation(self, argv: list[str]) -> None:
        variables = self._variables()
        writable = self._output.writable
        leader = start_preparation(
            self._loop,
            self.order,
            argv,
            variables,
            writable,
        )
        self._follow(leader, self._end_preparation)

    def _end_preparation(self) -> None:
        assert self._leader is not None
        status = self._leader.status
        self._leader = None
        if status and not self._ending:
            self._output.drain()
            self._ending = "SourceFailed"
            self._message = self._output.last_words
        self._advance()

    def _start_task(self) -> None:
        order = self.order
        self._loop.cancel("timeout")
        if order["timeout_s"] is not None:
            self._loop.after("timeout", order["timeout_s"], self._expire)
        if any(map(order.get, REPORTING)):
            from fleetctl.guest.remote.run.files import start_readers

            start_readers(self._reports, order, self._commit, self._variables)
        self._attempt(lambda: write_inputs(order, place.FILES))
        if self._reports.error is not None:
            return
        self._attempt(self._keeping.begin)
        if order["mode"] == "python":
            self._attempt(self._start_python)
        else:
            self._attempt(self._start_program)
        if self._reports.error is not None:
            return
        self._began = True
        self._output.close_writable()
        self._loop.after("tick", TICK_S, self._tick)
        if order["sync_s"]:
            self._loop.after("sync", order["sync_s"], self._sync_now)

    def _start_program(self) -> None:
        order = self.order
        variables = self._variables()
        remark = remark_on_long(order["params"])
        if remark:
            self._output.say(remark)
        directory = start_directory(order)
        if order.get("wandb"):
            from fleetctl.guest.remote.run.files import start_trial

            variables.update(start_trial(self._reports, order, variables, directory))
        writable = self._output.writable
        leader = start_program(
            self._loop,
            order,
            variables,
            directory,
            writable,
        )
        self._follow(leader, self._await_leftovers)

    def _variables(self) -> dict[str, str]:
        return build_environment(self.order, self._secrets, self._box.base)

    def _commit(self, mounts: list[str], then: Callable[[str], None]) -> None:
        from fleetctl.guest.remote.run.sync import sync_mounts

        def done(problem: str) -> None:
            then(problem)
            self._box.visitors.tell()

        sync_mounts(self._loop, self._box.base, mounts, done)

    def _start_python(self) -> None:
        variables = self._variables()
        writable = self._output.writable
        self._follow(
            start_python(self._box, self.order, variables, writable), self._await_leftovers
        )

    def _follow(self, leader: Leader, ended: Callable[[], None]) -> None:
        self._leader = leader
        leader.hear = self._handle_event
        leader.ended = ended

    # Events

    def _handle_event(self, event: dict[str, Any]) -> None:
        reports = self._reports
        done = event.get("e") == "done" and isinstance(event.get("exit"), int)
        if event.get("e") == "service_log":
            reports.take_event(event)
            self._box.visitors.tell_soon()
        elif reports.take_event(event):
            self._box.visitors.tell()
        elif done and reports.exit_code is None:
            reports.exit_code = event["exit"] & 0xFF
            self._done()

    def _tick(self) -> None:
        self._loop.after("tick", TICK_S, self._tick)
        if self._reports.read():
            self._box.visitors.tell()
        may_hang = not self._ending and self._leader is not None
        wait_s = self._reports.ends_in_s(lambda: self._tree.living()) if may_hang else None
        if wait_s is not None:
            self._loop.after("stall", wait_s, lambda: self.end("Stalled", self.order["grace_s"]))
        due = self._leader is not None and self._reports.load_due
        if due and self._reports.note_load(self._tree.living()):
            self._box.visitors.tell()
        most = self.order["memory"]
        used = self._tree.memory_bytes() if most and self._leader is not None else 0
        if most and used > most:
            self._memory_used = self._memory_used or used
            self.end("OOMKilled", 0.0)

    def _sync_now(self) -> None:
        self._loop.after("sync", self.order["sync_s"], self._sync_now)
        from fleetctl.guest.remote.run.sync import sync_mounts

        sync_mounts(self._loop, self._box.base, self.order["sync"], lambda _: None)

    # Ending

    def end(self, why: str, grace_s: float) -> None:
        """Sends TERM now, KILL after the grace; a second call can only shorten it."""
        first = not self._ending
        self._ending = self._ending or why
        if why == TAKEN:
            # With several nodes the first request is the cause, however long the cleaning up.
            self._left_at_s = self._left_at_s or time.time()
        self._box.closing = True
        if self._leader is None:
            return  # between two steps: the next one checks this
        kill_at_s = time.monotonic() + grace_s
        if self._kill_at_s and self._kill_at_s <= kill_at_s:
            return
        self._kill_at_s = kill_at_s
        self._loop.after("kill", grace_s, self._kill)
        if first and self._leader.lives and grace_s > 0:
            self._signal(_signal.SIGTERM)

    def _expire(self) -> None:
        if self._reports.exit_code is None:
            self.end("Timeout", self.order["grace_s"])

    def _kill(self) -> None:
        self._signal(_signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._leader is None or not self._leader.lives:
            return
        if self._reports.services is not None and number == _signal.SIGTERM:
            self._leader.signal(number)  # services stay until the work has ended
        else:
            self._tree.send(number)

    @property
    def _tree(self) -> Tree:
        """Searches only when a run does not end by itself: most need no walk through /proc."""
        assert self._leader is not None
        if self._trees is None:
            from fleetctl.guest.remote.process.tree import Tree

            self._trees = Tree(self._leader.pid, self._box.marks)
        return self._trees

    def _done(self) -> None:
        """Ends a worker's task: the worker waits for the next one, or leaves."""
        assert self._leader is not None
        if not self._leader.lives:
            return  # its last events, read after it died
        if self.order["reusable"] and not self._box.closing:
            self._drain_output()
            return
        self._leader.hang_up()
        self._loop.after("kill", HANG_UP_S, self._kill)

    def _await_leftovers(self) -> None:
        """Waits, after the leader's end, for the processes that it left."""
        self._left_at_s = self._left_at_s or time.time()
        for name in ("timeout", "tick", "sync", "stall"):
            self._loop.cancel(name)
        if self._has_leftovers():
            self._loop.after("settle", self._settle_s, self._await_leftovers)
            self._settle_s = min(SETTLE_MAX_S, self._settle_s * 1.5)
        else:
            self._drain_output()

    def _has_leftovers(self) -> bool:
        """Returns whether processes of the run live on; ends them unless they still have grace.

        The sandbox of a run that has ended by itself ends with it, so there only the group and
        processes that still hold the output are searched for.
        """
        assert self._leader is not None
        self._output.drain()
        group = send_signal(-self._leader.pid, 0)
        thorough = self._output.is_open or self._ending or self.order["reusable"]
        if not group and not thorough:
            return False
        orphans = self._tree.living()
        now_s = time.monotonic()
        if not orphans or now_s > self._kill_at_s + GIVE_UP_S > GIVE_UP_S:
            return False
        if now_s >= self._kill_at_s:
            self._kill_at_s = self._kill_at_s or now_s
            self._tree.send(_signal.SIGKILL)
        return True

    def _drain_output(self) -> None:
        """Receives the last output after all processes, and makes volumes durable."""
        for name in TIMERS:
            self._loop.cancel(name)
        if self._began and not self._ending and self._reports.copies():
            self._loop.after("settle", COPIES_S, self._drain_output)
            return
        if self._leader is not None:
            self._leader.drain()
            if not self._leader.lives:
                self._leader.hang_up()
            self._leader.hear, self._leader.ended = _ignore_event, self._box.worker_ended
        self._output.close_writable()
        self._output.drain()
        self._output.stop()
        self._reports.read(whole=True)
        if self._began:
            self._keeping.keep(self._ending, self._continue_after_outputs)
        else:
            self._continue_after_outputs()

    def _continue_after_outputs(self) -> None:
        """Continues once its outputs are kept."""
        if self._began:
            self._reports.note_odd_result()
        if self._began and self.order["sync"]:
            from fleetctl.guest.remote.run.sync import sync_mounts

            sync_mounts(self._loop, self._box.base, self.order["sync"], self._conclude)
        else:
            self._conclude("")

    def _conclude(self, unsynced: str) -> None:
        """Writes the end record. unsynced: the problem with the volumes, or ""."""
        status = self._leader.status if self._leader is not None else None
        limits = {**self.order, "used": self._memory_used}
        ended = decide_outcome(
            self._ending,
            self._reports.error,
            self._reports.exit_code,
            status,
            limits,
        )
        if self._message:
            ended["message"] = self._message
        line = self._reports.judge_result(ended)
        if unsynced and self._reports.checkpoints is not None:
            self._reports.checkpoints.lost()  # those that are unreported
        if unsynced and ended["ok"]:
            line = ""
            ended.update(
                ok=False,
                infra=True,
                reason="SyncFailed",
                message=unsynced,
            )
        if self._keeping.judge(ended):
            line = ""
        if ended["ok"]:
            ended["message"] = self._reports.join_remarks(self._keeping.remarks)
        self._output.close()
        if self._reports.services is not None:
            self._reports.services.close()
        self._write_end(self._reports.conclude(line, ended), ended)

    def abandon(self) -> None:
        """Ends the run after a failure of ours, through no fault of its own."""
        self._signal(_signal.SIGKILL)
        message = "the process that looked after the run failed (see supervisor.log beside it)"
        ended = {**decide_outcome("GuestFailed", None, None, None), "message": message}
        self._box.closing = True
        self._write_end("", ended)

    def _write_end(self, line: str, ended: dict[str, Any]) -> None:
        record = {"at": time.time(), "started_at": self.started_at_s, **ended}
        record["left_at"] = self._left_at_s or record["at"]
        record["note"] = self.order["identity"].get("note", "")
        staying = self._box.may_stay(self.order)
        try:
            self.journal.end(line, record, sandbox_open=staying)
        except OSError:  # a full disk: the end of a run waits until it can be written
            self._loop.after("settle", RETRY_S, lambda: self._write_end(line, ended))
            return
        self._box.finished(self.name, staying=staying)


def _ignore_event(_: dict[str, Any]) -> None:
    """Ignores events of a worker between two tasks."""


def start_preparation(
    loop: Loop,
    order: dict[str, Any],
    argv: list[str],
    variables: dict[str, str],
    output: int,
) -> Leader:
    """Starts a preparation. output: the descriptor of its output, as in all functions here."""
    directory = os.getcwd()

    def work() -> NoReturn:
        _confine_process(order)
        execute_program(argv, variables, directory, order["workdir"])

    return Leader(loop, work, output)


def start_program(
    loop: Loop,
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
    output: int,
) -> Leader:
    def work(variables: dict[str, str]) -> NoReturn:
        if order.get("ray"):
            _with_ray(order, variables, directory)
        own, more = begin_training(order, variables)
        if order.get("ray_job"):
            from fleetctl.guest.nodes.rayjob import lead_job

            lead_job(order["ray_job"], order["argv"], {**variables, **own}, send_line)
        execute_program([*order["argv"], *more], {**variables, **own}, directory, order["workdir"])

    return Leader(loop, lambda: _work_with_services(order, variables, directory, work), output)


def start_python(
    workers: Workers,
    order: dict[str, Any],
    variables: dict[str, str],
    output: int,
) -> Leader:
    """Begins Python work in the living worker, or in a new process."""
    from fleetctl.guest.remote.process.worker import become_worker, encode_task, is_reusable

    worker = workers.worker
    if worker is not None:
        worker.hand(encode_task(order, variables), output)
        return worker
    directory = start_directory(order)

    def whole() -> NoReturn:
        _work_with_services(
            order, variables, directory, lambda known: become_worker(order, known, directory)
        )

    worker = Leader(workers.loop, whole, output)
    workers.worker = worker if is_reusable(order) else None
    return worker


def _work_with_services(
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
    work: Callable[[dict[str, str]], NoReturn],
) -> NoReturn:
    """Does the work once its services are ready, where it has any. work: takes the variables."""
    _confine_process(order)
    services = order.get("services")
    if services:
        from fleetctl.guest.supervision.services.crew import lead_services

        lead_services(
            services,
            variables,
            directory,
            lambda ports: work({**variables, **ports}),
            grace_s=order["grace_s"],
            tell=send_line,
        )
    work(variables)
    raise AssertionError  # it has become the program


def _confine_process(order: dict[str, Any]) -> None:
    """Marks this process, which is to lead work, and limits its memory where the sandbox does not.
    Without the mark, the work's variables show it.
    """
    if order.get("data"):
        limit_data(order["data"])
    try:
        carry_mark(directory_mark())
    except (OSError, ValueError):
        return


def _with_ray(
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
) -> NoReturn:
    """Does the work inside a cluster of its own."""
    from fleetctl.guest.nodes.ray import build_ray_variables, launch_node

    whole = {**variables, **build_ray_variables(order["ray"])}
    # Before the cluster, whose workers have the variables that it was started with.
    own, more = begin_training(order, whole)
    known = {**whole, **own}

    def work() -> NoReturn:
        execute_program([*order["argv"], *more], known, directory, order["workdir"])

    launch_node(order["ray"], known, work, send_line)
