"""One node of several: a container of a clustered function, which begins and ends with the others.

Shipped beside the guest and loaded by fleetctl_body.py; like that, it knows the standard library of
Python 3.9 and the SDK that every container has. All containers of a cluster get the same input, and
only the return value of rank 0 comes back. So node 0 leads: it gathers the others, begins, ends all
where one fails, and reports the end of all. They meet in the Dict of the run's latch, where each
has a state of its own under the cluster's id: no other container writes it, and waiting for a
silent container has a limit.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    State = dict[str, Any]

GUEST = "/.fleetctl/guest.py"
PORT = 29500  # every container has a network of its own
READY_S = 600.0  # for all nodes to be there and to see their volumes
PAUSE_S = 0.1  # between two looks of who waits to begin
BEAT_S = 15.0  # each container reports at least this often that it lives
SILENT_S = 90.0  # a container that is silent for this time is lost
LEAVE_S = 15.0  # beyond its grace, for an ended node to commit its volumes and report it
CONSEQUENCE = "NodeEnded"
LOST = "NodeLost"
# Why a guest ends a run that did not end by itself.
FROM_OUTSIDE = ("Stopped", "Timeout", "Stalled", "SandboxEnded")
RESULT = b'{"e":"result"'
ENDED = b'{"e":"ended"'
METRIC = b'{"e":"metric"'
TAIL_BYTES = 128 * 1024  # of a journal, that is looked through for its newest steps
STEPS_TOLD = 100


class ContainerGang:
    """This container's node of an attempt. order: the order of the whole attempt. ask: (verb,
    words) tries a call that may fail without harm, and returns None then. stop: (grace in seconds)
    ends the processes here.
    """

    def __init__(
        self,
        order: dict[str, Any],
        latch: Any,
        ask: Callable[..., Any],
    ) -> None:
        import modal

        from fleetctl.guest.nodes.gang import Stragglers

        cluster = modal.Cluster.from_context()
        self.rank: int = cluster.container_rank()
        # As Modal's own examples have it: Ray wants the one family, torchrun takes the other.
        self.addresses: list[str] = cluster.container_ips("ipv4" if order["ray"] else "ipv6")
        self.journal = ""  # of what runs here, once it does
        self._order = order
        self._latch = latch
        self._ask = ask
        self._grace_s = float(order["grace_s"])
        self._key = f"{order['run']}.{cluster.object_id}.n"
        self._mine: State = {"who": secrets.token_hex(8), "beat": 0}
        self._told_at_s = 0.0
        self._token = ""
        self._heard: dict[int, tuple[int, float]] = {}  # rank -> its last beat, and when it came
        self._ends: list[State | None] = [None] * len(self.addresses)
        self._consequence = False  # the work here was ended because of another node
        self._outside_at_s = float("inf")  # since when all are being ended from outside
        self._obeyed: float | None = None
        self._table = ""
        self._steps: dict[int, State] = {}  # last report of each node, by rank
        self._stragglers = Stragglers()

    # -- beginning ---------------------------------------------------------------------------------

    def arrive(self, insist: Callable[[str, Callable[[], Any]], Any]) -> bool:
        """Reports that this node is ready; False when it was here before: Modal began its input
        again, and the work must not begin again.
        """
        key = f"{self._key}{self.rank}"
        text = json.dumps(self._mine)

        def said() -> bool:
            put = self._latch.put(key, text, skip_if_exists=True)
            return bool(put) or self._latch.get(key) == text

        return bool(insist("LatchFailed", said))

    def await_nodes(self) -> str:
        """Waits until all nodes are ready; returns the reason when they never will be, or ""."""
        until_s = time.monotonic() + READY_S
        missing = set(range(1, len(self.addresses)))
        while True:
            for rank in list(missing):
                state = self._state(rank)
                if state is not None and "unfit" in state:
                    return f"node {rank}: {state['unfit']}"
                if state is not None:
                    missing.discard(rank)
            if not missing:
                return ""
            if time.monotonic() > until_s:
                count = len(self.addresses)
                return f"{count - len(missing)} of {count} nodes were ready after {READY_S:.0f} s"
            time.sleep(PAUSE_S)

    def begin(self) -> None:
        """Node 0 has the run's latch: all go on."""
        self._token = secrets.token_hex(32)
        self._report(go=self._token)

    def dismiss(self) -> None:
        """Ends the gang for node 0, before any work has begun or at the end of all nodes."""
        self._report(over=True)

    def unfit(self, message: str) -> None:
        """This node cannot begin."""
        self._report(unfit=message)

    def may_begin(self) -> bool:
        """Waits for the message of node 0; False when no work is to begin."""
        until_s = time.monotonic() + READY_S + SILENT_S
        while time.monotonic() < until_s:
            state = self._state(0)
            if state is not None and ("over" in state or "go" in state):
                self._token = state.get("go", "")
                return "over" not in state
            time.sleep(PAUSE_S)
        return False

    def order(self) -> dict[str, Any]:
        """Returns the order for this node's guest."""
        from fleetctl.guest.nodes.gang import build_node_variables

        order = self._order
        rendezvous = build_node_variables(self.rank, self.addresses, PORT, order["procs"])
        made = {**order, "env": {**order["env"], **rendezvous}, "reusable": False}
        if order["ray"]:
            ray = {"rank": self.rank, "addresses": self.addresses, "token": self._token}
            made["ray"] = {**order["ray"], **ray}
        if self.rank:
            # Node 0 speaks for all: its time, its metrics, its outputs.
            made.update(
                rank=self.rank,
                timeout_s=None,
                wandb=None,
                metrics=None,
            )
        else:
            made["table"] = self._rows()
            self._table = json.dumps(made["table"])
        return made

    # -- while it runs -----------------------------------------------------------------------------

    def look(self, stop: Callable[[float], None]) -> None:
        """Reports that we live; ends the processes here where that follows from another node."""
        if time.monotonic() - self._told_at_s >= BEAT_S:
            self._report(steps=self._read_steps(), steps_at=time.time())
        if self.rank:
            self._obey(stop)
            return
        self._read_reports()
        self._write_table()
        self._look_for_stragglers()
        failed = any(end is not None and not end["ok"] for end in self._ends[1:])
        stopped = self._outside_at_s < float("inf")  # the others may be through with it already
        if failed and not stopped and not self._consequence:
            self._consequence = True
            self.stop_others(self._grace_s)
            stop(self._grace_s)

    def stopped(self, grace_s: float) -> None:
        """Node 0's work is being ended from outside: so is that of all."""
        self._outside_at_s = min(self._outside_at_s, time.time())
        self.stop_others(grace_s)

    def stop_others(self, grace_s: float) -> None:
        self._report(stop=grace_s)

    def leave_machine(self) -> None:
        """Notes that Modal preempts this container."""
        self._report(end=_make_lost_end(time.time()))

    def _obey(self, stop: Callable[[float], None]) -> None:
        state = self._state(0)
        asked = None if state is None else state.get("stop")
        if asked is None and (self._is_silent(0) or (state or {}).keys() & {"over", "end"}):
            asked = self._grace_s
        if asked is not None and asked != self._obeyed:
            self._obeyed = asked
            stop(float(asked))

    def _read_reports(self) -> None:
        """Reads the reports of the other nodes that have not ended."""
        for rank in range(1, len(self._ends)):
            if self._ends[rank] is not None:
                continue
            state = self._state(rank) or {}
            self._steps[rank], end = state, state.get("end")
            if end is None and self._is_silent(rank):
                end = _make_lost_end(time.time())
            self._ends[rank] = end

    def _state(self, rank: int) -> State | None:
        text = self._ask(self._latch.get, f"{self._key}{rank}")
        if text is None:
            return None
        state: State = json.loads(text)
        if self._heard.get(rank, (-1, 0.0))[0] != state["beat"]:
            self._heard[rank] = state["beat"], time.monotonic()
        return state

    def _is_silent(self, rank: int) -> bool:
        now_s = time.monotonic()
        return now_s - self._heard.setdefault(rank, (-1, now_s))[1] > SILENT_S

    def _report(self, **changes: Any) -> None:
        self._mine.update(changes, beat=self._mine["beat"] + 1)
        self._told_at_s = time.monotonic()
        self._ask(self._latch.put, f"{self._key}{self.rank}", json.dumps(self._mine))

    # -- ending ------------------------------------------------------------------------------------

    def follow_to_the_end(self, end: State | None) -> None:
        """Reports the end of a node other than 0, and waits until node 0 has ended: a container
        that is gone sooner could be taken for a lost one.
        """
        end = {**end, "at": end["left_at"]} if end else _make_lost_end(time.time())
        if end["reason"] == "Stopped":
            end.update(stopped=True, reason=CONSEQUENCE)
        self._report(end=end)
        while not self._is_silent(0):
            if (self._state(0) or {}).keys() & {"over", "end"}:
                break
            if time.monotonic() - self._told_at_s >= BEAT_S:
                self._report()
            time.sleep(self._order["gang_look_s"])

    def conclude_gang(
        self,
        frames: bytes,
        end: State | None,
        look: Callable[[], None],
    ) -> bytes:
        """Returns the frames of the run, from those of node 0, once all nodes have ended. look:
        whether to stop.
        """
        from fleetctl.guest.nodes.gang import combine_ends

        if end is None:
            self.stop_others(0.0)
            self.dismiss()
            return frames
        mine = self._ends[0] = self._judge_end(end)
        self._await_others(mine, look)
        whole = combine_ends([self._of(rank, mine) for rank in range(len(self._ends))])
        self.dismiss()
        return self._rewritten(frames, end, whole)

    def _judge_end(self, end: State) -> State:
        """Node 0's own end."""
        end = {**end, "at": end["left_at"]}
        if self._consequence and end["reason"] == "Stopped":
            return {**end, "stopped": True, "reason": CONSEQUENCE}
        if end["reason"] in FROM_OUTSIDE:
            self._outside_at_s = min(self._outside_at_s, end["at"] - self._grace_s - LEAVE_S)
            return {**end, "outside": True}
        return end

    def _await_others(self, mine: State, look: Callable[[], None]) -> None:
        """Waits for the other nodes. After a success they have their grace to finish, except Ray's
        workers, which have no work of their own; any other end ends them at once.
        """
        waits_s = self._grace_s if mine["ok"] and not self._order["ray"] else 0.0
        kill_at_s = time.monotonic() + waits_s
        if not mine["ok"]:
            self.stop_others(self._grace_s)
        over_at_s = time.monotonic() + self._grace_s + SILENT_S + LEAVE_S
        while None in self._ends and time.monotonic() < over_at_s:
            if mine["ok"] and time.monotonic() >= kill_at_s:
                self.stop_others(0.0)
                kill_at_s = float("inf")
            look()
            self._read_reports()
            if None in self._ends:
                time.sleep(self._order["gang_look_s"])

    def _of(self, rank: int, mine: State) -> State:
        """Returns how a node ended, seen from the end of all."""
        end = self._ends[rank] or {**_make_lost_end(time.time()), "reason": CONSEQUENCE}
        if rank == 0 or end["ok"]:
            return end
        # An event after node 0 was done, or while all are being ended, is a consequence; so is the
        # end of Ray's workers after their head's.
        done = mine["ok"] or self._order["ray"]
        after = end["at"] >= (mine["at"] if done else self._outside_at_s)
        if after or self._ends[rank] is None:
            end = {**end, "stopped": True, "lost": False, "reason": CONSEQUENCE}
        self._ends[rank] = end
        return end

    def _rewritten(
        self,
        frames: bytes,
        end: State,
        whole: State,
    ) -> bytes:
        last = {**end, **{name: whole[name] for name in _OF_ALL}, "at": time.time()}
        if whole.get("node"):
            last["node"] = whole["node"]
        last["open"] = last.pop("open")  # the closer looks at the end of the line
        lines: list[bytes] = []
        for line in frames.splitlines(keepends=True):
            if line.startswith(ENDED):
                lines += [self._table_line(), _json_line({"e": "ended", **last})]
            elif whole["ok"] or not line.startswith(RESULT):
                lines.append(line)
        return b"".join(lines)

    def _read_steps(self) -> list[list[float]]:
        """Returns when this node first reported each of its newest steps, by its journal."""
        if not os.path.exists(self.journal):
            return []
        found: dict[int, float] = {}
        with open(self.journal, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            for line in file:
                if not line.startswith(METRIC):
                    continue
                try:
                    event = json.loads(line)
                    found.setdefault(event["step"], event["at"])
                except (ValueError, KeyError):
                    continue  # it was torn by a full disk, or goes on
        return [[step, at] for step, at in found.items()][-STEPS_TOLD:]

    def _look_for_stragglers(self) -> None:
        """Reports stragglers: compares all nodes as they stood when all had reported their steps:
        later steps are not known for each node.
        """
        self._steps[0] = self._mine
        told = [self._steps.get(rank, {}) for rank in range(len(self._ends))]
        if not all("steps" in one for one in told) or self._ends.count(None) < len(self._ends):
            return
        until_s = min(one["steps_at"] for one in told)
        nodes = [{int(step): at for step, at in one["steps"] if at <= until_s} for one in told]
        text = self._stragglers.find_new(nodes, until_s)
        if text is not None:
            self._append(_json_line({"e": "straggler", "at": time.time(), "message": text}))

    def _write_table(self) -> None:
        """Writes the table into the journal of node 0, so that it is sent while all go on."""
        table = json.dumps(self._rows())
        if table != self._table and self._append(self._table_line()):
            self._table = table

    def _append(self, line: bytes) -> bool:
        """Appends to the journal of the work here; False while it has no journal."""
        if not os.path.exists(self.journal):
            return False
        handle = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
        return True

    def _table_line(self) -> bytes:
        return _json_line({"e": "nodes", "at": time.time(), "nodes": self._rows()})

    def _rows(self) -> list[State]:
        """Returns a row for each node, by rank."""
        from fleetctl.guest.nodes.gang import state_of

        return [
            {
                "state": state_of(end),
                "address": address,
                **({"reason": end["reason"], "exit": end["exit"]} if end is not None else {}),
            }
            for address, end in zip(self.addresses, self._ends)  # Python 3.9
        ]


_OF_ALL = ("ok", "infra", "reason", "message", "exit")


def _make_lost_end(at_s: float) -> State:
    return {
        "at": at_s,
        "ok": False,
        "infra": True,
        "reason": LOST,
        "message": "",
        "exit": None,
        "lost": True,
    }


def _json_line(event: State) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def load_guest() -> None:
    """Makes the guest's modules importable here."""
    with open(GUEST, encoding="utf-8") as file:
        guest: dict[str, Any] = {"__name__": "guest"}
        exec(compile(file.read(), GUEST, "exec", dont_inherit=True), guest)  # our own
    sys.meta_path.insert(0, guest["OneFile"]())


if __name__ == "fleetctl_gang":  # in a container; elsewhere there is no guest beside it
    load_guest()
