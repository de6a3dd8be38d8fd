"""Reads containers' answers as plain data. The SDK would unpickle them, and with them execute
whatever code a task smuggled into its container's answers; here a pickle may hold texts, bytes and
numbers.

Imports the SDK; imported when the first function is called.
"""

from __future__ import annotations

import io
import pickle
import zlib
from dataclasses import dataclass
from typing import Any

# First of all: it waits for an import of the SDK that another thread has begun; see
# modal_connection.py.
import modal  # noqa: F401
from modal._utils.async_utils import synchronize_api
from modal._utils.blob_utils import blob_download
from modal._utils.grpc_utils import Retry
from modal.client import _Client
from modal_proto import api_pb2

STORY_BYTES_MAX = 128 * 1024 * 1024  # of frames; a body returns far less
BYTES_MAX = 256 * 1024 * 1024  # for one answer
ANSWER_SLACK_S = 10.0  # for the answer itself, beyond what the server was asked to wait

Status = api_pb2.GenericResult.GenericStatus
SUCCESS = Status.GENERIC_STATUS_SUCCESS
TERMINATED = Status.GENERIC_STATUS_TERMINATED
TIMEOUT = Status.GENERIC_STATUS_TIMEOUT
FAILURE = Status.GENERIC_STATUS_FAILURE


class NotPlain(ValueError):
    """More than data."""


@dataclass(frozen=True, slots=True)
class CallOutput:
    """The end of a call. data: its function's return value, or None."""

    status: int
    exception: str
    exit_code: int
    started_at_s: float
    data: bytes | None


@dataclass(frozen=True, slots=True)
class CallPoll:
    """The state of a call. output: None while the call has no output; expired: no output will ever
    come.
    """

    output: CallOutput | None
    expired: bool = False


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NotPlain(f"an answer names `{module}.{name}`")


def unpickle_plain(data: bytes) -> object:
    """Raises NotPlain."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception as error:
        raise NotPlain(f"an answer cannot be read: {type(error).__name__}") from error


def unpickle_frames(data: bytes) -> bytes | None:
    """Returns the frames in a pickle of the body's; None when it has no readable frames."""
    try:
        value = unpickle_plain(data)
        if not isinstance(value, bytes):
            return None
        return zlib.decompressobj().decompress(value, STORY_BYTES_MAX)
    except (NotPlain, zlib.error):
        return None


async def _poll_output(
    client: _Client,
    call_id: str,
    wait_s: float,
) -> CallPoll:
    """Waits at the server for the one output of a call. Raises what the SDK raises."""
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
        return CallPoll(None, expired=answer.num_unfinished_inputs == 0)
    item = answer.outputs[0]
    result = item.result
    data = result.data
    if result.WhichOneof("data_oneof") == "data_blob_id":
        data = await blob_download(result.data_blob_id, client._stub)
    return CallPoll(
        CallOutput(
            status=result.status,
            exception=result.exception,
            exit_code=result.exitcode,
            started_at_s=item.input_started_at,
            data=data if result.status == SUCCESS and len(data) <= BYTES_MAX else None,
        )
    )


async def _read_entry(
    client: _Client,
    dict_id: str,
    key: bytes,
) -> bytes | None:
    """The value of a serialized key of a Dict, as it was serialized."""
    request = api_pb2.DictGetRequest(dict_id=dict_id, key=key)
    answer = await client._stub.DictGet(request)
    if answer.found:
        return answer.value
    return None


poll = synchronize_api(_poll_output)  # type: ignore[no-untyped-call]
entry = synchronize_api(_read_entry)  # type: ignore[no-untyped-call]
