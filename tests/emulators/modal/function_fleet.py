"""All functions of the emulated service: their pools, their calls, and the ground truth of both.

The RPCs in functions.py and function_calls.py go through here; so does a test that wants to know
which call ran where and how often its body began.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .function_container import Container
from .function_pool import Pool
from .function_state import Call, Function, Input
from .function_web import WebPool, check_web
from .function_world import Surroundings
from .ids import base62_id

if TYPE_CHECKING:
    from .state import World


def fleet_of(world: World) -> Fleet:
    """The world's one fleet; made when first asked for."""
    if world.functions is None:
        world.functions = Fleet(Surroundings(world))
        world.gpus.on_freed.append(world.functions.pump_all)
    fleet: Fleet = world.functions
    return fleet


class Fleet:
    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self.pools: dict[str, Pool] = {}
        self.calls: dict[str, Call] = {}

    # -- functions ----------------------------------------------------------------------------

    def function(self, function_id: str) -> Function:
        return self.pool(function_id).function

    def pool(self, function_id: str) -> Pool:
        pool = self.pools.get(function_id)
        if pool is None:
            raise GRPCError(Status.NOT_FOUND, f"Function '{function_id}' not found")
        return pool

    def callable(self, function_id: str) -> Function:
        """The function, if it can be called now."""
        pool = self.pool(function_id)
        if pool.closed or not pool.function.created:
            raise GRPCError(Status.NOT_FOUND, f"Function '{function_id}' is not running")
        return pool.function

    def precreate(self, request: api_pb2.FunctionPrecreateRequest) -> Function:
        """A function that has an id and no definition yet; or the one of an earlier version."""
        if request.existing_function_id:
            return self.function(request.existing_function_id)
        function_id = base62_id("fu")
        handle = api_pb2.FunctionHandleMetadata(
            function_name=request.function_name,
            function_type=request.function_type,
            function_schema=request.function_schema,
            supported_input_formats=request.supported_input_formats,
            supported_output_formats=request.supported_output_formats,
            app_id=request.app_id,
        )
        function = Function(
            function_id,
            request.app_id,
            request.function_name,
            api_pb2.FunctionData(),
            [api_pb2.Function()],
            handle,
            api_pb2.AutoscalerSettings(),
        )
        of_web = request.HasField("webhook_config")
        if of_web:
            check_web(request)
        kind = WebPool if of_web else Pool
        self.pools[function_id] = kind(function, self.surroundings)
        return function

    def define(self, function_id: str, data: api_pb2.FunctionData) -> Function:
        """Gives it its definition. When that differs from the one before, the containers of the
        older one take no more inputs."""
        pool = self.pool(function_id)
        before = pool.function
        if before.created and before.data == data:
            return before
        ranked = [one.function for one in sorted(data.ranked_functions, key=lambda one: one.rank)]
        handle = api_pb2.FunctionHandleMetadata()
        handle.CopyFrom(before.metadata)
        handle.definition_id = base62_id("de")
        settings = api_pb2.AutoscalerSettings()
        settings.CopyFrom(ranked[0].autoscaler_settings)
        function = Function(
            function_id,
            before.app_id,
            before.name,
            data,
            ranked,
            handle,
            settings,
            base_id=before.base_id,
            live=before.live,
            version=before.version + 1,
            created=True,
        )
        pool.redeploy(function)
        return function

    def variant(self, base: Function, options: api_pb2.FunctionOptions) -> Function:
        """The base with other options: a function of its own, the same one for the same options,
        with containers of its own."""
        text = base.metadata.definition_id.encode() + options.SerializeToString(deterministic=True)
        digest = hashlib.sha256(base.function_id.encode() + text).hexdigest()
        function_id = "fu-" + digest[:22]
        if function_id in self.pools:
            return self.function(function_id)
        data = api_pb2.FunctionData()
        data.CopyFrom(base.data)
        for one in data.ranked_functions:
            _apply(one.function, options)
        if options.resources.gpu_config.count:
            del data.ranked_functions[1:]
        handle = api_pb2.FunctionHandleMetadata()
        handle.CopyFrom(base.metadata)
        handle.base_function_id = base.function_id
        settings = api_pb2.AutoscalerSettings()
        settings.CopyFrom(data.ranked_functions[0].function.autoscaler_settings)
        function = Function(
            function_id,
            base.app_id,
            base.name,
            data,
            [one.function for one in data.ranked_functions],
            handle,
            settings,
            base_id=base.function_id,
            created=True,
        )
        self.pools[function_id] = Pool(function, self.surroundings)
        return function

    def of_app(self, app_id: str) -> list[Pool]:
        return [pool for pool in self.pools.values() if pool.function.app_id == app_id]

    async def publish(self, app_id: str, function_ids: list[str]) -> None:
        """Functions of the app that the layout does not name any more end."""
        for pool in self.of_app(app_id):
            function = pool.function
            if function.function_id in function_ids:
                function.live = True
                pool.pump()
            elif function.base_id not in function_ids:
                await pool.close("its function was removed")

    async def stop_app(self, app_id: str) -> None:
        """What AppStop means for functions: containers end, inputs are terminated."""
        for pool in self.of_app(app_id):
            await pool.close("its app was stopped")

    def pump_all(self) -> None:
        """Capacity has become free."""
        for pool in self.pools.values():
            pool.pump()

    # -- calls --------------------------------------------------------------------------------

    def new_call(self, function: Function, invocation: int) -> Call:
        call = Call(base62_id("fc"), function.function_id, invocation)
        self.calls[call.call_id] = call
        return call

    def call(self, call_id: str) -> Call:
        call = self.calls.get(call_id)
        if call is None:
            raise GRPCError(Status.NOT_FOUND, f"Function call '{call_id}' not found")
        return call

    def expire(self, call_id: str) -> None:
        """Its outputs are gone, as a week later."""
        self.call(call_id).cleared = True

    def new_input_id(self) -> str:
        return base62_id("in")

    def submit(self, call: Call, inputs: list[Input]) -> None:
        call.inputs.extend(inputs)
        self.pool(call.function_id).submit(inputs)

    # -- containers ---------------------------------------------------------------------------

    def containers(self) -> list[tuple[Pool, Container]]:
        """Every container ever."""
        return [
            (pool, container)
            for pool in self.pools.values()
            for container in [*pool.past, *pool.containers.values()]
        ]

    async def preempt(self, task_id: str, *, notice_s: float, alone: bool) -> bool:
        """Takes the machine of a container away. False when there is no such live container."""
        for pool in self.pools.values():
            if task_id in pool.containers:
                await pool.preempt(task_id, notice_s=notice_s, alone=alone)
                return True
        return False

    async def stop_container(self, task_id: str, *, graceful: bool) -> None:
        for pool in self.pools.values():
            container = pool.containers.get(task_id)
            if container is not None and graceful:
                container.stop("it was asked to stop")
            elif container is not None:
                await container.kill("it was asked to stop")

    async def close(self) -> None:
        for pool in self.pools.values():
            with contextlib.suppress(OSError):
                await pool.close("the emulator ends")

    def truth(self) -> dict[str, Any]:
        """Functions, containers and calls, as plain data."""
        return {
            "functions": [
                {
                    "function_id": pool.function.function_id,
                    "app_id": pool.function.app_id,
                    "name": pool.function.name,
                    "base_id": pool.function.base_id,
                    "version": pool.function.version,
                    "live": pool.function.live and not pool.closed,
                    "queued": len(pool.queue),
                    "requests": getattr(pool, "requests", []),
                }
                for pool in self.pools.values()
            ],
            "containers": [_container_truth(container) for _, container in self.containers()],
            "calls": [_call_truth(call) for call in self.calls.values()],
        }


def _apply(definition: api_pb2.Function, options: api_pb2.FunctionOptions) -> None:
    """What with_options changes of a definition."""
    if options.replace_secret_ids:
        del definition.secret_ids[:]
        definition.secret_ids.extend(options.secret_ids)
    if options.replace_volume_mounts:
        del definition.volume_mounts[:]
        definition.volume_mounts.extend(options.volume_mounts)
    if options.HasField("resources"):
        definition.resources.MergeFrom(options.resources)
    if options.HasField("retry_policy"):
        definition.retry_policy.CopyFrom(options.retry_policy)
    if options.timeout_secs:
        definition.timeout_secs = options.timeout_secs
    if options.concurrency_limit:
        definition.autoscaler_settings.max_containers = options.concurrency_limit
    if options.task_idle_timeout_secs:
        definition.autoscaler_settings.scaledown_window = options.task_idle_timeout_secs
    # Only what is deployed is kept warm; a variant starts with its first input.
    definition.autoscaler_settings.min_containers = options.warm_pool_size


def _container_truth(container: Container) -> dict[str, Any]:
    return {
        "task_id": container.task_id,
        "function_id": container.function_id,
        "state": container.state,
        "reason": container.reason,
        "gpu": container.gpu,
        "cluster": container.cluster.cluster_id,
        "rank": container.rank,
        "pid": container.process.pid if container.process else 0,
        "live": container.state != "ended",
        "inputs_taken": container.inputs_taken,
        "started_at": container.started_at,
        "ended_at": container.ended_at,
    }


def _call_truth(call: Call) -> dict[str, Any]:
    return {
        "call_id": call.call_id,
        "function_id": call.function_id,
        "inputs": [
            {
                "input_id": one.input_id,
                "index": one.index,
                "state": one.state,
                "outcome": one.outcome,
                "began": [{"task_id": start.task_id, "at_s": start.at_s} for start in one.starts],
                "failures": one.failures,
                "rescheduled": one.rescheduled,
            }
            for one in call.inputs
        ],
    }
