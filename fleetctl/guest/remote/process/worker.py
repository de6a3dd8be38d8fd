"""A process that runs Python tasks: one, or one after another while the sandbox is open.

The functions for the supervisor are at the top; the rest runs in the forked child.
"""

from __future__ import annotations

import gc
import os
import sys

from fleetctl.guest.remote.process.child import begin_training, send_line
from fleetctl.guest.task.program import enter_directory
from fleetctl.guest.task.serving import Surroundings, serve_tasks
from fleetctl.guest.task.text import encode_compact, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TextIO


TRAINING = ("checkpoint", "progress", "library")


def encode_task(order: dict[str, Any], variables: dict[str, str]) -> str:
    """Returns the line that hands a task to a living worker."""
    handed = {name: order.get(name) for name in ("code", "params", *TRAINING)}
    return encode_compact({**handed, "variables": variables})


def is_reusable(order: dict[str, Any]) -> bool:
    """Returns whether a task's worker takes further tasks. Services begin and end with each task,
    and so does the process that leads them.
    """
    return order["mode"] == "python" and order["reusable"] and not order.get("services")


def become_worker(
    order: dict[str, Any],
    variables: dict[str, str],
    directory: str,
) -> NoReturn:
    """Becomes the worker. Never returns. directory: where the task begins."""
    variables = {**variables, **begin_training(order, variables)[0]}
    enter_directory(directory, order["workdir"])
    os.environ.clear()
    os.environ.update(variables)
    _become_an_interpreter(variables)
    surroundings = Surroundings({}) if is_reusable(order) else None
    from fleetctl.guest.task import task
    from fleetctl.guest.task.lazy import show_source

    mounts = [{"mount": one["mount"], "root": one["mount"]} for one in order["volumes"]]
    sandbox = task.Sandbox(mounts)
    _forget_ourselves()
    gc.freeze()  # collecting objects of before the fork would copy all of their pages
    gc.enable()
    code = order["code"]
    show_source(code)
    exit_code = sandbox.run(code, order["params"], send_line)
    if surroundings is not None:

        def run(line: str) -> int:
            handed = parse_json(line)
            os.environ.update(handed["variables"])
            os.environ.update(begin_training(handed, handed["variables"])[0])
            show_source(handed["code"])
            return sandbox.run(handed["code"], handed["params"], send_line)

        exit_code = serve_tasks(exit_code, run, send_line, surroundings)
    task.exit_process(exit_code)
    raise AssertionError  # leave() does not return


def _become_an_interpreter(variables: dict[str, str]) -> None:
    """Does the rest of Python's start, which its quick options (-I -S) left out."""
    import site

    site.main()
    # New ones: those of the interpreter's start recorded what its descriptors were then.
    streams = (open(0, encoding="utf-8", closefd=False), _open_writer(1), _open_writer(2))
    for name, stream in zip(("stdin", "stdout", "stderr"), streams):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["<task>"]
    # "" is the directory that a task is in, as with `python -c`.
    asked = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = ["", *asked, *sys.path]


def _open_writer(handle: int) -> TextIO:
    return open(
        handle,
        "w",
        buffering=1,
        encoding="utf-8",
        errors="backslashreplace",
        closefd=False,
    )


def _forget_ourselves() -> None:
    """Forgets our own modules, so that a task's module named like one of ours is found."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fleetctl"]:
        del sys.modules[name]
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "OneFile"]
