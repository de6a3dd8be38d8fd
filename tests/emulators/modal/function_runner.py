"""Runs in a function container: loads one function, then answers calls of it until told to stop.

Started by function_container.py as a script, under the Python of the image. Standard library
only; the SDK is imported only by code that uses it, so that a container is up in milliseconds.

Descriptor 0 is a socket to the emulator. On it both sides write frames: two lengths, a JSON head
and a body. What the user's code prints goes to descriptors 1 and 2, which never carry control.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import io
import json
import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

PICKLE, CBOR = 1, 4  # modal_proto.api_pb2.DataFormat
_CLOUDPICKLE = "modal._vendor.cloudpickle"
_PICKLE_PROTOCOL = 4


class InputCancellation(BaseException):
    """The input that runs now was cancelled. No `Exception`, so that user code lets it through."""


class _NeedsSdk(Exception):
    """The pickle holds objects of the SDK, which only the SDK can load."""


class Link:
    """The socket, shared by the main thread (results) and the reading thread (orders)."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self._file = self.socket.makefile("rb")
        self._lock = threading.Lock()

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        text = json.dumps(head).encode()
        with self._lock:
            self.socket.sendall(struct.pack(">II", len(text), len(body)) + text + body)

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        lengths = self._file.read(8)
        if len(lengths) < 8:
            return None
        head_length, body_length = struct.unpack(">II", lengths)
        return json.loads(self._file.read(head_length)), self._file.read(body_length)


def main() -> None:
    link = Link(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.stdout.reconfigure(line_buffering=True)  # a log shows a line when it is printed
    first = link.receive()
    if first is None:
        return
    head, body = first
    codec = Codec(head["packages"])
    try:
        function = load(head, body, codec)
        if head["cluster"]:
            join_cluster(**head["cluster"])
        if head.get("web"):
            begin_web_server(function, *head["web"])
    except BaseException as error:
        traceback.print_exc()
        flush()
        link.send({"op": "failed", **told(error)}, codec.dump_error(error))
        return
    link.send({"op": "ready"})
    serve(link, function, codec)


def load(head: dict[str, Any], body: bytes, codec: Codec) -> Callable[..., Any]:
    """The function itself, out of a pickle or out of the module that was mounted."""
    if head["kind"] == "serialized":
        found = codec.load_pickle(body)
    else:
        sys.path.insert(0, "/root")
        found = importlib.import_module(head["module"])
        for name in head["function"].split("."):
            found = getattr(found, name)
    function: Callable[..., Any] = found
    if type(found).__module__.split(".")[0] == "modal":
        # A decorated function is an object of the SDK; the user's own is inside.
        synchronizer = importlib.import_module("modal._utils.async_utils").synchronizer
        function = synchronizer._translate_in(found)._raw_f
    if _mentions_sdk(getattr(function, "__code__", None)):
        importlib.import_module("modal")
    return function


def join_cluster(task_id: str, address: str) -> None:
    """As in every container of a clustered function before its first input: the SDK meets the
    others. address: what the service's own resolver tells of this container.
    """
    resolve = socket.getaddrinfo

    def resolved(host: Any, *rest: Any, **options: Any) -> Any:
        return resolve(address if host == "i6pn.modal.local" else host, *rest, **options)

    socket.getaddrinfo = resolved
    client = importlib.import_module("modal.client").Client.from_env()
    importlib.import_module("modal._cluster").initialize_clustered_function(client, task_id)


def begin_web_server(function: Callable[..., Any], port: int, within_s: float) -> None:
    """As the SDK does before the first request: the function starts it, then its port opens."""
    function()
    until_s = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            if time.monotonic() > until_s:
                raise TimeoutError(f"waited too long for port {port}") from None
            time.sleep(0.01)


def _mentions_sdk(code: Any) -> bool:
    """Whether to import the SDK before the first call, so that it knows the ids of the call."""
    if not isinstance(code, types.CodeType):
        return False
    return "modal" in code.co_names or any(_mentions_sdk(inner) for inner in code.co_consts)


def serve(link: Link, function: Callable[..., Any], codec: Codec) -> None:
    """One call at a time, on the main thread, where a signal can interrupt it."""
    calls: queue.Queue[tuple[dict[str, Any], bytes] | None] = queue.Queue()
    running: list[str] = []
    main_thread = threading.main_thread().ident or 0

    def read_orders() -> None:
        while (order := link.receive()) is not None:
            if order[0]["op"] == "cancel":
                if running == [order[0]["input_id"]]:
                    signal.pthread_kill(main_thread, signal.SIGUSR1)
            elif order[0]["op"] == "interrupt":
                signal.pthread_kill(main_thread, signal.SIGINT)
            else:
                calls.put(order)
        calls.put(None)

    def on_cancel(number: int, frame: Any) -> None:
        if running:  # else it ended between the order and the signal
            raise InputCancellation("Input was cancelled by user")

    signal.signal(signal.SIGUSR1, on_cancel)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=read_orders, daemon=True).start()
    while (call := calls.get()) is not None and call[0]["op"] == "call":
        head, body = call
        answer, data = run(link, function, codec, head, body, running)
        flush()
        link.send({"op": "result", "input_id": head["input_id"], **answer}, data)


def run(
    link: Link,
    function: Callable[..., Any],
    codec: Codec,
    head: dict[str, Any],
    body: bytes,
    running: list[str],
) -> tuple[dict[str, Any], bytes]:
    """The head and the body of the answer. Everything that user code raises ends up in it."""
    try:
        args, kwargs = codec.load(body, head["format"])
        _tell_sdk(head)
        running.append(head["input_id"])
        link.send({"op": "began", "input_id": head["input_id"]})
        try:
            value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
        finally:
            running.clear()
        return {"status": "success", "format": head["format"]}, codec.dump(value, head["format"])
    except InputCancellation:
        return {"status": "cancelled"}, b""
    except KeyboardInterrupt:
        raise  # the machine is taken away; no answer, as of the SDK
    except (SystemExit, BaseException) as error:
        traceback.print_exc()
        answer = {"status": "failure", "format": head["format"], **told(error)}
        return answer, codec.dump_error(error) if head["format"] == PICKLE else b""


def _tell_sdk(head: dict[str, Any]) -> None:
    context = sys.modules.get("modal._runtime.execution_context")
    if context is not None:
        context._set_current_context_ids([head["input_id"]], [head["call_id"]], [""])


def told(error: BaseException) -> dict[str, Any]:
    return {
        "exception": repr(error)[:100_000],
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }


def flush() -> None:
    """What was printed must be with the emulator before the result is."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


class Codec:
    """Loads arguments and functions, dumps results. `packages` is a directory with the SDK."""

    def __init__(self, packages: str) -> None:
        sys.path.append(packages)
        if _CLOUDPICKLE in sys.modules:  # this Python was forked from one that has the SDK
            self.cloudpickle = sys.modules[_CLOUDPICKLE]
            return
        path = os.path.join(packages, *_CLOUDPICKLE.split(".")) + ".py"
        spec = importlib.util.spec_from_file_location(_CLOUDPICKLE, path)
        assert spec is not None and spec.loader is not None
        self.cloudpickle = importlib.util.module_from_spec(spec)
        # Under its full name, so that pickles which name it do not import the whole SDK.
        sys.modules[_CLOUDPICKLE] = self.cloudpickle
        spec.loader.exec_module(self.cloudpickle)

    def load(self, body: bytes, data_format: int) -> Any:
        if data_format == CBOR:
            return importlib.import_module("cbor2").loads(body)
        return self.load_pickle(body)

    def load_pickle(self, body: bytes) -> Any:
        try:
            return _Unpickler(io.BytesIO(body), self.cloudpickle).load()
        except _NeedsSdk:
            client = importlib.import_module("modal.client")
            serialization = importlib.import_module("modal._serialization")
            client.Client.from_env()
            return serialization.deserialize(body, client._Client._client_from_env)

    def dump(self, value: Any, data_format: int) -> bytes:
        if data_format == CBOR:
            dumped: bytes = importlib.import_module("cbor2").dumps(value)
            return dumped
        buffer = io.BytesIO()
        self.cloudpickle.Pickler(buffer, protocol=_PICKLE_PROTOCOL).dump(value)
        return buffer.getvalue()

    def dump_error(self, error: BaseException) -> bytes:
        """Nothing when it cannot be pickled; the caller still has its text."""
        bare = error.with_traceback(None)
        bare.__cause__ = bare.__context__ = None
        try:
            return self.dump(bare, PICKLE)
        except Exception as problem:
            print(f"the exception could not be pickled: {problem}", file=sys.stderr)
            return b""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, cloudpickle: types.ModuleType) -> None:
        super().__init__(file)
        self._cloudpickle = cloudpickle

    def find_class(self, module: str, name: str) -> Any:
        if module == _CLOUDPICKLE:
            return getattr(self._cloudpickle, name)
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise _NeedsSdk


if __name__ == "__main__":
    main()
