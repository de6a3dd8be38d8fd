"""One run of the guest in the container of a function: in a worker that is there, or in a directory
of its own.

Shipped beside the guest and loaded by fleetctl_body.py; like that, it knows the standard library of
Python 3.9 alone.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Order = dict[str, Any]

GUEST, NEST = "/.fleetctl/guest.py", "/.fleetctl/nest.py"  # see fleetctl_nest.py
GUARD_S = 60.0  # beyond its time limit and its grace, for a guest to end a run
LEAVE_S = 5.0  # beyond its grace, for the guest to end a run on a machine that is taken away
READ_BYTES = 1024 * 1024
TOLD_BYTES_MAX = 16 * 1024 * 1024  # of frames, three times what is kept of a run's output
SAID_BYTES_MAX = 512 * 1024  # of frames that are sent while the run goes on
RESULT = b'{"e":"result"'
ENDED = b'{"e":"ended"'
OPEN = b'"open":true}'
SHUT = b'"open":false}'

_prepared = False  # the container has its source
_nests: list[socket.socket] = []  # the line to the one that lives
_opened: dict[str, str] = {}  # the one worker that waits for tasks: uid of its job -> its directory


class ContainerAttempt:
    """One run of the guest in this container.

    gang: of a node of several; see fleetctl_gang.py. ask: calls something of the SDK whose failure
    does not matter. unfit: what `volumes` raises where Modal does not let us; (reason, message).
    """

    def __init__(
        self,
        options: Order,
        latch: Any,
        volumes: Any,
        gang: Any,
        *,
        ask: Callable[..., Any],
        unfit: type[Exception],
    ) -> None:
        self._ask = ask
        self._unfit = unfit
        self._order = options
        self._latch = latch
        self._volumes = volumes
        self._gang = gang
        self._said_key = options["run"] + (f".n{gang.rank}" if gang and gang.rank else "") + ".said"
        self._directory = ""
        self._stop_asked = False
        self._said = 0  # bytes of frames that were sent while it goes on
        self._over_at_s = float("inf")
        if options["timeout_s"] is not None:
            self._over_at_s = time.monotonic() + options["timeout_s"] + options["grace_s"] + GUARD_S

    def frames(self) -> bytes:
        global _prepared
        if _prepared:
            self._order["setup"] = []
        frames = self._commit_volumes(
            self._run_in_worker() or self._run_in_directory(_fresh_directory())
        )
        last = _end_of(frames)
        if last and last.get("reason") != "SourceFailed":
            _prepared = True
        if self._gang is not None:
            frames = self._of_all(frames, last)
        stays = bool(last and last.get("open") and self._order["reusable"])
        _opened.clear()
        if self._said:
            self._ask(self._latch.pop, self._said_key, None)
        if stays:
            _opened[self._order["uid"]] = self._directory
        else:
            _kill_marked(self._order["run"])
            shutil.rmtree(self._directory, ignore_errors=True)
        return _shut_frames(frames)

    def _commit_volumes(self, output: bytes) -> bytes:
        """Returns the frames, once the files that the task wrote are committed: the end promises
        that.
        """
        if self._volumes is None or _end_of(output) is None:
            return output
        try:
            self._volumes.keep()
        except self._unfit as error:
            return _replace_end(output, error)
        return output

    def _of_all(self, frames: bytes, last: dict[str, Any] | None) -> bytes:
        """Returns the story of all nodes on node 0; b"" on another one, whose own story was sent
        before.
        """
        if self._gang.rank == 0:
            whole: bytes = self._gang.conclude_gang(frames, last, self._look_for_stop)
            return whole
        self._ask(self._latch.put, self._said_key, zlib.compress(frames, 1))
        self._said = 0  # the follower of the run takes it away
        self._gang.follow_to_the_end(last)
        return b""

    def _run_in_worker(self) -> bytes:
        """Runs it in the worker that an earlier task of the same job left open; b"" without a
        worker.
        """
        for uid, directory in list(_opened.items()):
            if uid == self._order["uid"] and self._order["reusable"]:
                frames = self._run_in_directory(directory)
                if (_end_of(frames) or {}).get("reason") != "SandboxClosed":
                    return frames
            _run_guest(directory, "leave")
            shutil.rmtree(directory, ignore_errors=True)
        return b""

    def _run_in_directory(self, directory: str) -> bytes:
        self._directory = directory
        if self._gang is not None:
            self._gang.journal = f"{directory}/runs/{self._order['run']}.jsonl"
        argv = ["attach", "--dir", directory, "--run", self._order["run"], "--order", "-"]
        orders, frames = _ask_nest(argv)
        try:
            with open(orders, "wb") as file:
                file.write(_json_line(self._order))
            return self._listen(frames)
        except KeyboardInterrupt:
            self._leave_machine(frames)
            raise
        except BaseException:
            # Cancelled: no process of the run may outlive its call.
            self._stop(0.0)
            _kill_marked(self._order["run"])
            raise
        finally:
            os.close(frames)

    def _leave_machine(self, handle: int) -> None:
        """Ends the task after SIGINT, which Modal sends some time before it removes the machine.
        The task may save its work in its grace; Modal kills a task that takes longer than it waits.
        """
        grace_s = float(self._order["grace_s"])
        over_at_s = time.monotonic() + grace_s + LEAVE_S
        self._stop(grace_s)
        if self._gang is not None:
            self._gang.leave_machine()
        while select.select([handle], [], [], max(0.0, over_at_s - time.monotonic()))[0]:
            if not os.read(handle, READ_BYTES):
                break
        _kill_marked(self._order["run"])
        if self._volumes is not None:
            self._ask(self._volumes.keep)

    def _listen(self, handle: int) -> bytes:
        """Returns all frames but those that only show that the stream lives."""
        frames = bytearray()
        whole = True
        look_s = float(self._order["look_s" if self._gang is None else "gang_look_s"])
        look_at_s = time.monotonic() + look_s
        keep_at_s = time.monotonic() + self._order["keep_s"]
        while True:
            now_s = time.monotonic()
            if now_s >= self._over_at_s:
                self._stop(0.0)
                frames += _json_line({"e": "lost", "message": "it did not end at its time limit"})
                break
            if now_s >= look_at_s:
                self._look_for_stop()
                if self._gang is not None:
                    self._gang.look(self._stop)
                self._send_frames(bytes(frames))
                look_at_s = time.monotonic() + look_s
            if now_s >= keep_at_s and self._volumes is not None:
                self._volumes.keep_soon()
                keep_at_s = now_s + self._order["keep_s"]
            wait_s = max(0.0, min(look_at_s, keep_at_s, self._over_at_s) - now_s)
            if select.select([handle], [], [], wait_s)[0]:
                data = os.read(handle, READ_BYTES)
                if not data:
                    break
                whole = whole and len(frames) + len(data) <= TOLD_BYTES_MAX
                if whole:
                    frames += data
        if not whole:
            return self._read_again()
        lines = bytes(frames).splitlines(keepends=True)
        return b"".join(line for line in lines if not line.startswith(b'{"e":"alive"'))

    def _read_again(self) -> bytes:
        """Returns the guest's copy of output that is longer than we hold: its beginning and its
        end.
        """
        orders, frames = _ask_nest(
            ["attach", "--dir", self._directory, "--run", self._order["run"]]
        )
        os.close(orders)
        with open(frames, "rb", closefd=True) as file:
            return file.read()

    def _look_for_stop(self) -> None:
        """Ends the call so that its last output is kept; a cancelled call would lose it."""
        if self._stop_asked or (self._gang is not None and self._gang.rank):
            return  # the other nodes learn it from node 0
        grace_s = self._ask(self._latch.get, self._order["run"] + ".stop")
        if grace_s is not None:
            self._stop_asked = True
            if self._gang is not None:
                self._gang.stopped(float(grace_s))
            self._stop(float(grace_s))

    def _send_frames(self, frames: bytes) -> None:
        """Sends the frames up to now to the run's follower; all are sent again at its end. The
        run's end is not sent before its volumes are committed: that may still change it.
        """
        frames = frames[: frames.rfind(b"\n") + 1]
        if any(b"\n" + last in frames for last in (RESULT, ENDED)):
            return
        if self._said < len(frames) <= SAID_BYTES_MAX:
            self._ask(self._latch.put, self._said_key, zlib.compress(frames, 1))
            self._said = len(frames)

    def _stop(self, grace_s: float) -> None:
        _run_guest(
            self._directory,
            "stop",
            "--run",
            self._order["run"],
            "--grace",
            str(grace_s),
        )


def _fresh_directory() -> str:
    return tempfile.mkdtemp(prefix="fleetctl-")


def _run_guest(
    directory: str,
    verb: str,
    *options: str,
) -> None:
    argv = [sys.executable, "-I", "-S", GUEST, verb, "--dir", directory, *options]
    subprocess.run(argv, check=False, timeout=GUARD_S)


# -- the nest, which forks the guest for every call -----------------------------------------------


def _ask_nest(argv: list[str]) -> tuple[int, int]:
    """Runs a verb of the guest; returns descriptors of its stdin and its stdout."""
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    try:
        for _ in range(2):
            try:
                socket.send_fds(_line_to_nest(), [_json_line(argv)], [theirs_in, theirs_out])
                return ours_in, ours_out
            except OSError:
                _nests.clear()  # it died: a task may have killed it
        raise OSError("the guest cannot be started")
    finally:
        os.close(theirs_in)
        os.close(theirs_out)


def _line_to_nest() -> socket.socket:
    if not _nests:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            handle = theirs.fileno()
            argv = [sys.executable, "-I", "-S", NEST, str(handle)]
            subprocess.Popen(argv, pass_fds=[handle], stdin=subprocess.DEVNULL)
        _nests.append(ours)
    return _nests[0]


def _end_of(output: bytes) -> dict[str, Any] | None:
    """The end record among some frames."""
    for line in reversed(output.splitlines()):
        if line.startswith(ENDED):
            found: dict[str, Any] = json.loads(line)
            return found
    return None


def _replace_end(output: bytes, error: Exception) -> bytes:
    """A success whose volumes could not be committed is none, and another attempt may be."""
    lines: list[bytes] = []
    for line in output.splitlines(keepends=True):
        if line.startswith(ENDED) and (end := json.loads(line))["ok"]:
            reason, words = error.args
            message = f"the task's writes to its volumes cannot be committed: {words}"
            end.update(
                ok=False,
                infra=True,
                reason=reason,
                message=message,
            )
            line = _json_line(end)
            lines[:] = [one for one in lines if not one.startswith(RESULT)]
        lines.append(line)
    return b"".join(lines)


def _shut_frames(output: bytes) -> bytes:
    """Marks the container as closed: Modal chooses the container of the next task, so this one
    cannot be kept open for a task.
    """
    lines = output.splitlines()
    for place, line in enumerate(lines):
        if line.startswith(ENDED) and line.endswith(OPEN):
            lines[place] = line[: -len(OPEN)] + SHUT
    return b"".join(line + b"\n" for line in lines)


def _kill_marked(run: str) -> None:
    """Kills the processes that a task left, so that the next one has the container for itself."""
    mark = f"\0FLEETCTL_RUN={run}\0".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in b"\0" + file.read():
                    os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue


def _json_line(event: Any) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
