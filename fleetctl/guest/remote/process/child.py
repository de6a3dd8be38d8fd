"""New processes: their environment, and the way from the fork to a program.

Called by the supervisor. A process begins in a session of its own, with an empty stdin, and with
its output and its channel (descriptor 3, on which it sends events) going to the supervisor.
"""

from __future__ import annotations

import _signal
import os

from fleetctl.guest.remote import place
from fleetctl.guest.task.inputs import name_inputs
from fleetctl.guest.task.parameters import parameter_texts, parameter_variables, past_proxies
from fleetctl.guest.task.program import become, enter, guarded
from fleetctl.guest.task.serving import CHANNEL
from fleetctl.guest.task.text import compact, spaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

    Variables = Dict[str, str]

DESCRIPTORS_MAX = 1024  # more than the supervisor ever has
_kept: list[Callable[..., Tuple[Variables, List[str]]]] = []


def environment(
    order: dict[str, Any],
    secrets: dict[str, str],
    base: dict[str, str],
) -> Variables:
    """Returns all variables of a task. Also writes the file with its parameters."""
    files = f"{os.getcwd()}/{place.FILES}"
    inputs = name_inputs(order, files)
    _overwrite_file(f"{place.FILES}/params.json", spaced(order["params"]).encode())
    variables = {
        **base,
        **order["env"],
        "FLEETCTL_PARAMS": f"{files}/params.json",
        "FLEETCTL_RESULT": f"{files}/result.json",
        "FLEETCTL_METRICS": f"{files}/metrics.jsonl",
        "FLEETCTL_RUN": order["run"],
        "FLEETCTL_ATTEMPT": str(order["attempt"]),
        "JOB_COMPLETION_INDEX": order["env"].get("FLEETCTL_NODE_RANK", str(order["index"])),
    }
    for volume in order["volumes"]:
        variables[volume["variable"]] = volume["mount"]
    if order["mode"] == "python":
        variables.update(parameter_texts(order["params"]))
    else:
        variables.update(parameter_variables(order["params"], files))
    variables.update(inputs)
    variables.update(secrets)
    variables.update(past_proxies(variables))
    return variables


def begun_of(order: dict[str, Any], variables: Variables) -> tuple[Variables, list[str]]:
    """Returns (variables to add, arguments to append) of a program that may resume from a
    checkpoint, and is watched. Called in the process that becomes the program.
    """
    if not order.get("library"):
        return {}, []
    if not _kept:  # a worker forgets our modules before its first task, and may get another one
        from fleetctl.guest.checkpoints.begin import begin

        _kept.append(begin)
    library = f"{os.path.dirname(variables['FLEETCTL_PARAMS'])}/python"
    root = order["checkpoint"]["path"] if order.get("checkpoint") else ""
    return _kept[0](
        order,
        root,
        library,
        variables,
        send_line,
    )


def spawn(
    work: Callable[[], NoReturn],
    output: int,
    channel: int,
) -> int:
    """Forks a process that is set up and then does `work`; returns its pid. Raises OSError when no
    process can be started.
    """

    def whole() -> NoReturn:
        _detach_session(output, channel)
        work()

    pid = os.fork()
    if pid == 0:
        guarded(whole, send_line)
    return pid


def execute(
    argv: list[str],
    variables: Variables,
    directory: str,
    workdir: Optional[str] = None,
) -> NoReturn:
    """Becomes a program. Raises OSError when that is not possible."""
    enter(directory, workdir)
    become(argv, variables)


def send_line(event: dict[str, Any]) -> None:
    """Sends one line to the supervisor. A result is JSON text, which is passed on as it is."""
    result = event.get("json")
    line = compact(event) if result is None else '{"e":"result","value":' + result + "}"
    data = memoryview((line + "\n").encode())
    while data:
        data = data[os.write(CHANNEL, data) :]


def _detach_session(output: int, channel: int) -> None:
    os.setsid()
    os.umask(0o022)
    _signal.set_wakeup_fd(-1)
    for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGPIPE, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if channel != CHANNEL:
        os.dup2(channel, CHANNEL, inheritable=False)
    os.closerange(CHANNEL + 1, DESCRIPTORS_MAX)


def _overwrite_file(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
