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
    start = _with_terminal if message["pty"] else _plain
    try:
        os.chdir(prefix + message["cwd"])
        pid = start(message, descriptors)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else 22
        name = error.filename if isinstance(error, OSError) else None
        wire.send(control, {"refused": message["id"], "errno": number, "name": name})
        return
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    handle = os.pidfd_open(pid)
    wire.send(control, {"started": message["id"], "inner": pid}, [handle])
    os.close(handle)


def _plain(message: dict[str, Any], descriptors: list[int]) -> int:
    """The pid. By `posix_spawn`, which takes a third of what `subprocess` does."""
    argv, env = message["argv"], message["env"]
    actions = [(os.POSIX_SPAWN_DUP2, given, place) for place, given in enumerate(descriptors)]
    places = [""] if "/" in argv[0] else [f"{one or '.'}/" for one in os.get_exec_path(env)]
    refused: OSError | None = None
    for place in places:
        try:
            return os.posix_spawn(
                place + argv[0],
                argv,
                env,
                file_actions=actions,
                setsid=True,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            refused = refused or error
        except OSError as error:
            if not isinstance(refused, PermissionError):
                refused = error
    assert refused is not None
    raise OSError(refused.errno, refused.strerror, argv[0])


def _with_terminal(message: dict[str, Any], descriptors: list[int]) -> int:
    started = subprocess.Popen(
        message["argv"],
        stdin=descriptors[0],
        stdout=descriptors[1],
        stderr=descriptors[2],
        env=message["env"],
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    started.returncode = 0  # reaped below, with the orphans; Popen must not wait for it
    return started.pid


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
