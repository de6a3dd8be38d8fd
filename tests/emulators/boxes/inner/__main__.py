"""The nursery: a small process that forks boxes. Arguments: descriptor, mode, scratch directory;
perhaps a module, the directory that has it, and where boxes see that directory.

It is pid 1 of a pid namespace, so that all boxes die with it, and it dies when the socket to the
emulator ends. Each box is one child, pid 1 of a namespace of its own (see init.py). Run as a file:
as a directory it would have modules that a fresh interpreter has not (see become.py).
"""

from __future__ import annotations

import _signal
import _socket
import gc
import os
import select
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import become
import calls
import init
import naming
import tree
import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from program import Program


def main() -> Program:
    """Returns only in a process of a box that is to run a Python program."""
    end = _socket.socket(fileno=int(sys.argv[1]))
    end.setblocking(True)
    problem = "asked for" if sys.argv[2] == "plain" else _enter_namespaces()
    overlays = not problem and _overlays(sys.argv[3])
    wire.send(end, {"isolated": not problem, "problem": problem, "overlays": overlays})
    naming.look()
    become.preload()
    become.hide_ourselves()
    if sys.argv[4:] and not problem:
        become.import_library(*sys.argv[4:])
    gc.freeze()
    wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    _signal.set_wakeup_fd(woken)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
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
                import shutil

                shutil.rmtree(sys.argv[3], ignore_errors=True)
                os._exit(0)
            program = _birth(end, received[0], received[1][0], own)
            if program is not None:
                return program


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
    _hide_start_files()
    return ""


def _hide_start_files() -> None:
    """What the host has its Python do at each start is no part of an image, and can cost more than
    the start itself.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = f"{sys.base_prefix}/lib/{version}/site-packages"
    names = os.listdir(packages) if os.path.isdir(packages) else []
    for name in names:
        if name.endswith(".pth"):
            calls.mount(os.devnull, f"{packages}/{name}", "", calls.MS_BIND)


def _overlays(place: str) -> bool:
    """Tried in a child, so that the mounts of the trial vanish with it."""
    child = os.fork()
    if child == 0:
        calls.unshare(calls.CLONE_NEWNS)
        os._exit(0 if tree.overlays_work(place) else 1)
    _pid, status = os.waitpid(child, 0)
    return status == 0


def _birth(end: _socket.socket, spec: dict[str, Any], control: int, own: int) -> Program | None:
    """Fork a box's pid 1; its pidfd goes to the emulator, which learns of its death by it.

    None in the nursery itself; see init.run.
    """
    if own:
        calls.unshare(calls.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        end.close()
        _signal.set_wakeup_fd(-1)
        return init.run(spec, _socket.socket(fileno=control), isolated=bool(own))
    if own:
        calls.setns(own, calls.CLONE_NEWPID)
    os.close(control)
    handle = os.pidfd_open(pid)
    wire.send(end, {"born": spec["id"]}, [handle])
    os.close(handle)
    return None


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


become.run(main())
