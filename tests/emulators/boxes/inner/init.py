"""Pid 1 of a box: starts the processes that the emulator asks for, reaps, tells of their ends.

When the emulator closes its socket or dies, this process ends, and the kernel ends all others of
its pid namespace with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import termios
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import calls
import tree
import wire


def run(spec: dict[str, Any], control: socket.socket, *, isolated: bool) -> NoReturn:
    """Never returns, never raises: this is a forked copy of the nursery."""
    code = 1
    try:
        control.setblocking(True)
        os.setsid()
        if isolated:
            calls.unshare(calls.CLONE_NEWNS | calls.CLONE_NEWUTS)
            calls.sethostname(spec["hostname"])
            tree.enter(spec)
        else:
            calls.subreaper()
            tree.skeleton(spec["root"])
        wire.send(control, {"ready": True})
        _serve(control, "" if isolated else spec["root"])
        code = 0
    except OSError as error:
        wire.send(control, {"ready": False, "problem": str(error)})
    except BaseException:
        traceback.print_exc()
    finally:
        if not isolated:
            _end_descendants()
        os._exit(code)


def _serve(control: socket.socket, prefix: str) -> None:
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if wake in ready:
            os.read(wake, 4096)
            _reap(control)
        if control.fileno() in ready:
            received = wire.receive(control)
            if received is None:
                return
            message, descriptors = received
            if "signal" in message:
                _signal(message)
            else:
                _spawn(control, message, descriptors, prefix)


def _spawn(
    control: socket.socket, message: dict[str, Any], descriptors: list[int], prefix: str
) -> None:
    before: Callable[[], object] | None = _take_terminal if message["pty"] else None
    try:
        started = subprocess.Popen(
            message["argv"],
            stdin=descriptors[0],
            stdout=descriptors[1],
            stderr=descriptors[2],
            env=message["env"],
            cwd=prefix + message["cwd"],
            start_new_session=True,
            preexec_fn=before,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else 22
        name = error.filename if isinstance(error, OSError) else None
        wire.send(control, {"refused": message["id"], "errno": number, "name": name})
        return
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    handle = os.pidfd_open(started.pid)
    wire.send(control, {"started": message["id"], "inner": started.pid}, [handle])
    os.close(handle)
    started.returncode = 0  # reaped below, with the orphans; Popen must not wait for it


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        wire.send(control, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _signal(message: dict[str, Any]) -> None:
    try:
        if message["group"]:
            os.killpg(message["inner"], message["signal"])
        else:
            os.kill(message["inner"], message["signal"])
    except ProcessLookupError:
        return  # it ended while the message was on its way


def _end_descendants() -> None:
    """Without a pid namespace: kill children until none is left; orphans come to us, too."""
    signal.set_wakeup_fd(-1)
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            pids = [int(pid) for pid in file.read().split()]
        if not pids:
            return
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for _ in pids:
            os.waitpid(-1, 0)
