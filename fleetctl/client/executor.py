"""An executor of `concurrent.futures` whose calls are tasks.

Calls of one function that are submitted within a moment of each other become one BatchJob; each
later moment makes one more. A job has a thread of its own from its first call on, which makes it,
follows it and settles the futures; the interpreter does not exit before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor as FuturesExecutor
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fleetctl.client.calls import (
    CALLS_MAX,
    Call,
    CallOptions,
    ImportPath,
    build_job,
    find_import_path,
    job_name,
    plain_arguments,
)
from fleetctl.client.fleet import Fleet
from fleetctl.common.errors import UsageError

GATHER_S = 0.1  # a guess: a loop of submits takes less, and a job takes longer to begin


class _Submitted(NamedTuple):
    call: Call
    future: Future[Any]


@dataclass(slots=True)
class _Batch:
    """The calls of a job that is not made yet. path: where a task imports the function from. It is
    found at the first call: `__main__` has no file while the interpreter exits. ready: no call
    follows.
    """

    function: Callable[..., Any]
    path: ImportPath
    options: CallOptions
    submitted: list[_Submitted] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)


class Executor(FuturesExecutor):
    """Runs calls as tasks of a fleet, with the semantics of `concurrent.futures`.

    fleet: None for the fleet of `Fleet()`. options: fields of CallOptions, such as
    `on="modal"`, `gpu="A100"`, `image=`, `parallelism=`. A call can be cancelled until its job is
    made. `shutdown` waits for all calls; with `cancel_futures` calls without a job are cancelled.
    """

    def __init__(self, fleet: Fleet | None = None, **options: Any) -> None:
        self._chosen = CallOptions(**options)  # raises TypeError for an unknown option
        self._fleet = fleet if fleet is not None else Fleet()
        self._lock = threading.Lock()
        self._batches: dict[Callable[..., Any], _Batch] = {}
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Future[Any]:
        """Returns the future of a call. It raises UsageError for an argument that has no JSON form.
        Raises UsageError for a function without an import path, and RuntimeError after `shutdown`.
        """
        path = find_import_path(fn, self._chosen.source)
        future = self.make_future()
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
        try:
            plain = plain_arguments((args, kwargs))
        except UsageError as error:
            future.set_exception(error)
            return future
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            batch = self._batches.get(fn)
            if batch is None:
                batch = self._batches[fn] = self._begin_batch(fn, path)
            batch.submitted.append(_Submitted((plain["args"], plain["kwargs"]), future))
            if len(batch.submitted) == CALLS_MAX:
                del self._batches[fn]
                batch.ready.set()
        return future

    @property
    def options(self) -> CallOptions:
        """Returns the options of the next call."""
        return self._chosen

    def make_future(self) -> Future[Any]:
        """Returns the future of a new call."""
        return Future()

    def change_options(self, **options: Any) -> None:
        """Sets the options of later calls. Raises TypeError for an unknown option."""
        chosen = CallOptions(**options)
        with self._lock:
            self._chosen = chosen
            begun = list(self._batches.values())
            self._batches = {}
        for batch in begun:
            batch.ready.set()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no further calls. wait: until all have finished."""
        with self._lock:
            self._closed = True
            batches = list(self._batches.values())
            self._batches = {}
            dropped = [it for batch in batches for it in batch.submitted] if cancel_futures else []
            for batch in batches if cancel_futures else ():
                batch.submitted.clear()
            threads = set(self._threads)
        for it in dropped:
            it.future.cancel()
            it.future.set_running_or_notify_cancel()
        for batch in batches:
            batch.ready.set()
        for thread in threads if wait else ():
            thread.join()

    def _begin_batch(self, function: Callable[..., Any], path: ImportPath) -> _Batch:
        """Starts the thread of a new batch: none can be started while the interpreter exits."""
        batch = _Batch(function, path, self._chosen)
        thread = threading.Thread(
            target=self._run_batch,
            args=(batch,),
            name="fleetctl-calls",
        )
        self._threads.add(thread)
        thread.start()
        return batch

    def _run_batch(self, batch: _Batch) -> None:
        batch.ready.wait(GATHER_S)
        with self._lock:
            if self._batches.get(batch.function) is batch:
                del self._batches[batch.function]
            submitted = list(batch.submitted)
        begun = [it for it in submitted if it.future.set_running_or_notify_cancel()]
        if begun:
            self._follow(batch, begun)
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _follow(self, batch: _Batch, submitted: list[_Submitted]) -> None:
        futures = [it.future for it in submitted]
        try:
            calls = [it.call for it in submitted]
            job = build_job(job_name(batch.function), batch.path, calls, batch.options)
            self._fleet.start_calls(job, futures)
        except BaseException as error:  # noqa: BLE001 - each future raises it
            for future in futures:
                if not future.done():
                    future.set_exception(error)
