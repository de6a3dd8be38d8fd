"""The RPCs that call functions: start a call, put inputs, wait for outputs, cancel."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .function_fleet import fleet_of
from .function_state import Call, Input

MAX_WAIT_S = 60.0
_RUNNING_BEFORE_INPUTS = 1_000  # what a map may have under way


class FunctionCalls:
    """Needs self.world (state.World)."""

    world: Any

    async def FunctionMap(self, request: api_pb2.FunctionMapRequest) -> api_pb2.FunctionMapResponse:
        fleet = fleet_of(self.world)
        function = fleet.callable(request.function_id)
        call = fleet.new_call(function, request.function_call_invocation_type)
        items = self._put(call, list(request.pipelined_inputs))
        return api_pb2.FunctionMapResponse(
            function_call_id=call.call_id,
            pipelined_inputs=items,
            retry_policy=function.definition.retry_policy,
            function_call_jwt=call.call_id,
            # The emulator retries by itself, for every kind of call.
            sync_client_retries_enabled=False,
            max_inputs_outstanding=_RUNNING_BEFORE_INPUTS,
        )

    async def FunctionPutInputs(
        self, request: api_pb2.FunctionPutInputsRequest
    ) -> api_pb2.FunctionPutInputsResponse:
        call = fleet_of(self.world).call(request.function_call_id)
        return api_pb2.FunctionPutInputsResponse(inputs=self._put(call, list(request.inputs)))

    async def FunctionFinishInputs(self, request: api_pb2.FunctionFinishInputsRequest) -> Empty:
        fleet_of(self.world).call(request.function_call_id)
        return Empty()

    def _put(
        self, call: Call, items: list[api_pb2.FunctionPutInputsItem]
    ) -> list[api_pb2.FunctionPutInputsResponseItem]:
        fleet, blobs = fleet_of(self.world), self.world.blobs
        inputs = []
        for item in items:
            body = item.input.args
            if item.input.WhichOneof("args_oneof") == "args_blob_id":
                body = blobs.get(item.input.args_blob_id)
            inputs.append(
                Input(fleet.new_input_id(), call, item.idx, body, item.input.data_format or 1)
            )
        fleet.submit(call, inputs)
        return [
            api_pb2.FunctionPutInputsResponseItem(
                idx=one.index, input_id=one.input_id, input_jwt=one.input_id
            )
            for one in inputs
        ]

    async def FunctionGetOutputs(
        self, request: api_pb2.FunctionGetOutputsRequest
    ) -> api_pb2.FunctionGetOutputsResponse:
        """Waits up to request.timeout for outputs behind last_entry_id."""
        call = fleet_of(self.world).call(request.function_call_id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.timeout, MAX_WAIT_S)
        while not (found := _outputs(call, request)):
            news, left_s = call.news, deadline - loop.time()
            if left_s <= 0 or _nothing_can_come(call, request):
                break
            try:
                await asyncio.wait_for(news.wait(), left_s)
            except TimeoutError:
                break
        if request.clear_on_success and found:
            call.cleared = True
        last = found[-1][0] if found else _entry_number(request.last_entry_id)
        return api_pb2.FunctionGetOutputsResponse(
            idxs=[item.idx for _, item in found],
            outputs=[item for _, item in found],
            last_entry_id=f"{last}-0",
            num_unfinished_inputs=call.unfinished,
        )

    async def FunctionCallCancel(self, request: api_pb2.FunctionCallCancelRequest) -> Empty:
        fleet = fleet_of(self.world)
        call = fleet.call(request.function_call_id)
        fleet.pool(call.function_id).cancel(call, terminate_containers=request.terminate_containers)
        return Empty()

    async def FunctionCallFromId(
        self, request: api_pb2.FunctionCallFromIdRequest
    ) -> api_pb2.FunctionCallFromIdResponse:
        fleet = fleet_of(self.world)
        call = fleet.call(request.function_call_id)
        return api_pb2.FunctionCallFromIdResponse(
            function_call_id=call.call_id,
            num_inputs=len(call.inputs),
            metadata=api_pb2.FunctionCallHandleMetadata(
                app_id=fleet.function(call.function_id).app_id, function_id=call.function_id
            ),
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

    async def FunctionRetryInputs(
        self, request: api_pb2.FunctionRetryInputsRequest
    ) -> api_pb2.FunctionRetryInputsResponse:
        raise GRPCError(
            Status.FAILED_PRECONDITION, "retries by the client are not enabled for this call"
        )


def _nothing_can_come(call: Call, request: api_pb2.FunctionGetOutputsRequest) -> bool:
    """A caller who asks for one place of a call that is over must not wait; one who follows a map
    waits for inputs that are yet to be put."""
    return call.cleared or (request.HasField("start_idx") and not call.unfinished)


def _entry_number(entry_id: str) -> int:
    return int((entry_id or "0-0").split("-")[0])


def _outputs(
    call: Call, request: api_pb2.FunctionGetOutputsRequest
) -> list[tuple[int, api_pb2.FunctionGetOutputsItem]]:
    """The outputs that the request asks for, each with the number of its entry."""
    if call.cleared:
        return []
    after = _entry_number(request.last_entry_id)
    first = request.start_idx if request.HasField("start_idx") else None
    last = request.end_idx if request.HasField("end_idx") else None
    found = [
        (number, item)
        for number, item in enumerate(call.outputs, 1)
        if number > after
        and (first is None or item.idx >= first)
        and (last is None or item.idx <= last)
    ]
    return found[: request.max_values or len(found)]
