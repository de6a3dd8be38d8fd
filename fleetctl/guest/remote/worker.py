"""A process that runs Python tasks: one, or one after another while the sandbox is open.

The functions for the supervisor are at the top; all else runs in the forked child.
"""

from __future__ import annotations

import gc
import os
import sys

from fleetctl.guest.program import enter
from fleetctl.guest.remote.child import CHANNEL, tell
from fleetctl.guest.remote.place import start_directory
from fleetctl.guest.text import compact, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Optional, TextIO

    from fleetctl.guest.task import Sandbox

RECEIVE_BYTES = 1024 * 1024


def message(order: dict[str, Any], variables: dict[str, str]) -> str:
    """The line that hands a task to a living worker."""
    return compact({"code": order["code"], "params": order["params"], "variables": variables})


def work(order: dict[str, Any], variables: dict[str, str]) -> NoReturn:
    """Be the worker. Never returns."""
    enter(start_directory(order), order["workdir"])
    os.environ.clear()
    os.environ.update(variables)
    _become_an_interpreter(variables)
    from fleetctl.guest import task
    from fleetctl.guest.lazy import show_source

    mounts = [{"mount": one["mount"], "root": one["mount"]} for one in order["volumes"]]
    sandbox = task.Sandbox(mounts)
    _forget_ourselves()
    gc.freeze()  # looking at what was here before would copy every page of it
    gc.enable()
    code = order["code"]
    show_source(code)
    exit_code = sandbox.run(code, order["params"], tell)
    if order["reusable"]:
        exit_code = _serve(sandbox, exit_code, show_source)
    task.leave(exit_code)
    raise AssertionError  # leave() does not return


def _become_an_interpreter(variables: dict[str, str]) -> None:
    """What Python would have done at its start, had it not been told to be quick (-I -S)."""
    import site

    site.main()
    # New ones: those of the interpreter's start know what its descriptors were then.
    streams = (open(0, encoding="utf-8", closefd=False), _writer(1), _writer(2))
    for name, stream in zip(("stdin", "stdout", "stderr"), streams):  # noqa: B905 - Python 3.9
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["<task>"]
    # "" is the directory that a task is in, as with `python -c`.
    asked = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = ["", *asked, *sys.path]


def _writer(handle: int) -> TextIO:
    return open(
        handle, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _forget_ourselves() -> None:
    """So that a task's own module named like one of ours is found."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fleetctl"]:
        del sys.modules[name]
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "OneFile"]


def _serve(sandbox: Sandbox, exit_code: int, show_source: Callable[[str], None]) -> int:
    """Run task after task until the supervisor hangs up; the last exit code."""
    import _socket

    channel = _socket.socket(fileno=os.dup(CHANNEL))
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    while True:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(null, 1)
        os.dup2(null, 2)
        tell({"e": "done", "exit": exit_code})
        received = _receive(channel)
        if received is None:
            return 0
        order, output = received
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(order["variables"])
        show_source(order["code"])
        exit_code = sandbox.run(order["code"], order["params"], tell)


def _receive(channel: Any) -> Optional[tuple[dict[str, Any], int]]:
    """The next task and the descriptor of its output."""
    import _socket

    room = _socket.CMSG_SPACE(4)
    data, rights, _, _ = channel.recvmsg(RECEIVE_BYTES, room)
    if not data:
        return None
    parts = [data]
    while not parts[-1].endswith(b"\n"):
        parts.append(channel.recv(RECEIVE_BYTES))
        if not parts[-1]:
            return None
    output = int.from_bytes(rights[0][2][:4], sys.byteorder)
    return parse(b"".join(parts).decode()), output
