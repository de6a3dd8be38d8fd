"""The nursery: a small process that forks boxes. Arguments: descriptor, mode, scratch directory.

It is pid 1 of a pid namespace, so that all boxes die with it, and it dies when the socket to the
emulator ends. Each box is one child, pid 1 of a namespace of its own (see init.py).
"""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import socket
import sys
from typing import Any

import calls
import init
import tree
import wire


def main() -> None:
    end = socket.socket(fileno=int(sys.argv[1]))
    end.setblocking(True)
    problem = "asked for" if sys.argv[2] == "plain" else _enter_namespaces()
    overlays = not problem and _overlays(sys.argv[3])
    wire.send(end, {"isolated": not problem, "problem": problem, "overlays": overlays})
    gc.freeze()
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Saved, because a process may enter a new pid namespace for its children only from its own.
    own = 0 if problem else os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    poll = select.poll()
    poll.register(end, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if wake in ready:
            os.read(wake, 4096)
            _reap()
        if end.fileno() in ready:
            received = wire.receive(end)
            if received is None:
                # The boxes end with this process; what they wrote goes with them.
                shutil.rmtree(sys.argv[3], ignore_errors=True)
                os._exit(0)
            _birth(end, received[0], received[1][0], own)


def _enter_namespaces() -> str:
    """Go on as pid 1 of new namespaces; the parent waits for its end. Else the reason why not."""
    uid, gid = os.getuid(), os.getgid()
    kinds = calls.CLONE_NEWUSER | calls.CLONE_NEWNS | calls.CLONE_NEWPID | calls.CLONE_NEWIPC
    try:
        calls.unshare(kinds)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")
        _write("/proc/self/gid_map", f"0 {gid} 1")
    except OSError as error:
        return str(error)
    child = os.fork()
    if child:
        # Nothing of this process may keep the socket open, or the nursery would outlive it.
        os.closerange(0, 256)
        os.waitpid(child, 0)
        os._exit(0)
    calls.mount("none", "/", "", calls.MS_REC | calls.MS_PRIVATE)
    # So that /proc/self and /proc/<pid> name processes of this namespace.
    calls.mount("proc", "/proc", "proc", calls.MS_NOSUID | calls.MS_NODEV)
    return ""


def _overlays(place: str) -> bool:
    """Tried in a child, so that the mounts of the trial vanish with it."""
    child = os.fork()
    if child == 0:
        calls.unshare(calls.CLONE_NEWNS)
        os._exit(0 if tree.overlays_work(place) else 1)
    _pid, status = os.waitpid(child, 0)
    for name in os.listdir(place):
        shutil.rmtree(os.path.join(place, name))
    return status == 0


def _birth(end: socket.socket, spec: dict[str, Any], control: int, own: int) -> None:
    """Fork a box's pid 1; its pidfd goes to the emulator, which learns of its death by it."""
    if own:
        calls.unshare(calls.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        end.close()
        signal.set_wakeup_fd(-1)
        init.run(spec, socket.socket(fileno=control), isolated=bool(own))
    if own:
        calls.setns(own, calls.CLONE_NEWPID)
    os.close(control)
    handle = os.pidfd_open(pid)
    wire.send(end, {"born": spec["id"]}, [handle])
    os.close(handle)


def _reap() -> None:
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


main()
