"""Begins runs, follows them and ends them: the heart of the supervisor. Single-threaded, never
waits. Called by serve.py with orders, ended children and the time; knows no clients.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time
from typing import Any, Callable

from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.journal.record import Journal, append_event, masking_of, write_unbegun
from fleetctl.guest.reports import ReportFiles
from fleetctl.guest.supervision.processes import mark_of, reap_children, send_signal
from fleetctl.guest.task.parameters import name_variable, remark_on_long
from fleetctl.guest.task.text import encode_compact

from ..clients import Poller, Timers
from . import concluding, procs
from .child import Birth, become_task
from .cleaning import TIDY_S, Janitor
from .concluding import (
    LocalOutputs,
    conclude_run,
    left_at,
)
from .gang import OF_ONE_NODE, LocalGang
from .hearing import WorkerEvents, follow_reports
from .looking import RunMonitor
from .sandbox import BeginLog, RunSandbox, SupervisedRun, hand_over, open_channel
from .together import GangRunner
from .visits import ExecSessions

SETTLE_S = 0.02  # between two looks at what a run left behind
HANG_UP_S = 5.0  # for a worker to leave by itself after its last task
RETRY_S = 1.0  # until the disk is asked again to take an end record
COPIES_S = 0.2  # between two looks at copies of checkpoints that an end waits for

Reply = dict[str, Any]
OK: Reply = {"ok": True}


class RunSupervisor:
    def __init__(
        self,
        config: dict[str, Any],
        poller: Poller,
        places: tuple[int, BeginLog],
        changed: Callable[[str], None],
    ) -> None:
        """places: the open directory of journals and logs, and the list of begun runs."""
        runs, begun = places
        self.sandboxes: dict[str, RunSandbox] = {}
        self.timers = Timers()
        self._config = config
        self._runs = runs
        self._begun = begun
        self._changed = changed
        self._hearing = WorkerEvents(poller, changed, self._done, _begin_if_last)
        self._pids: dict[int, RunSandbox] = {}
        self._together = GangRunner(
            runs,
            hearing=self._hearing,
            timers=self.timers,
            make=self._new_sandbox,
            begin=self._begin,
            end=self._end,
            remove=self._remove,
            changed=changed,
        )
        self.visits = ExecSessions(config, self.sandboxes)
        self._marks = itertools.count(config["mark_base"])
        self._identity = encode_compact({**config["identity"], "note": config["note"]})[1:-1]
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        prefix = config["identity"]["keeper"].rpartition("/")[2][:8]
        self._janitor = Janitor(config["work_dir"], prefix, config["source"])
        self._outputs = LocalOutputs(config, runs)
        self._looking = RunMonitor(
            config,
            self.sandboxes,
            self.timers,
            changed=changed,
            end=self.end,
        )

    @property
    def idle(self) -> bool:
        return not self.sandboxes and not self._janitor.busy

    def start(self, order: dict[str, Any]) -> Reply:
        """Begins the run unless it has begun before; either way the answer is ok."""
        name = order["sandbox"]
        run = order["run"]
        sandbox = self.sandboxes.get(name)
        if sandbox is not None and sandbox.run is not None and sandbox.run.name != run:
            return {"reason": "SandboxBusy", "message": f"sandbox `{name}` runs another task"}
        try:
            journal = Journal(self._runs, run, masking_of(order, order["secrets"]))
        except FileExistsError:
            return {"ok": True, "adopted": True}
        except OSError as error:
            return _resources_exhausted(error)
        if self._begun.was_before(run):
            concluding.write_lost(journal)
            return {"ok": True, "adopted": True}
        if name != run and (sandbox is None or sandbox.closing):
            write_unbegun(journal, self._identity, f"its sandbox `{name}` is closed")
            return OK
        try:
            if order.get("nodes", 1) > 1 or order.get("ray"):
                return self._together.begin(LocalGang(order), journal)
            self._begin(sandbox or self._new_sandbox(order), order, journal)
        except OSError as error:
            self._undo(order, journal)
            return _resources_exhausted(error)
        return OK

    def announce(self, runs: list[str]) -> Reply:
        """Writes durably that these runs begin; returns the fault when that fails."""
        try:
            self._begun.note(runs)
        except OSError as error:
            return {"reason": "DiskRefuses", "message": f"cannot record a start: {error}"}
        return {}

    def stop(
        self,
        owner: str,
        run: str,
        name: str,
        grace_s: float,
    ) -> None:
        """Ends a run and its sandbox; does no work without a sandbox of this owner, or with another
        run in it.
        """
        sandbox = self.sandboxes.get(name)
        if sandbox is None or sandbox.owner != owner:
            return
        if sandbox.run is not None and sandbox.run.name != run:
            return
        self.end(sandbox, "Stopped", grace_s)

    def own(self, name: str, owner: str) -> None:
        """A sandbox passes to another store."""
        sandbox = self.sandboxes.get(name)
        if sandbox is not None:
            sandbox.owner = owner

    def listing(self) -> list[Any]:
        """[name, when it was made, owner, what it was made for] of every sandbox; one for all nodes
        of an attempt.
        """
        found = [one for one in self.sandboxes.values() if one.rank == 0]
        return [[one.name, one.created_at_s, one.owner, one.first] for one in found]

    def end_named(self, name: str) -> None:
        """Ends a sandbox at once, with any run in it; does no work without such a sandbox."""
        sandbox = self.sandboxes.get(name)
        if sandbox is not None:
            self.end(sandbox, "Stopped", 0.0)

    def end(
        self,
        sandbox: RunSandbox,
        why: str,
        grace_s: float,
    ) -> None:
        """TERM now, KILL after the grace; a second call can only make it sooner."""
        gang = sandbox.gang
        if gang is None or why in OF_ONE_NODE:
            self._end(sandbox, why, grace_s)
            return
        for member in gang.living:
            self._end(member, why, grace_s)

    def _end(
        self,
        sandbox: RunSandbox,
        why: str,
        grace_s: float,
    ) -> None:
        sandbox.closing = True
        sandbox.end_for(why)
        if sandbox.pid is None:
            self._settle(sandbox)
            return
        kill_at_s = time.monotonic() + grace_s
        if sandbox.kill_at_s and sandbox.kill_at_s <= kill_at_s:
            return
        if not sandbox.kill_at_s and sandbox.status is None:
            send_signal(-sandbox.pid, signal.SIGTERM)
        sandbox.kill_at_s = kill_at_s
        self.timers.after(grace_s, lambda: self._kill(sandbox))

    def leave(self) -> None:
        """The last thing before the supervisor goes."""
        self._janitor.leave()

    def reap(self) -> None:
        """Collects ended children: leaders of sandboxes, orphans that became ours, janitors."""
        # Among processes that ended at once, those ended by a signal come first: where a node was
        # killed, the exit codes of its peers, whose connections broke, are the consequence.
        for pid, status in sorted(reap_children(), key=lambda it: not os.WIFSIGNALED(it[1])):
            sandbox = self._pids.pop(pid, None)
            if sandbox is None:
                self._note_helper(pid, status)
            else:
                sandbox.status, sandbox.ended_at_s = status, time.time()
                self._settle(sandbox)

    def _note_helper(self, pid: int, status: int) -> None:
        """Notes the end of a child that leads no sandbox."""
        if self._outputs.knows(pid):
            self._finish(self._outputs.ended(pid))
        elif not self.visits.ended(pid, status):
            self._janitor.ended(pid, status)

    def _new_sandbox(self, order: dict[str, Any]) -> RunSandbox:
        name = order["sandbox"]
        sandbox = self.sandboxes[name] = RunSandbox(name, next(self._marks))
        sandbox.owner = self._config["owner"]
        sandbox.first = {"index": order["index"], "work": order.get("work", "")}
        given = self._janitor.give()
        sandbox.work = given.path
        sandbox.fresh = given.fresh
        sandbox.given = given
        return sandbox

    def _identity_with(self, order: dict[str, Any]) -> str:
        """Returns the writer of the journal, and the work's mark."""
        fields = {"mark": order.get("mark"), "gpus": order.get("gpu_names")}
        more = "".join(
            f',"{key}":{encode_compact(value)}' for key, value in fields.items() if value
        )
        return self._identity + more

    def _begin(
        self,
        sandbox: RunSandbox,
        order: dict[str, Any],
        journal: Journal,
    ) -> None:
        """Begins a run. Raises OSError when it has not begun."""
        log = LogFile(self._runs, order["run"], self._config["log_bytes_max"], journal.masking)
        files = ReportFiles(concluding.PRIVATE, below=sandbox.work)
        run = SupervisedRun(order, journal, log, files)
        journal.begin(run.started_at_s, self._identity_with(order))
        for remark in self._config["remarks"]:
            run.say(remark)
        long = "" if self._config["mode"] == "python" else remark_on_long(order["params"])
        if long:
            run.say(long)
        follow_reports(self._config, sandbox, run)
        run.keep_services(self._runs, self._config["log_bytes_max"])
        run.output, writable = os.pipe()
        try:
            if sandbox.channel is None:
                self._fork(sandbox, run, writable)
            else:
                hand_over(sandbox.channel, order, writable)
        except OSError:
            os.close(run.output)
            raise
        finally:
            os.close(writable)
        sandbox.run, sandbox.last, sandbox.fresh = run, run.name, False
        self._hearing.attend(sandbox, run)
        if order["timeout_s"]:
            self.timers.after(order["timeout_s"], lambda: self._expire(sandbox, run))

    def _undo(self, order: dict[str, Any], journal: Journal) -> None:
        """Undoes a start that failed: the next try must find no trace of this one."""
        journal.close()
        os.unlink(f"{order['run']}.jsonl", dir_fd=self._runs)
        if order["sandbox"] == order["run"]:
            self.sandboxes.pop(order["sandbox"], None)

    def _fork(
        self,
        sandbox: RunSandbox,
        run: SupervisedRun,
        output: int,
    ) -> None:
        """A new leader for the sandbox."""
        order = run.order
        # Services begin and end with each run, and so does the process that leads them.
        reusable = bool(order["reusable"]) and not order.get("services")
        serves = self._config["mode"] == "python" and reusable
        both = serves or bool(order.get("waits"))
        ours, theirs = open_channel() if both else os.pipe()
        for name in order["params"]:
            name_variable(name)
        birth = Birth(self._config, order, sandbox.work, sandbox.mark)
        birth.fresh = sandbox.fresh
        birth.wandb = run.wandb
        birth.serves = serves
        birth.given = sandbox.given
        try:
            pid = os.fork()
            if pid == 0:
                become_task(birth, output, theirs, self._null)
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        sandbox.pid = pid
        sandbox.status = None
        sandbox.channel = ours
        sandbox.serves = serves
        self._pids[pid] = sandbox

    def _done(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        """Gives a worker whose task has ended the next one, or lets it exit."""
        if sandbox.status is not None:
            return  # its last words, read after it died
        if run.order["reusable"] and not sandbox.closing:
            self._finish(sandbox)
            return
        sandbox.closing = True
        self._hearing.hang_up(sandbox)
        self.timers.after(HANG_UP_S, lambda: self._kill(sandbox))

    def _expire(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        if sandbox.run is run and run.exit_code is None and sandbox.status is None:
            self.end(sandbox, "Timeout", run.order["grace_s"])

    def _kill(self, sandbox: RunSandbox) -> None:
        if sandbox.pid is not None and sandbox.status is None and sandbox.closing:
            send_signal(-sandbox.pid, signal.SIGKILL)
            send_signal(sandbox.pid, signal.SIGKILL)

    def _settle(self, sandbox: RunSandbox) -> None:
        """The leader has ended: wait until what it left has ended too, then finish."""
        if self._has_leftovers(sandbox):
            self.timers.after(SETTLE_S, lambda: self._settle(sandbox))
        else:
            self._finish(sandbox)

    def _has_leftovers(self, sandbox: RunSandbox) -> bool:
        """Returns whether processes of the sandbox live on; ends them unless they still have
        grace.
        """
        group = sandbox.pid is not None and send_signal(-sandbox.pid, 0)
        orphans = self._orphans(sandbox)
        if not group and not orphans:
            return False
        if time.monotonic() >= sandbox.kill_at_s:
            if group and sandbox.pid is not None:
                send_signal(-sandbox.pid, signal.SIGKILL)
            procs.kill_all(orphans)
            procs.kill_all(procs.find_marked(sandbox.mark, sandbox.mark + 1))
        return True

    def _orphans(self, sandbox: RunSandbox) -> list[int]:
        """Returns our children that lead no sandbox and belong to this one, or to no sandbox."""
        known = {*self._pids, *self._copying()}
        unknown = procs.list_living_children(
            lambda pid: (
                pid not in known and not self._janitor.knows(pid) and not self._outputs.knows(pid)
            )
        )
        if not unknown:
            return []
        others = {other.mark for other in self.sandboxes.values() if other is not sandbox}
        return [pid for pid in unknown if mark_of(pid) not in others]

    def _copying(self) -> set[int]:
        """Processes of our own that copy checkpoints."""
        runs = [it.run for it in self.sandboxes.values() if it.run is not None]
        return {pid for run in runs if run.checkpoints and (pid := run.checkpoints.copying)}

    def _finish(self, sandbox: RunSandbox) -> None:
        """Writes the end record; the sandbox stays only when it is to be used again."""
        run = sandbox.run
        if run is None:
            self._remove(sandbox)
            return
        if not run.ending and run.copies():
            self.timers.after(COPIES_S, lambda: self._finish_after_copies(sandbox, run))
            return
        self._hearing.finish(sandbox, run)
        run.read(whole=True)
        if not self._outputs.settle(sandbox, run):
            return
        run.note_odd_result()
        limits = {**self._config["limits"], "timeout_s": run.order["timeout_s"]}
        result, ended = conclude_run(sandbox, run, limits)
        run.close_logs()
        crashed = sandbox.serves and sandbox.status is not None
        staying = bool(run.order["reusable"]) and not sandbox.closing and not crashed
        ended["note"] = self._config["note"]
        sandbox.clean = sandbox.clean and ended["ok"]
        if not (staying or sandbox.clean):
            ended["kept"] = left_at(self._config, sandbox.work)
        if sandbox.gang is not None:
            self._together.over(sandbox.gang, sandbox, result, ended)
            return
        try:
            run.journal.end(result, ended, sandbox_open=staying)
        except OSError:  # a full disk: the end of a run waits until it can be written
            self.timers.after(RETRY_S, lambda: self._finish(sandbox))
            return
        sandbox.run = None
        sandbox.told_open = staying
        if staying:
            self._rest(sandbox)
        else:
            self._remove(sandbox)
        self._changed(run.name)

    def _finish_after_copies(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        if sandbox.run is run:
            self._finish(sandbox)

    def _rest(self, sandbox: RunSandbox) -> None:
        """Waits for the next task, but not for ever."""
        if not sandbox.serves:
            sandbox.pid = None
            self._hearing.hang_up(sandbox)
        concluding.forget_result(sandbox.work)
        last = sandbox.last
        self.timers.after(self._config["sandbox_idle_s"], lambda: self._retire(sandbox, last))

    def _retire(self, sandbox: RunSandbox, last: str) -> None:
        if sandbox.run is None and sandbox.last == last and not sandbox.closing:
            self.end(sandbox, "Idle", HANG_UP_S)

    def _remove(self, sandbox: RunSandbox) -> None:
        """Removes the sandbox. When its last run's end record declared it open, that run's journal
        gets its closing.
        """
        if self.sandboxes.get(sandbox.name) is not sandbox:
            return
        del self.sandboxes[sandbox.name]
        self._hearing.hang_up(sandbox)
        if sandbox.told_open:
            append_event(self._runs, sandbox.last, {"e": "closed", "at": time.time()})
            self._changed(sandbox.last)
        if sandbox.clean:
            self._janitor.take_back(sandbox.work)
            if self._config["source"]:
                self.timers.after(TIDY_S + 0.1, self._janitor.tidy)


def _begin_if_last(sandbox: RunSandbox) -> None:
    """Notes that a node is ready; the last one lets all begin."""
    gang = sandbox.gang
    if gang is not None and gang.is_ready(sandbox):
        first = gang.members[0].run
        checkpoints = first.checkpoints if first is not None else None
        gang.begin(checkpoints.resumed if checkpoints is not None else None)


def _resources_exhausted(error: OSError) -> Reply:
    """Returns the reply for a run that did not begin: too many files or processes, or a full
    disk.
    """
    reason = "Crowded" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "NoCapacity"
    return {"reason": reason, "message": f"a run cannot begin now: {error}"}
