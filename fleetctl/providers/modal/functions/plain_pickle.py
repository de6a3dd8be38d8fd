"""Reads the return values of Modal function calls as plain data.

The SDK would unpickle them, and so execute any code that a task has put into its container's return
value. A pickle that is read here may hold texts, bytes and numbers, and lists and mappings of
these.

This module imports the SDK; it is imported when the first function is called.
"""

from __future__ import annotations

import io
import pickle
import zlib
from dataclasses import dataclass
from typing import Any

# Before all other modules of the SDK: this import waits for one that another thread has begun; see
# modal_connection.py.
import modal  # noqa: F401
from modal._utils.async_utils import synchronize_api
from modal._utils.blob_utils import blob_download
from modal._utils.grpc_utils import Retry
from modal.client import _Client
from modal_proto import api_pb2

FRAMES_BYTES_MAX = 128 * 1024 * 1024  # of a call's unpacked frames; calls return far less
BYTES_MAX = 256 * 1024 * 1024  # of one return value
ANSWER_SLACK_S = 10.0  # for the reply itself, beyond the seconds that the server is asked to wait

Status = api_pb2.GenericResult.GenericStatus
SUCCESS = Status.GENERIC_STATUS_SUCCESS
TERMINATED = Status.GENERIC_STATUS_TERMINATED
TIMEOUT = Status.GENERIC_STATUS_TIMEOUT
FAILURE = Status.GENERIC_STATUS_FAILURE


class NotPlainData(ValueError):
    """A pickle names a class or a function, or cannot be read."""


@dataclass(frozen=True, slots=True)
class CallOutput:
    """The output of an ended call. data: the pickled return value; None for a call that failed, or
    one with more than BYTES_MAX bytes.
    """

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
        raise NotPlainData(f"an answer names `{module}.{name}`")


def unpickle_plain(data: bytes) -> object:
    """Returns the value in a pickle. Raises NotPlainData for a pickle with more than plain data."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except NotPlainData:
        raise
    except Exception as error:  # bytes of an answer can raise anything in a pickle
        raise NotPlainData(f"an answer cannot be read: {type(error).__name__}") from error


def unpickle_frames(data: bytes) -> bytes | None:
    """Returns the frames in the pickled return value of a call; None without readable frames."""
    try:
        value = unpickle_plain(data)
        if not isinstance(value, bytes):
            return None
        return zlib.decompressobj().decompress(value, FRAMES_BYTES_MAX)
    except (NotPlainData, zlib.error):
        return None


async def _poll_output(
    client: _Client,
    call_id: str,
    wait_s: float,
) -> CallPoll:
    """Waits up to `wait_s` seconds, at the server, for the output of a call. Raises the errors of
    the SDK.
    """
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
    """Returns the serialized value of a serialized key of a Dict; None for an absent key."""
    request = api_pb2.DictGetRequest(dict_id=dict_id, key=key)
    answer = await client._stub.DictGet(request)
    if answer.found:
        return answer.value
    return None


poll_output = synchronize_api(_poll_output)
read_entry = synchronize_api(_read_entry)
