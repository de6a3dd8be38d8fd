"""The RPCs that deploy functions and change how many containers they have.

Calling them is in function_calls.py; what runs them is function_fleet.py and the files below it.
Plain functions and web servers only: generators, classes and other web functions are refused, not
half done.
"""

from __future__ import annotations

import time
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .function_calls import FunctionCalls
from .function_cluster import check
from .function_fleet import fleet_of
from .function_state import Function
from .function_web import WebPool

# These have the same name and type in Function and in FunctionData.
_SHARED = (
    "module_name",
    "function_name",
    "implementation_name",
    "function_type",
    "warm_pool_size",
    "concurrency_limit",
    "task_idle_timeout_secs",
    "timeout_secs",
    "startup_timeout_secs",
    "autoscaler_settings",
    "function_schema",
)


class Functions(FunctionCalls):
    """Needs self.world (state.World)."""

    world: Any

    # -- apps that functions live in ----------------------------------------------------------

    async def AppGetByDeploymentName(
        self, request: api_pb2.AppGetByDeploymentNameRequest
    ) -> api_pb2.AppGetByDeploymentNameResponse:
        app = self.world.app_named(request.name, request.environment_name)
        return api_pb2.AppGetByDeploymentNameResponse(
            app_id=app.app_id if app else "", environment_name=request.environment_name
        )

    async def AppCreate(self, request: api_pb2.AppCreateRequest) -> api_pb2.AppCreateResponse:
        """An app without a name: AppPublish gives it one, if it is deployed."""
        ephemeral = request.app_state == api_pb2.APP_STATE_EPHEMERAL
        state = "ephemeral" if ephemeral else "initializing"
        app = self.world.new_app("", request.environment_name, state)
        app.tags.update(request.tags)
        page = f"https://emulated.invalid/apps/{app.app_id}"
        return api_pb2.AppCreateResponse(app_id=app.app_id, app_page_url=page, app_logs_url=page)

    async def AppGetLayout(
        self, request: api_pb2.AppGetLayoutRequest
    ) -> api_pb2.AppGetLayoutResponse:
        app = self._app(request.app_id)
        objects = [
            api_pb2.Object(
                object_id=function_id,
                function_handle_metadata=fleet_of(self.world).function(function_id).metadata,
            )
            for function_id in app.layout.values()
        ]
        return api_pb2.AppGetLayoutResponse(
            app_layout=api_pb2.AppLayout(objects=objects, function_ids=app.layout)
        )

    async def AppHeartbeat(self, request: api_pb2.AppHeartbeatRequest) -> Empty:
        self._app(request.app_id)
        return Empty()

    async def AppPublish(self, request: api_pb2.AppPublishRequest) -> api_pb2.AppPublishResponse:
        app = self._app(request.app_id)
        if request.class_ids:
            raise GRPCError(Status.UNIMPLEMENTED, "the emulator does not run classes")
        if request.app_state == api_pb2.APP_STATE_DEPLOYED:
            taken = self.world.app_named(request.name, app.environment)
            if taken not in (None, app):
                raise GRPCError(Status.ABORTED, f"App '{request.name}' was deployed meanwhile")
            app.name, app.state = request.name, "deployed"
        app.layout = dict(request.function_ids)
        app.tags.update(request.tags)
        await fleet_of(self.world).publish(app.app_id, list(app.layout.values()))
        return api_pb2.AppPublishResponse(
            url=f"https://emulated.invalid/apps/{app.app_id}", deployed_at=time.time()
        )

    async def AppClientDisconnect(self, request: api_pb2.AppClientDisconnectRequest) -> Empty:
        """Ends an app that lives only as long as its client, and one that never got deployed."""
        app = self._app(request.app_id)
        if app.state in ("ephemeral", "initializing"):
            app.state, app.stopped_at_s = "stopped", time.time()
            await fleet_of(self.world).stop_app(app.app_id)
        return Empty()

    def _app(self, app_id: str) -> Any:
        app = self.world.app(app_id)
        if app is None:
            raise GRPCError(Status.NOT_FOUND, f"App '{app_id}' not found")
        return app

    # -- functions ----------------------------------------------------------------------------

    async def FunctionPrecreate(
        self, request: api_pb2.FunctionPrecreateRequest
    ) -> api_pb2.FunctionPrecreateResponse:
        self._app(request.app_id)
        if request.function_type != api_pb2.Function.FUNCTION_TYPE_FUNCTION:
            raise GRPCError(Status.UNIMPLEMENTED, "the emulator does not run generators")
        if request.method_definitions:
            raise GRPCError(Status.UNIMPLEMENTED, "the emulator does not run classes")
        function = fleet_of(self.world).precreate(request)
        pool = fleet_of(self.world).pool(function.function_id)
        if isinstance(pool, WebPool):
            function.metadata.web_url = await pool.listen()
        return api_pb2.FunctionPrecreateResponse(
            function_id=function.function_id, handle_metadata=function.metadata
        )

    async def FunctionCreate(
        self, request: api_pb2.FunctionCreateRequest
    ) -> api_pb2.FunctionCreateResponse:
        data = _as_data(request)
        fleet = fleet_of(self.world)
        function = fleet.define(request.existing_function_id, data)
        return api_pb2.FunctionCreateResponse(
            function_id=function.function_id,
            function=function.definition,
            handle_metadata=function.metadata,
            function_data=function.data,
        )

    async def FunctionGet(self, request: api_pb2.FunctionGetRequest) -> api_pb2.FunctionGetResponse:
        app = self.world.app_named(request.app_name, request.environment_name)
        where = f"in environment '{request.environment_name or 'main'}'"
        if app is None:
            raise GRPCError(Status.NOT_FOUND, f"App '{request.app_name}' not found {where}")
        function_id = app.layout.get(request.object_tag)
        if function_id is None:
            raise GRPCError(
                Status.NOT_FOUND,
                f"App '{request.app_name}' has no Function named '{request.object_tag}' {where}",
            )
        function = fleet_of(self.world).function(function_id)
        return api_pb2.FunctionGetResponse(
            function_id=function_id, handle_metadata=function.metadata, function=function.data
        )

    async def FunctionGetById(
        self, request: api_pb2.FunctionGetByIdRequest
    ) -> api_pb2.FunctionGetByIdResponse:
        function = fleet_of(self.world).function(request.function_id)
        return api_pb2.FunctionGetByIdResponse(
            function=function.data, handle_metadata=function.metadata
        )

    async def FunctionBindParams(
        self, request: api_pb2.FunctionBindParamsRequest
    ) -> api_pb2.FunctionBindParamsResponse:
        fleet = fleet_of(self.world)
        base = fleet.callable(request.function_id)
        function = fleet.variant(base, request.function_options)
        return api_pb2.FunctionBindParamsResponse(
            bound_function_id=function.function_id, handle_metadata=function.metadata
        )

    # -- the autoscaler, and containers -------------------------------------------------------

    async def FunctionUpdateSchedulingParams(
        self, request: api_pb2.FunctionUpdateSchedulingParamsRequest
    ) -> api_pb2.FunctionUpdateSchedulingParamsResponse:
        """Holds until the next deployment, which brings its own settings."""
        pool = fleet_of(self.world).pool(request.function_id)
        function: Function = pool.function
        for field, value in request.settings.ListFields():
            setattr(function.settings, field.name, value)
        # A field that is set to 0 is not listed.
        for name in ("min_containers", "max_containers", "buffer_containers"):
            if request.settings.HasField(name):
                setattr(function.settings, name, getattr(request.settings, name))
        pool.rescale()
        return api_pb2.FunctionUpdateSchedulingParamsResponse(current_settings=function.settings)

    async def FunctionGetSchedulingParams(
        self, request: api_pb2.FunctionGetSchedulingParamsRequest
    ) -> api_pb2.FunctionGetSchedulingParamsResponse:
        function = fleet_of(self.world).function(request.function_id)
        return api_pb2.FunctionGetSchedulingParamsResponse(
            autoscaler_configuration=api_pb2.AutoscalerConfiguration(settings=function.settings)
        )

    async def FunctionGetCurrentStats(
        self, request: api_pb2.FunctionGetCurrentStatsRequest
    ) -> api_pb2.FunctionStats:
        pool = fleet_of(self.world).pool(request.function_id)
        return api_pb2.FunctionStats(
            backlog=len(pool.queue),
            num_total_tasks=len(pool.containers),
            num_running_inputs=len(pool.inputs),
        )

    async def TaskList(self, request: api_pb2.TaskListRequest) -> api_pb2.TaskListResponse:
        tasks = [
            api_pb2.TaskStats(
                task_id=container.task_id,
                app_id=pool.function.app_id,
                started_at=container.started_at,
                enqueued_at=container.enqueued_at,
            )
            for pool, container in fleet_of(self.world).containers()
            if container.state != "ended" and request.app_id in ("", pool.function.app_id)
        ]
        return api_pb2.TaskListResponse(tasks=tasks)

    async def ContainerStop(
        self, request: api_pb2.ContainerStopRequest
    ) -> api_pb2.ContainerStopResponse:
        await fleet_of(self.world).stop_container(request.task_id, graceful=request.graceful)
        return api_pb2.ContainerStopResponse()


def _is_web(definition: api_pb2.Function) -> bool:
    return bool(definition.webhook_config.type)


def _as_data(request: api_pb2.FunctionCreateRequest) -> api_pb2.FunctionData:
    """The SDK sends one definition, or a ranked list for GPUs to fall back to; kept is a list."""
    if request.HasField("function_data"):
        data = request.function_data
    else:
        data = api_pb2.FunctionData()
        for name in _SHARED:
            value = getattr(request.function, name)
            if hasattr(value, "CopyFrom"):
                getattr(data, name).CopyFrom(value)
            else:
                setattr(data, name, value)
        data.ranked_functions.add(rank=0, function=request.function)
    for one in data.ranked_functions:
        check(one.function)
        many = one.function.max_concurrent_inputs > 1 and not _is_web(one.function)
        if one.function.batch_max_size or many:
            raise GRPCError(
                Status.UNIMPLEMENTED, "the emulator gives a container one input at a time"
            )
    return data
