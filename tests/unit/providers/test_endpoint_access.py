"""What an attempt is told of the endpoints that it may call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import built_in
from fleetctl.providers.contract.base import EndpointAccess, FunctionRequest, RunRequest
from fleetctl.providers.local.runs.supervisor_messages import start_message
from fleetctl.providers.modal import modal_check
from fleetctl.providers.modal.modal_provider import ModalProvider
from fleetctl.providers.remote.runs.guest_order import (
    RELAY_BASE,
    SandboxContext,
    guest_order,
    secrets_of,
)
from fleetctl.specs.blocks.template import Template

GATEWAY = "http://127.0.0.1:4000"
ACCESS = EndpointAccess(("small", "large"), {"chat": "Qwen", "embed": "nomic"}, GATEWAY, "fl-abc")


def request(**changes: Any) -> RunRequest:
    template = changes.pop("template", Template(command=("env",)))
    return RunRequest(  # type: ignore[arg-type]
        "r",
        "r",
        "s",
        "u",
        "batchjob/x",
        0,
        1,
        template,
        "h",
        {},
        False,
        **changes,
    )


def order(**changes: Any) -> dict[str, Any]:
    """As a supervisor on this machine is told to start it."""
    return start_message(request(**changes), {}, 1, [])


def test_each_client_finds_the_listener_where_the_attempt_sees_it() -> None:
    assert ACCESS.variables("http://127.0.0.1:5000/") == {
        "OPENAI_BASE_URL": "http://127.0.0.1:5000/v1",
        "OPENAI_API_KEY": "fl-abc",
        "OLLAMA_HOST": "http://127.0.0.1:5000/t/fl-abc",
        "FLEETCTL_LLM_URL": "http://127.0.0.1:5000",
        "FLEETCTL_LLM_MAX_FALLBACK_SHARE": "0.05",
        "FLEETCTL_LLM_MODEL": "chat",
    }


def test_without_models_none_is_named() -> None:
    access = EndpointAccess(("small",), {}, GATEWAY, "fl-abc")
    assert "FLEETCTL_LLM_MODEL" not in access.variables(GATEWAY)


def test_a_token_is_not_shown() -> None:
    assert "fl-abc" not in repr(ACCESS)


def test_a_local_attempt_is_told_of_the_gateway_among_its_secrets() -> None:
    told = order(endpoints=ACCESS, secrets={"OTHER": "kept", "OPENAI_API_KEY": "a real one"})
    assert told["secrets"] == {"OTHER": "kept", **ACCESS.variables(GATEWAY)}
    assert "fl-abc" not in str({**told, "secrets": {}})


def test_a_local_attempt_without_endpoints_is_told_of_its_secrets_alone() -> None:
    assert order(secrets={"OTHER": "kept"})["secrets"] == {"OTHER": "kept"}


def test_the_helpers_come_with_endpoints_however_they_are_reached() -> None:
    direct = Template(command=("env",), endpoints=("small",))
    for told in (order(endpoints=ACCESS), order(template=direct)):
        assert sorted(told["library"]) == [
            "fleetctl_llm.py",
            "fleetctl_llm_budget.py",
            "fleetctl_llm_costs.py",
            "fleetctl_llm_line.py",
            "fleetctl_llm_queries.py",
            "fleetctl_llm_rlm.py",
        ]
    assert "library" not in order()


def test_functions_have_no_line_and_refuse_before_anything_is_made(tmp_path: Path) -> None:
    async def start() -> None:
        there = ModalProvider(tmp_path, store_id="s", notify=lambda run: None)
        function = FunctionRequest("", 0, None, 60.0)
        with pytest.raises(Refused, match="cannot ask endpoint `small`"):
            await there.start(request(endpoints=ACCESS, function=function))

    asyncio.run(start())
    assert not list(tmp_path.rglob("jobs/*"))


def test_what_a_function_cannot_ask_is_known_before_it_is_stored() -> None:
    template = Template(command=("env",), endpoints=("small",), runtime="function")
    found = modal_check.find_obstacles(template, built_in("modal"))
    assert ("endpoints",) in [it.where for it in found]
    template = template.model_copy(update={"runtime": "sandbox"})
    found = modal_check.find_obstacles(template, built_in("modal"))
    assert ("endpoints",) not in [it.where for it in found]


def test_the_order_for_a_sandbox_holds_no_token_and_its_secrets_leave_the_address_open() -> None:
    asked = request(endpoints=ACCESS, secrets={"OTHER": "kept"})
    order = guest_order(asked, SandboxContext("sb-1"))
    assert "fl-abc" not in str(order)
    assert order["secret_names"] == sorted(secrets_of(asked))
    assert secrets_of(asked) == {"OTHER": "kept", **ACCESS.variables(RELAY_BASE)}


def test_an_image_must_have_python_only_where_calls_are_carried() -> None:
    direct = Template(command=("env",), endpoints=("small",))
    assert (direct.needs_python, direct.carried().needs_python) == (False, True)
