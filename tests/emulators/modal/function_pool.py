"""The containers of one function, and which input runs in which: the scheduler of the emulator.

Driven by four things only: inputs that come, what containers tell, timers, and capacity that
becomes free. Each of them ends in `pump`, which gives waiting inputs to idle containers and
starts containers up to the limits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import Any, Protocol

from modal_proto import api_pb2

from .function_cluster import Cluster
from .function_container import Container
from .function_state import Call, Function, Input, Start, gpu_label

Status = api_pb2.GenericResult.GenericStatus
INLINE_MAX_BYTES = 2 * 1024 * 1024  # larger results become blobs
MAX_START_FAILURES = 3
RESTART_DELAY_S = 0.2  # times the failures so far
CANCEL_GRACE_S = 10.0  # a guess
PREEMPTED = "preempted"


class World(Protocol):
    """What the pool needs of it; function_world.Surroundings has it."""

    def new_task_id(self) -> str: ...
    def take_gpu(self, gpu: str, times: int) -> bool: ...
    def release_gpu(self, gpu: str) -> None: ...
    async def launch(self, container: Container, definition: api_pb2.Function) -> None: ...
    def after_container(self, container: Container, *, commits: bool) -> None: ...
    def new_blob(self, data: bytes) -> str: ...
    def log(self, container: Container, one: Input | None, descriptor: int, text: str) -> None: ...


class Pool:
    def __init__(self, function: Function, world: World) -> None:
        self.function, self.world = function, world
        self.queue: deque[Input] = deque()
        self.containers: dict[str, Container] = {}
        self.past: list[Container] = []
        self.inputs: dict[str, Input] = {}  # those in a container now
        self._taken: dict[str, Input] = {}  # by task ID, what a container took last
        self.closed = False
        self._start_failures = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what comes from clients --------------------------------------------------------------

    def submit(self, inputs: list[Input]) -> None:
        self.queue.extend(inputs)
        self.pump()

    def cancel(self, call: Call, *, terminate_containers: bool) -> None:
        for one in call.inputs:
            if one.state == "done":
                continue
            container = self.containers.get(one.task_id) if one.state == "running" else None
            if one in self.queue:
                self.queue.remove(one)
            self._finish(one, api_pb2.GenericResult(status=Status.GENERIC_STATUS_TERMINATED))
            if container is not None and terminate_containers:
                self._background(container.cluster.kill("its input was cancelled"))
            elif container is not None:
                for each in container.cluster.members:
                    each.cancel(one.input_id)
                    asyncio.get_running_loop().call_later(
                        CANCEL_GRACE_S, self._on_deaf, one.input_id, each
                    )
        self.pump()

    def _on_deaf(self, input_id: str, container: Container) -> None:
        """Code that swallows the cancellation loses its container."""
        if container.input_id == input_id:
            self._background(container.kill("it went on with a cancelled input"))

    def redeploy(self, function: Function) -> None:
        """Containers of the old version finish what they run; new inputs go to new ones."""
        self.function = function
        self._start_failures = 0
        for container in list(self.containers.values()):
            container.stop("a newer version was deployed")
        self.pump()

    def rescale(self) -> None:
        """The settings of the autoscaler changed."""
        self._scale_down()
        self.pump()

    async def close(self, reason: str) -> None:
        """Ends all containers; inputs that are not done are terminated."""
        self.closed = True
        waiting = [*self.queue, *self.inputs.values()]
        self.queue.clear()
        for one in waiting:
            self._finish(one, api_pb2.GenericResult(status=Status.GENERIC_STATUS_TERMINATED))
        containers = list(self.containers.values())
        await asyncio.gather(*(container.kill(reason) for container in containers))
        await asyncio.gather(*self._tasks)

    async def preempt(self, task_id: str, *, notice_s: float, alone: bool) -> None:
        """The machine is taken away: nothing is committed, its input is scheduled again. That it
        takes the whole cluster with it is a guess; alone: as if it did not.
        """
        container = self.containers[task_id]
        container.cluster.survives = alone
        members = [container] if alone else container.cluster.members
        interrupts = (one.interrupt(PREEMPTED, notice_s=notice_s) for one in members)
        await asyncio.gather(*interrupts)

    # -- scheduling ---------------------------------------------------------------------------

    def pump(self) -> None:
        if self.closed:
            return
        for cluster in self._clusters():
            if self.queue and cluster.idle:
                self._dispatch(self.queue.popleft(), cluster)
        size = self.function.size
        serving = [one for one in self.containers.values() if not one.draining]
        starting = len({one.cluster for one in serving if one.state == "starting"})
        missing = math.ceil((self.function.min_containers - len(serving)) / size)
        wanted = max(len(self.queue) - starting, missing)
        for _ in range(min(wanted, (self.function.max_containers - len(serving)) // size)):
            if not self._start_cluster():
                return  # no capacity: whoever releases some pumps again

    def _clusters(self) -> list[Cluster]:
        return list(dict.fromkeys(one.cluster for one in self.containers.values()))

    def _dispatch(self, one: Input, cluster: Cluster) -> None:
        first = cluster.members[0]
        one.state, one.task_id = "running", first.task_id
        self.inputs[one.input_id] = one
        for each in cluster.members:
            self._taken[each.task_id] = one
            each.call(one.input_id, one.call.call_id, data_format=one.data_format, body=one.body)
        first.deadline = asyncio.get_running_loop().call_later(
            self.function.timeout_s, self._on_timeout, one, cluster
        )

    def _start_cluster(self) -> bool:
        definition = self._reserve_gpus()
        if definition is None:
            return False
        cluster, gpu = Cluster(), gpu_label(definition)
        for _ in range(self.function.size):
            task_id = self.world.new_task_id()
            container = Container(task_id, self.function.function_id, gpu, cluster, self)
            self.containers[task_id] = container
            self._background(self._launch(container, definition))
        return True

    def _reserve_gpus(self) -> api_pb2.Function | None:
        """In the list of GPUs to fall back to, the first that is free for a whole cluster."""
        for definition in self.function.ranked:
            gpu = gpu_label(definition)
            if not gpu or self.world.take_gpu(gpu, self.function.size):
                return definition
        return None

    async def _launch(self, container: Container, definition: api_pb2.Function) -> None:
        try:
            await self.world.launch(container, definition)
        except OSError as error:
            container.state, container.ended_at = "ended", time.time()
            if not container.reason:  # else it was told to end
                container.reason = f"the container did not start: {error}"
                container.failure = ({"exception": container.reason, "traceback": ""}, b"")
            self.ended(container)

    def _on_timeout(self, one: Input, cluster: Cluster) -> None:
        limit = f"{self.function.timeout_s:g}"
        text = f"Task's current input in {one.input_id} hit its timeout of {limit}s"
        result = api_pb2.GenericResult(status=Status.GENERIC_STATUS_TIMEOUT, exception=text)
        self._fail(one, result)
        self._background(cluster.kill("an input hit its timeout"))

    def _scale_down(self) -> None:
        """Stops containers that were idle for the whole window, but keeps min_containers."""
        serving = [one for one in self.containers.values() if not one.draining]
        spare = len(serving) - self.function.min_containers
        for cluster in self._clusters():
            due = cluster.idle and cluster.idle_s() >= self.function.scaledown_s
            if due and spare >= len(cluster.members):
                spare -= len(cluster.members)
                for container in cluster.members:
                    container.stop("it was idle")

    # -- what containers tell (function_container.Listener) -----------------------------------

    def began(self, container: Container, input_id: str) -> None:
        """Also when the first of its cluster has answered already: it began there all the same."""
        one = self._taken.get(container.task_id)
        if one is not None and one.input_id == input_id:
            one.starts.append(Start(container.task_id, time.time()))

    def answered(self, container: Container, head: dict[str, Any], body: bytes) -> None:
        """Also when a container has become ready to take its first input."""
        if head["op"] == "ready":
            self._start_failures = 0
        one = self.inputs.get(head.get("input_id", ""))
        mute = container.rank > 0 and head.get("status") == "success"
        if one is not None and one.state == "running" and not mute:
            result = _result(head, body)
            if result.status == Status.GENERIC_STATUS_FAILURE:
                self._fail(one, result, head["format"])
            else:
                self._finish(one, result, head.get("format", 0))
        if self.function.definition.single_use_containers and container.inputs_taken:
            container.stop("it was for one input")
        self.pump()
        if container.state == "idle":
            # A little later than the window, so that the clock is surely past it.
            later = self.function.scaledown_s + 0.05
            asyncio.get_running_loop().call_later(later, self._scale_down)

    def logged(self, container: Container, descriptor: int, text: str) -> None:
        self.world.log(container, self.inputs.get(container.input_id), descriptor, text)

    def ended(self, container: Container) -> None:
        if not container.started_at and not container.reason:
            code = container.process.returncode if container.process else None
            container.reason = f"it exited with {code} before it was ready"
            container.failure = ({"exception": container.reason, "traceback": ""}, b"")
        self.containers.pop(container.task_id, None)
        self._taken.pop(container.task_id, None)
        self.past.append(container)
        self.world.after_container(container, commits=container.reason != PREEMPTED)
        cluster, one = container.cluster, self.inputs.get(container.input_id)
        together = one is not None and one.task_id == cluster.members[0].task_id
        together = together and not (cluster.survives and container.rank)
        if one is not None and one.state == "running" and together:
            self._on_lost_input(one, container)
            self._background(cluster.kill(container.reason))
        elif container.failure is not None:
            self._on_failed_start(container.failure)
            self._background(cluster.kill(container.reason))
        if container.gpu:
            self.world.release_gpu(container.gpu)
        if container.failure is not None:
            delay_s = RESTART_DELAY_S * max(self._start_failures, 1)
            asyncio.get_running_loop().call_later(delay_s, self.pump)
        else:
            self.pump()

    def _on_lost_input(self, one: Input, container: Container) -> None:
        del self.inputs[one.input_id]
        if container.reason == PREEMPTED:
            one.state, one.task_id = "queued", ""
            one.rescheduled += 1
            self.queue.appendleft(one)
            return
        code = container.process.returncode if container.process else None
        container.reason = container.reason or f"it exited with {code}"
        text = f"Runner failed with exit code: {code}"
        status = Status.GENERIC_STATUS_FAILURE
        self._fail(one, api_pb2.GenericResult(status=status, exception=text, exitcode=code or 0))

    def _on_failed_start(self, failure: tuple[dict[str, Any], bytes]) -> None:
        """A function that does not load fails what waits for it, after a few attempts."""
        self._start_failures += 1
        if self._start_failures < MAX_START_FAILURES:
            return
        self._start_failures = 0
        result = _result({"status": "failure", **failure[0]}, failure[1])
        while self.queue:
            self._finish(self.queue.popleft(), result, 1)

    # -- outcomes -----------------------------------------------------------------------------

    def _fail(self, one: Input, result: api_pb2.GenericResult, data_format: int = 0) -> None:
        """An application failure or a timeout: the function's own retries apply."""
        policy = self.function.definition.retry_policy
        one.failures += 1
        if one.failures > policy.retries:
            self._finish(one, result, data_format)
            return
        self.inputs.pop(one.input_id, None)
        one.state, one.task_id = "retrying", ""
        delay_ms = policy.initial_delay_ms * policy.backoff_coefficient ** (one.failures - 1)
        delay_s = min(delay_ms, policy.max_delay_ms or delay_ms) / 1000
        asyncio.get_running_loop().call_later(delay_s, self._try_again, one)

    def _try_again(self, one: Input) -> None:
        if one.state == "retrying":  # else it was cancelled meanwhile
            one.state = "queued"
            self.submit([one])

    def _finish(self, one: Input, result: api_pb2.GenericResult, data_format: int = 0) -> None:
        self.inputs.pop(one.input_id, None)
        one.state, one.body = "done", b""
        if len(result.data) > INLINE_MAX_BYTES:
            result.data_blob_id = self.world.new_blob(result.data)  # unsets data
        one.outcome = Status.Name(result.status).removeprefix("GENERIC_STATUS_").lower()
        one.call.deliver(
            api_pb2.FunctionGetOutputsItem(
                result=result,
                idx=one.index,
                input_id=one.input_id,
                data_format=data_format,
                task_id=one.task_id,
                input_started_at=one.starts[-1].at_s if one.starts else 0,
                output_created_at=time.time(),
                retry_count=one.failures,
            )
        )

    def _background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _result(head: dict[str, Any], body: bytes) -> api_pb2.GenericResult:
    if head["status"] == "success":
        return api_pb2.GenericResult(status=Status.GENERIC_STATUS_SUCCESS, data=body)
    if head["status"] == "cancelled":
        return api_pb2.GenericResult(status=Status.GENERIC_STATUS_TERMINATED)
    return api_pb2.GenericResult(
        status=Status.GENERIC_STATUS_FAILURE,
        exception=head["exception"],
        traceback=head["traceback"],
        data=body or None,
    )
