"""A Function with a port behind an Endpoint, on the emulated Modal: started by the first prompt,
gone when nobody asks, and never asked by anybody else.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from fleetctl.gateway.rules.servers import READY_PATH
from tests.contracts.provider_worlds import eventually
from tests.docs.fleet import EXAMPLES
from tests.emulators.driving.gates import gate
from tests.emulators.modal.running import ModalEmulator
from tests.servers.fleets import Play
from tests.servers.served_fleet import ENDPOINT, SERVER, Fleet, free_port, function, serving_on

CHAT = "/v1/chat/completions"


@pytest.fixture
def on_served(tmp_path: Path, modal_emulator: ModalEmulator) -> Play:
    return serving_on(tmp_path / "home", modal_emulator)


def test_a_job_of_prompts_starts_a_container_that_goes_when_nobody_asks(on_served: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.serve()
        texts = [f"word {n}" for n in range(12)]
        with gate() as door:
            loads = door.python() + SERVER
            fleet.apply_kind("Function", "tiny", function(free_port(), loads))
            fleet.apply_kind("Endpoint", "small", ENDPOINT)
            await fleet.says("Endpoint", "small", phase="Ready", message="function/tiny is asleep")
            assert fleet.containers() == []
            fleet.ask(*texts)
            await fleet.says("Endpoint", "small", message="starting a container of function/tiny")
            assert fleet.of_kind("Endpoint", "small")["tries"] == 0
            door.open()
            await fleet.phase("Succeeded")
        assert [it["answer"] for it in fleet.results().values()] == [it.upper() for it in texts]
        (server,) = fleet.servers()
        paths = [it["path"] for it in server["requests"]]
        # Each was asked once, and before it only whether the server is ready.
        asked_by = fleet.of_kind("Endpoint", "small"), server["requests"]
        assert set(paths) == {READY_PATH, CHAT} and paths.count(CHAT) == 12, asked_by
        await fleet.says("Endpoint", "small", tries="12")
        await fleet.scaled_to_zero()
        await fleet.says("Endpoint", "small", message="asleep")
        # Neither the wait for it nor a look at it has asked anything.
        assert len(fleet.servers()[0]["requests"]) == len(paths)

    on_served(tale)


def test_what_a_container_cost_is_charged_to_its_function_and_a_budget_stops_the_next(
    on_served: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.serve()
        begun_s = time.time()
        with gate() as door:
            fleet.apply_kind("Function", "tiny", function(free_port(), waits=door.python()))
            fleet.apply_kind("Endpoint", "small", ENDPOINT)
            fleet.ask("one")
            status = await fleet.says("Function", "tiny", warm="'containers': 1")
            door.open()
            await fleet.phase("Succeeded")
        usd_per_s = status["warm"]["usdPerSecond"]
        assert usd_per_s > 0
        await fleet.scaled_to_zero()

        async def charged() -> bool:
            return "warm" not in fleet.of_kind("Function", "tiny")

        await eventually(charged, "the container was charged")
        only = fleet.containers()[0]
        cost = fleet.of_kind("Function", "tiny")["cost"]
        # Counted from the outside: never more than since it was asked for.
        assert 0 < cost["seconds"] <= time.time() - begun_s
        assert only["live"] is False
        assert cost["actual"] == pytest.approx(cost["seconds"] * usd_per_s, rel=1e-3)
        before = len(fleet.containers())
        # Less than a container may cost until its first charge: none is started for it.
        fleet.apply_kind("Budget", "poor", {"maxCost": 0.01, "selector": {}})
        await fleet.says("Endpoint", "small", reason="Budget")
        fleet.ask("two", name="later")
        waits = await fleet.waits_for("later", "EndpointNotReady")
        assert "one container of function/tiny may cost" in waits
        assert len(fleet.containers()) == before

    on_served(tale)


def test_a_restarted_controller_finds_the_server_again_and_its_calls_go_on(
    on_served: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.serve()
        fleet.apply_kind("Function", "tiny", function(free_port()))
        fleet.apply_kind("Endpoint", "small", ENDPOINT)
        await fleet.says("Endpoint", "small", phase="Ready")
        url = fleet.of_kind("Function", "tiny")["url"]
        await fleet.restart()
        fleet.ask("after")
        await fleet.phase("Succeeded")
        assert fleet.results()[0]["answer"] == "AFTER"
        assert fleet.of_kind("Function", "tiny")["url"] == url
        assert len(fleet.servers()) == 1  # the same one, not made anew

    on_served(tale)


def test_a_server_that_never_becomes_ready_says_why_with_the_end_of_its_output(
    on_served: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.serve()
        broken = "print('loading weights', flush=True)\nraise SystemExit('no such model: tiny')"
        fleet.apply_kind("Function", "tiny", function(free_port(), broken))
        fleet.apply_kind("Endpoint", "small", ENDPOINT)
        fleet.ask("one")
        status = await fleet.says("Endpoint", "small", message="no such model: tiny")
        assert "did not become ready: it exited with code 1" in status["message"]
        assert "loading weights" in status["message"]
        await fleet.says("Function", "tiny", warning="no such model: tiny")
        # Mended, it is deployed anew, and what waited is asked.
        port = free_port()
        fleet.apply_kind("Function", "tiny", function(port, suffix="!"))
        await fleet.phase("Succeeded")
        assert fleet.results()[0]["answer"] == "ONE!"
        await fleet.says("Function", "tiny", phase="Ready")
        assert "warning" not in fleet.of_kind("Function", "tiny")

    on_served(tale)


def test_a_function_goes_after_the_endpoint_that_names_it(on_served: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.serve()
        fleet.apply_kind("Endpoint", "small", ENDPOINT)
        await fleet.says("Endpoint", "small", reason="FunctionMissing", message="not declared")
        fleet.apply_kind("Function", "tiny", {"provider": "modal"})
        await fleet.says("Endpoint", "small", reason="FunctionWithoutPort", message="no `port`")
        fleet.apply_kind("Function", "tiny", function(free_port()))
        await fleet.says("Endpoint", "small", phase="Ready")
        fleet.delete_kind("Function", "tiny")

        async def says_who() -> bool:
            rows = fleet.store.resources.list()
            return any("still used by endpoint/small" in row.status for row in rows)

        await eventually(says_who, "the function said who uses it")
        (app,) = [
            it
            for it in fleet.emulator.state()["apps"]
            if it["app_id"] in fleet._apps() and it["state"] == "deployed"
        ]
        fleet.delete_kind("Endpoint", "small")
        await fleet.gone("small")
        await fleet.gone("tiny")
        apps = {it["app_id"]: it["state"] for it in fleet.emulator.state()["apps"]}
        assert apps[app["app_id"]] == "stopped"

    on_served(tale)


def test_who_does_not_know_the_key_is_not_answered(on_served: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.serve()
        fleet.apply_kind("Function", "tiny", function(free_port()))
        fleet.apply_kind("Endpoint", "small", ENDPOINT)
        await fleet.says("Endpoint", "small", phase="Ready")
        url = fleet.of_kind("Function", "tiny")["url"]
        async with fleet.gateway.client.post(f"{url}{CHAT}", json={"messages": []}) as reply:
            assert reply.status == 401
        key = fleet.engine.state.tracks.assets
        keys = [it.asset.address.key for it in key.values() if it.asset.address is not None]
        assert keys
        for path in (tmp for tmp in fleet._home.rglob("*") if tmp.is_file()):
            assert keys[0].encode() not in path.read_bytes(), path

    on_served(tale)


def test_the_example_runs_as_it_stands_but_for_its_port(on_served: Play) -> None:
    text = (EXAMPLES / "served-model.yaml").read_text("utf-8")

    async def tale(fleet: Fleet) -> None:
        await fleet.serve()
        manifests = yaml.safe_load_all(text.replace("8000", str(free_port())))
        for one in manifests:
            fleet.apply_kind(one["kind"], one["metadata"]["name"], one["spec"])
        await fleet.phase("Succeeded", "greetings")
        answers = [it["answer"] for it in fleet.results("greetings").values()]
        assert answers == [f"GOOD MORNING, {it}" for it in ("ADA", "GRACE", "EDSGER")]

    on_served(tale)
