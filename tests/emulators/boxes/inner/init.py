"""Pid 1 of a box: starts the processes that the emulator asks for, reaps, tells of their ends.

When the emulator closes its socket or dies, this process ends, and the kernel ends all others of
its pid namespace with it.
"""

from __future__ import annotations

import _signal
import os
import select
import sys

import become
import calls
import tree
import wire
from program import known_program, search_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Mapping
    from typing import Any

    from program import Program

NOT_BECOME = 70  # the exit code of a process that did not get as far as its program


def run(spec: dict[str, Any], control: socket, *, isolated: bool) -> Program:
    """Never raises: this is a forked copy of the nursery. Returns only in a process that has been
    forked for this program, which is then to be run.
    """
    code = 1
    devices: dict[str, int] = {}
    try:
        control.setblocking(True)
        os.setsid()
        if isolated:
            calls.unshare(calls.CLONE_NEWNS | calls.CLONE_NEWUTS)
            calls.sethostname(spec["hostname"])
            devices = tree.enter(spec)
        else:
            calls.subreaper()
            tree.skeleton(spec["root"])
        wire.send(control, {"ready": True, "objects": [*devices]}, [*devices.values()])
        for device in devices.values():
            os.close(device)
        program = _serve(control, "" if isolated else spec["root"], warm=spec["warm"])
        if program is not None:
            return program
        code = 0
    except OSError as error:
        wire.send(control, {"ready": False, "problem": str(error)})
    except BaseException:
        sys.excepthook(*sys.exc_info())
    if not isolated:
        _end_descendants()
    os._exit(code)


def _serve(control: socket, prefix: str, *, warm: bool) -> Program | None:
    """Until the emulator leaves; None then. What is returned is to be run: see `run`."""
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(woken)
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
                return None
            message, descriptors = received
            if "signal" in message:
                _send_signal(message)
                continue
            program = _spawn(control, message, descriptors, prefix + message["cwd"], warm=warm)
            if program is not None:
                return program


def _spawn(
    control: socket,
    message: dict[str, Any],
    descriptors: list[int],
    directory: str,
    *,
    warm: bool,
) -> Program | None:
    """A new process. Returns the program in the process that is to run it, else None."""
    start, us = _with_terminal if message["pty"] else _plain, os.getpid()
    try:
        os.chdir(directory)
        forkable = warm and not message["pty"]
        program = known_program(message["argv"], message["env"]) if forkable else None
        pid = os.fork() if program is not None else start(message, descriptors)
        if pid == 0 and program is not None:
            return _settled(program, control, descriptors)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) and error.errno else 22
        name = error.filename if isinstance(error, OSError) else None
        wire.send(control, {"refused": message["id"], "errno": number, "name": name})
        return None
    finally:
        if os.getpid() == us:
            for descriptor in descriptors:
                os.close(descriptor)
    handle = os.pidfd_open(pid)
    wire.send(control, {"started": message["id"], "inner": pid}, [handle])
    os.close(handle)
    return None


def _settled(program: Program, control: socket, descriptors: list[int]) -> Program:
    """In the new process."""
    try:
        control.detach()  # or its end would close what has its number then
        become.settle(program, descriptors)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(NOT_BECOME)
    return program


def _plain(message: dict[str, Any], descriptors: list[int]) -> int:
    """The pid. By `posix_spawn`, which takes a third of what a fork does."""
    argv, env = message["argv"], message["env"]
    actions = [(os.POSIX_SPAWN_DUP2, given, place) for place, given in enumerate(descriptors)]

    def start(path: str) -> int:
        return os.posix_spawn(
            path,
            argv,
            env,
            file_actions=actions,
            setsid=True,
            setsigdef=(_signal.SIGPIPE, _signal.SIGXFSZ),
        )

    return _found(start, argv[0], env)


def _with_terminal(message: dict[str, Any], descriptors: list[int]) -> int:
    """The pid. The new session takes the terminal that is its stdin, which needs a fork of ours."""
    import fcntl
    import termios

    told, tell = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for place, given in enumerate(descriptors):
                os.dup2(given, place)
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
                _signal.signal(number, _signal.SIG_DFL)
            argv, env = message["argv"], message["env"]
            _found(lambda path: os.execve(path, argv, env), argv[0], env)
        except OSError as error:
            os.write(tell, b"%d" % (error.errno or 0))
        os._exit(NOT_BECOME)
    os.close(tell)
    problem = os.read(told, 16)
    os.close(told)
    if problem:
        os.waitpid(pid, 0)
        raise OSError(int(problem), os.strerror(int(problem)), message["argv"][0])
    return pid


def _found(start: Callable[[str], int], name: str, env: Mapping[str, str]) -> int:
    """Start the first program of that name on the PATH; raises OSError as a shell would tell it."""
    places = [""] if "/" in name else [f"{one or '.'}/" for one in search_path(env)]
    refused: OSError | None = None
    for place in places:
        try:
            return start(place + name)
        except (FileNotFoundError, NotADirectoryError) as error:
            refused = refused or error
        except OSError as error:
            if not isinstance(refused, PermissionError):
                refused = error
    assert refused is not None
    raise OSError(refused.errno, refused.strerror, name)


def _reap(control: socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        wire.send(control, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _send_signal(message: dict[str, Any]) -> None:
    # A process that was forked a moment ago may not have its group yet.
    for tell in (os.killpg, os.kill) if message["group"] else (os.kill,):
        try:
            tell(message["inner"], message["signal"])
            return
        except ProcessLookupError:
            continue  # it ended while the message was on its way


def _end_descendants() -> None:
    """Without a pid namespace: kill children until none is left; orphans come to us, too."""
    _signal.set_wakeup_fd(-1)
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            pids = [int(pid) for pid in file.read().split()]
        if not pids:
            return
        for pid in pids:
            os.kill(pid, _signal.SIGKILL)
        for _ in pids:
            os.waitpid(-1, 0)
