"""What we use of the SDK that it does not promise, each name with its use: the day one of them
goes, this fails at once and says where. And which versions of it we work with.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import tomllib
from pathlib import Path
from types import SimpleNamespace

import modal
import pytest
from modal import exception as sdk

from fleetctl.common.install import install_hint
from fleetctl.providers.modal import modal_check
from fleetctl.providers.modal.connection import modal_connection
from fleetctl.providers.modal.connection.modal_errors import is_of_the_sdk

ROOT = Path(__file__).parents[4]

# (module, dotted name, where we use it, what is public instead)
PRIVATE = [
    ("modal._utils.async_utils", "synchronize_api", "plain_pickle.py", "nothing"),
    ("modal._utils.async_utils", "synchronizer._translate_in", "modal_volumes.py", "nothing"),
    (
        "modal._utils.blob_utils",
        "blob_download",
        "plain_pickle.py",
        "FunctionCall.get, which unpickles",
    ),
    ("modal._utils.grpc_utils", "Retry", "plain_pickle.py", "FunctionCall.get, which unpickles"),
    ("modal.client", "_Client", "plain_pickle.py", "FunctionCall.get, which unpickles"),
    ("modal._serialization", "serialize", "latches.py", "Dict.get, which unpickles"),
    (
        "modal._output.manager",
        "OutputManager.get",
        "build_output.py",
        "enable_output, to a terminal",
    ),
    (
        "modal._output.manager",
        "OutputManager._set",
        "build_output.py",
        "enable_output, to a terminal",
    ),
    (
        "modal._output.manager",
        "DisabledOutputManager.put_streaming_log",
        "build_output.py",
        "enable_output, to a terminal",
    ),
    ("modal.config", "config", "modal_credentials.py", "a new process"),
    ("modal.config", "logger", "modal_credentials.py", "a new process"),
    ("modal.config", "user_config_path", "modal_credentials.py", "a new process"),
    ("modal_proto.api_pb2", "FunctionGetOutputsRequest", "plain_pickle.py", "FunctionCall.get"),
    ("modal_proto.api_pb2", "DictGetRequest", "plain_pickle.py", "Dict.get"),
    ("modal_proto.api_pb2", "GenericResult.GenericStatus", "plain_pickle.py", "FunctionCall.get"),
    ("grpclib", "GRPCError", "modal_errors.py", "modal.exception, which not all errors become"),
    ("grpclib.exceptions", "StreamTerminatedError", "modal_errors.py", "modal.exception"),
    ("aiohttp", "ClientError", "modal_errors.py", "modal.exception"),
]


@pytest.mark.parametrize(("module", "name", "used", "public"), PRIVATE)
def test_what_is_private_in_the_sdk_is_there(
    module: str, name: str, used: str, public: str
) -> None:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"{module}.{name} is gone: {used}; public: {public}"
        found = getattr(found, part)


def test_a_volume_tells_its_version_behind_its_face() -> None:
    from modal.volume import _Volume

    assert "_is_v1" in inspect.getsource(_Volume), "modal_volumes.py asks a volume for `_is_v1`"


def test_what_is_asked_raw_of_the_server_has_the_fields_that_we_use() -> None:
    from modal_proto import api_pb2

    fields = {
        "FunctionGetOutputsRequest": "function_call_id timeout last_entry_id start_idx end_idx",
        "FunctionGetOutputsResponse": "outputs num_unfinished_inputs",
        "FunctionGetOutputsItem": "result input_started_at",
        "GenericResult": "status exception exitcode data data_blob_id",
        "DictGetRequest": "dict_id key",
        "DictGetResponse": "found value",
    }
    for message, names in fields.items():
        known = set(getattr(api_pb2, message).DESCRIPTOR.fields_by_name)
        assert set(names.split()) <= known, message


def test_a_throttled_reply_carries_its_details_where_they_are_read() -> None:
    error = sdk.ResourceExhaustedError("slow down")
    error._grpc_details = [SimpleNamespace(retry_after_secs=1.0)]
    assert "_grpc_details" in inspect.getsource(sdk), "modal_errors.py reads `_grpc_details`"
    assert is_of_the_sdk(error)


def test_an_id_of_the_older_backend_has_the_shape_that_the_sdk_goes_by() -> None:
    from modal.sandbox import _common

    from fleetctl.providers.modal.runs import modal_sandboxes

    older, newer = "sb-" + "a" * 22, "sb-01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert _common._is_v1_sandbox_id(older) and modal_sandboxes._OLDER.fullmatch(older)
    assert not _common._is_v1_sandbox_id(newer) and not modal_sandboxes._OLDER.fullmatch(newer)


@pytest.mark.parametrize(
    "name",
    [
        "App.stop",  # 1.6.3
        "Client.close",  # 1.6.4
        "Function.autoscaler",  # 1.6.2
        "Sandbox.detach",
        "Workspace.from_context",
        "Environment.from_context",
        "Volume.objects",
        "Dict.objects",
    ],
)
def test_the_oldest_version_has_all_that_is_used_in_public(name: str) -> None:
    found: object = modal
    for part in name.split("."):
        found = getattr(found, part)


def test_the_versions_that_the_extra_allows_are_those_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["modal"]
    assert f"modal{modal_connection.VERSIONS}" in extra
    assert (
        f"modal{modal_connection.VERSIONS}"
        in (ROOT / "requirements/test.in").read_text().splitlines()
    )
    installed = importlib.metadata.version("modal")
    assert not modal_connection.is_too_old(installed) and not modal_connection.is_too_new(installed)


@pytest.mark.parametrize(
    ("version", "old", "new"),
    [
        ("1.5.4", True, False),
        ("1.6", True, False),
        ("1.6.3", True, False),
        ("1.6.4", False, False),
        ("1.6.11", False, False),
        ("1.7.0.dev1", False, True),
        ("2.0.0", False, True),
    ],
)
def test_a_version_is_told_apart_from_those_that_work(version: str, old: bool, new: bool) -> None:
    assert (modal_connection.is_too_old(version), modal_connection.is_too_new(version)) == (
        old,
        new,
    )


def test_doctor_says_that_a_version_is_too_old_and_how_to_get_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import asyncio

    from fleetctl.providers.contract.account import built_in

    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.6.0")
    [found] = asyncio.run(modal_check.check_modal(tmp_path, built_in("modal")))
    assert (found.what, found.ok) == ("package", False)
    assert "needs the package `modal` >=1.6.4,<1.7, and 1.6.0 is installed" in found.says
    assert found.fix == install_hint("modal")
