"""The body of every function that is deployed: runs one order through the guest, at most once.

Shipped into the function's containers as a module of its own, which knows the standard library of
Python 3.9, the guest beside it, and the SDK that every container has; it never imports ours. What
it returns are the guest's frames, compressed: data, and nothing that could be called.
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
GPUS_MAX, GPU_NAME_MAX = 64, 100

_latches: dict[str, Any] = {}  # of this container, by name
_asked: list[list[str]] = []  # what the driver said, once it was asked
_modules: dict[str, Any] = {}  # those beside the guest, once they are needed


class _Unfit(Exception):
    """The run cannot begin here, through no fault of its own. Its words: (reason, message)."""


def run(text: str) -> bytes:
    """One call. text: the guest's order as JSON, with what runs.py adds to it."""
    import modal

    order = json.loads(text)
    call = str(modal.current_function_call_id())
    latch = _latch(order["latch"])
    mine = f"{call} {secrets.token_hex(8)}"
    insist = partial(_insist, limit_s=order["patience_s"])
    if order["nodes"] > 1:
        return zlib.compress(_as_node(order, latch, mine, insist), 1)
    try:
        held = insist("LatchFailed", lambda: _held(latch, order["run"], mine))
        if held != mine:
            return zlib.compress(_not_begun(call, str(held)))
        volumes = _volumes(order["mounts"], insist)
        if volumes is not None:
            volumes.show()
    except _Unfit as error:
        return zlib.compress(_unfit(error))
    _identify(order, call)
    return zlib.compress(_frames(order, latch, volumes, None), 1)


def _identify(order: Order, call: str) -> None:
    order["identity"]["keeper"] = order["handle"].replace("*", call)
    if order["asks_gpus"]:
        order["identity"]["gpus"] = _gpus()


def _as_node(order: Order, latch: Any, mine: str, insist: Callable[..., Any]) -> bytes:
    """The run in a container that is one node of it, together with the others. What node 0 returns
    is the story of all.
    """
    call = mine.partition(" ")[0]
    gang = _module("fleetctl_gang", GANG).Gang(order, latch, _ask)
    leads = gang.rank == 0
    try:
        volumes = _volumes(order["mounts"], insist)
        if volumes is not None:
            volumes.show()
        if not gang.arrive(insist):
            return _line({"e": "preempted"})
        if leads:
            missing = gang.gathered()
            if missing:
                raise _Unfit("NodesNotReady", missing)
            held = insist("LatchFailed", lambda: _held(latch, order["run"], mine))
            if held != mine:
                gang.dismiss()
                return _not_begun(call, str(held))
            gang.begin()
        elif not gang.may_begin():
            return _line({"e": "void"})
    except _Unfit as error:
        if leads:
            gang.dismiss()
        else:
            gang.unfit(": ".join(error.args))
        return _unfit(error)
    if order["ray"]:
        # Ray hands its own variables to all actors, which would seem to be on one machine then.
        os.environ.pop("NCCL_HOSTID", None)
    order = gang.order()
    _identify(order, call)
    return _frames(order, latch, volumes, gang)


def _frames(order: Order, latch: Any, volumes: Any, gang: Any) -> bytes:
    """What the guest tells of the run, from its beginning to its end."""
    attempt = _module("fleetctl_attempt", ATTEMPT).Attempt
    return attempt(order, latch, volumes, gang, ask=_ask, unfit=_Unfit).frames()  # type: ignore[no-any-return]


def _ask(verb: Callable[..., Any], *words: Any) -> Any:
    """The run goes on whatever becomes of this."""
    try:
        return verb(*words)
    except Exception as error:  # noqa: BLE001 - of the SDK, of any sort
        print(f"fleetctl: {error!r}", file=sys.stderr)
        return None


def _latch(name: str) -> Any:
    import modal

    if name not in _latches:
        _latches[name] = modal.Dict.from_name(name)
    return _latches[name]


def _held(latch: Any, run: str, mine: str) -> Any:
    """What the run's latch holds now; `mine` when we may begin it. May be asked again."""
    if latch.put(run, mine, skip_if_exists=True):
        return mine
    return latch.get(run)  # ours, when only the answer to an earlier try was lost


def _insist(reason: str, act: Callable[[], Any], *, limit_s: float) -> Any:
    """Do what may be done again at will, until Modal lets us: an error that had no effect must not
    cost the run an attempt. Raises _Unfit with the reason after limit_s.
    """
    import modal

    over_at_s = time.monotonic() + limit_s
    wait_s = ASK_FIRST_S
    while True:
        try:
            return act()
        except Exception as error:
            gone = isinstance(error, modal.exception.NotFoundError)
            if gone or time.monotonic() + wait_s > over_at_s:
                words = " ".join(str(error).split()) or repr(error)
                raise _Unfit(reason, words) from error
        time.sleep(wait_s)
        wait_s = min(ASK_MOST_S, 2 * wait_s)


def _volumes(mounts: list[Any], insist: Callable[..., Any]) -> Any:
    """The volumes of a task; None for a task without any."""
    if not mounts:
        return None
    return _module("fleetctl_volumes", VOLUMES).Volumes(mounts, insist)


def _module(name: str, path: str) -> Any:
    if name not in _modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        _modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_modules[name])
    return _modules[name]


def _unfit(error: _Unfit) -> bytes:
    """What is told in place of frames then."""
    reason, message = error.args
    return _line({"e": "unfit", "reason": reason, "message": message})


def _gpus() -> list[str]:
    """This container's, as their driver names them; none when it does not tell. Asked before any
    task runs here, and once.
    """
    if not _asked:
        argv = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        try:
            output = subprocess.run(argv, capture_output=True, check=True, timeout=GPUS_S).stdout
        except (OSError, subprocess.SubprocessError) as error:
            print(f"fleetctl: {error!r}", file=sys.stderr)
            output = b""
        lines = output.decode("utf-8", "replace").splitlines()[:GPUS_MAX]
        _asked.append([line.strip()[:GPU_NAME_MAX] for line in lines if line.strip()])
    return _asked[0]


def _not_begun(call: str, held: str) -> bytes:
    """What is told in place of frames when the run is not ours to begin."""
    holder = held.partition(" ")[0]
    if holder == VOID:
        return _line({"e": "void"})
    if holder == call:
        # Modal takes a machine away and begins its input again elsewhere; the work must not.
        return _line({"e": "preempted"})
    return _line({"e": "duplicate", "call": holder})


def _line(event: Any) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"
