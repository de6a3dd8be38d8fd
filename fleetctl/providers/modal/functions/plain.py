"""What containers say, read as plain data. The SDK would unpickle it, and with it execute whatever
code a task smuggled into its container's answers; here a pickle may hold texts, bytes and numbers.

Imports the SDK; imported when the first function is called.
"""

from __future__ import annotations

import io
import pickle
import zlib
from dataclasses import dataclass
from typing import Any

# First of all: it waits for an import of the SDK that another thread has begun; see client.py.
import modal  # noqa: F401
from modal._utils.async_utils import synchronize_api
from modal._utils.blob_utils import blob_download
from modal._utils.grpc_utils import Retry
from modal.client import _Client
from modal_proto import api_pb2

STORY_BYTES_MAX = 128 * 1024 * 1024  # of frames; a body returns far less
BYTES_MAX = 256 * 1024 * 1024  # of one answer
ANSWER_SLACK_S = 10.0  # for the answer itself, beyond what the server was asked to wait

Status = api_pb2.GenericResult.GenericStatus
SUCCESS = Status.GENERIC_STATUS_SUCCESS
TERMINATED = Status.GENERIC_STATUS_TERMINATED
TIMEOUT = Status.GENERIC_STATUS_TIMEOUT
FAILURE = Status.GENERIC_STATUS_FAILURE


class NotPlain(ValueError):
    """More than data."""


@dataclass(frozen=True, slots=True)
class Output:
    """How a call ended. data: what its function returned, or None."""

    status: int
    exception: str
    exit_code: int
    started_at_s: float
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Polled:
    """output is None while there is none; expired: none will ever come."""

    output: Output | None
    expired: bool = False


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain(f"an answer names `{module}.{name}`")


def unpickled(data: bytes) -> object:
    """Raises NotPlain."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception as error:
        raise NotPlain(f"an answer cannot be read: {type(error).__name__}") from error


def story(data: bytes) -> bytes | None:
    """The frames in a pickle of the body's; None when it holds none that we can read."""
    try:
        value = unpickled(data)
        if not isinstance(value, bytes):
            return None
        return zlib.decompressobj().decompress(value, STORY_BYTES_MAX)
    except (NotPlain, zlib.error):
        return None


async def _poll(client: _Client, call_id: str, wait_s: float) -> Polled:
    """Wait at the server for the one output of a call. Raises what the SDK raises."""
    request = api_pb2.FunctionGetOutputsRequest(
        function_call_id=call_id,
        timeout=wait_s,
        last_entry_id="0-0",
        start_idx=0,
        end_idx=0,
    )
    answer = await client._stub.FunctionGetOutputs(
        request, retry=Retry(attempt_timeout=wait_s + ANSWER_SLACK_S)
    )
    if not answer.outputs:
        return Polled(None, expired=answer.num_unfinished_inputs == 0)
    item = answer.outputs[0]
    result = item.result
    data = result.data
    if result.WhichOneof("data_oneof") == "data_blob_id":
        data = await blob_download(result.data_blob_id, client._stub)
    return Polled(
        Output(
            status=result.status,
            exception=result.exception,
            exit_code=result.exitcode,
            started_at_s=item.input_started_at,
            data=data if result.status == SUCCESS and len(data) <= BYTES_MAX else None,
        )
    )


async def _entry(client: _Client, dict_id: str, key: bytes) -> bytes | None:
    """The value of a serialized key of a Dict, as it was serialized."""
    request = api_pb2.DictGetRequest(dict_id=dict_id, key=key)
    answer = await client._stub.DictGet(request)
    return answer.value if answer.found else None


poll = synchronize_api(_poll)  # type: ignore[no-untyped-call]
entry = synchronize_api(_entry)  # type: ignore[no-untyped-call]
