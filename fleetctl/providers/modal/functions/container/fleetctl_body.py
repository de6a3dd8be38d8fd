"""The body of every function that is deployed: runs one order through the guest, at most once.

Shipped into the function's containers as a module of its own, which knows the standard library of
Python 3.9, the guest beside it, and the SDK that every container has; it never imports ours. What
it returns are the guest's frames, compressed: data, never an object with code.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import subprocess
import sys
import time
import zlib
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Order = dict[str, Any]

# See fleetctl_attempt.py and so on.
ATTEMPT, VOLUMES, GANG = (f"/.fleetctl/{name}.py" for name in ("attempt", "volumes", "gang"))
VOID = "void"  # in the latch of a run that must not begin any more
ASK_FIRST_S, ASK_MOST_S = 0.2, 5.0  # between two askings

GPUS_S = 20.0  # for the driver to answer
GPUS_MAX = 64
GPU_NAME_MAX = 100

_latches: dict[str, Any] = {}  # of this container, by name
_asked: list[list[str]] = []  # the GPUs that the driver listed, once it was asked
_modules: dict[str, Any] = {}  # those beside the guest, once they are needed


class _Unfit(Exception):
    """The run cannot begin here, through no fault of its own. Its words: (reason, message)."""


def run(text: str) -> bytes:
    """Runs one call. text: the guest's order as JSON, with the additions of function_runs.py."""
    import modal

    order = json.loads(text)
    call = str(modal.current_function_call_id())
    latch = _open_latch(order["latch"])
    mine = f"{call} {secrets.token_hex(8)}"
    insist = partial(_insist_until, limit_s=order["patience_s"])
    if order["nodes"] > 1:
        return zlib.compress(_as_node(order, latch, mine, insist), 1)
    try:
        held = insist("LatchFailed", lambda: _latch_holder(latch, order["run"], mine))
        if held != mine:
            return zlib.compress(_not_begun(call, str(held)))
        volumes = _open_volumes(order["mounts"], insist)
        if volumes is not None:
            volumes.show()
    except _Unfit as error:
        return zlib.compress(_unfit_frames(error))
    _add_identity(order, call)
    return zlib.compress(_run_frames(order, latch, volumes, None), 1)


def _add_identity(order: Order, call: str) -> None:
    order["identity"]["keeper"] = order["handle"].replace("*", call)
    if order["asks_gpus"]:
        order["identity"]["gpus"] = _list_gpus()


def _as_node(
    order: Order,
    latch: Any,
    mine: str,
    insist: Callable[..., Any],
) -> bytes:
    """Runs in a container that is one node of a run, together with the others. Node 0 returns the
    frames of all nodes.
    """
    call = mine.partition(" ")[0]
    gang = _load_module("fleetctl_gang", GANG).ContainerGang(order, latch, _ask_quietly)
    leads = gang.rank == 0
    try:
        volumes = _open_volumes(order["mounts"], insist)
        if volumes is not None:
            volumes.show()
        if not gang.arrive(insist):
            return _json_line({"e": "preempted"})
        if leads:
            missing = gang.await_nodes()
            if missing:
                raise _Unfit("NodesNotReady", missing)
            held = insist("LatchFailed", lambda: _latch_holder(latch, order["run"], mine))
            if held != mine:
                gang.dismiss()
                return _not_begun(call, str(held))
            gang.begin()
        elif not gang.may_begin():
            return _json_line({"e": "void"})
    except _Unfit as error:
        if leads:
            gang.dismiss()
        else:
            gang.unfit(": ".join(error.args))
        return _unfit_frames(error)
    if order["ray"]:
        # Ray hands its own variables to all actors, which would seem to be on one machine then.
        os.environ.pop("NCCL_HOSTID", None)
    order = gang.order()
    _add_identity(order, call)
    return _run_frames(order, latch, volumes, gang)


def _run_frames(
    order: Order,
    latch: Any,
    volumes: Any,
    gang: Any,
) -> bytes:
    """Returns the guest's frames of the run, from its beginning to its end."""
    attempt = _load_module("fleetctl_attempt", ATTEMPT).ContainerAttempt
    made = attempt(order, latch, volumes, gang, ask=_ask_quietly, unfit=_Unfit)
    frames: bytes = made.frames()
    return frames


def _ask_quietly(verb: Callable[..., Any], *words: Any) -> Any:
    """The run goes on whatever becomes of this."""
    try:
        return verb(*words)
    except Exception as error:  # of the SDK, of any sort
        print(f"fleetctl: {error!r}", file=sys.stderr)
        return None


def _open_latch(name: str) -> Any:
    import modal

    if name not in _latches:
        _latches[name] = modal.Dict.from_name(name)
    return _latches[name]


def _latch_holder(
    latch: Any,
    run: str,
    mine: str,
) -> Any:
    """Returns the present holder of the run's latch; `mine` when we may begin the run. May be
    called again.
    """
    if latch.put(run, mine, skip_if_exists=True):
        return mine
    return latch.get(run)  # ours, when only the answer to an earlier try was lost


def _insist_until(
    reason: str,
    act: Callable[[], Any],
    *,
    limit_s: float,
) -> Any:
    """Repeats an act that may be done again at will, until Modal allows it: an error that had no
    effect must not cost the run an attempt. Raises _Unfit with the reason after limit_s.
    """
    import modal

    over_at_s = time.monotonic() + limit_s
    wait_s = ASK_FIRST_S
    while True:
        try:
            return act()
        except Exception as error:  # of the SDK, of any class
            gone = isinstance(error, modal.exception.NotFoundError)
            if gone or time.monotonic() + wait_s > over_at_s:
                words = " ".join(str(error).split()) or repr(error)
                raise _Unfit(reason, words) from error
        time.sleep(wait_s)
        wait_s = min(ASK_MOST_S, 2 * wait_s)


def _open_volumes(mounts: list[Any], insist: Callable[..., Any]) -> Any:
    """Returns the volumes of a task; None for a task without volumes."""
    if not mounts:
        return None
    return _load_module("fleetctl_volumes", VOLUMES).ContainerVolumes(mounts, insist)


def _load_module(name: str, path: str) -> Any:
    if name not in _modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        _modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_modules[name])
    return _modules[name]


def _unfit_frames(error: _Unfit) -> bytes:
    """Returns the line that replaces frames when the container is unfit."""
    reason, message = error.args
    return _json_line({"e": "unfit", "reason": reason, "message": message})


def _list_gpus() -> list[str]:
    """Returns this container's GPUs, as their driver names them; [] when the driver does not list
    them. The driver is asked once, before any task runs here.
    """
    if not _asked:
        argv = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        try:
            output = subprocess.run(
                argv,
                capture_output=True,
                check=True,
                timeout=GPUS_S,
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            print(f"fleetctl: {error!r}", file=sys.stderr)
            output = b""
        lines = output.decode("utf-8", "replace").splitlines()[:GPUS_MAX]
        _asked.append([line.strip()[:GPU_NAME_MAX] for line in lines if line.strip()])
    return _asked[0]


def _not_begun(call: str, held: str) -> bytes:
    """Returns the line that replaces frames when the run is not ours to begin."""
    holder = held.partition(" ")[0]
    if holder == VOID:
        return _json_line({"e": "void"})
    if holder == call:
        # Modal takes a machine away and begins its input again elsewhere; the work must not.
        return _json_line({"e": "preempted"})
    return _json_line({"e": "duplicate", "call": holder})


def _json_line(event: Any) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
