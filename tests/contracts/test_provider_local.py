"""Provider `local` against the suite of all providers, in both of its tiers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import BEGUN_AS_ANOTHER, EndpointAccess
from fleetctl.specs.blocks.template import Template
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_fields import answering
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, python, story


class TestNamespaces(ProviderSuite):
    sort = "local"
    tier = "namespaces"

    test_a_task_reaches_the_hosts_of_its_network_alone = None  # refused
    test_a_machine_has_room_for_its_services = None  # no task can read it

    @pytest.fixture(autouse=True)
    def _tier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", self.tier)

    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        """The supervisors of a test end with it."""
        yield
        home = tmp_path / "home"
        if home.exists():
            stop_supervisors(home)

    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    def refused(self) -> Template:
        return command("true", image={"registry": "example.org/image"})


class TestProcess(TestNamespaces):
    whole = False
    tier = "process"


class TestSecrets:
    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    @story
    async def test_a_secret_that_another_provider_keeps_is_refused(self, world: World) -> None:
        with pytest.raises(Refused, match="keeps no secrets"):
            await world.provider.start(world.order(secret_refs=("wandb-secret",)))


ASKS = """
import os, urllib.request

def ask(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    return urllib.request.urlopen(request, timeout=30).read().decode()

KEY = os.environ["OPENAI_API_KEY"]
ask(os.environ["OPENAI_BASE_URL"] + "/models", Authorization="Bearer " + KEY)
ask(os.environ["OLLAMA_HOST"] + "/api/tags")
"""


class TestEndpoints:
    """The gateway's own port is reached from both tiers, by both kinds of client."""

    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        yield
        stop_supervisors(tmp_path / "home")

    @pytest.fixture(autouse=True, params=["namespaces", "process"])
    def _tier(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", request.param)

    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    @story
    async def test_programs_call_the_gateway_and_no_file_keeps_their_token(
        self, world: World
    ) -> None:
        token = "fl-a-canary-of-one-attempt"
        with answering() as (url, asked):
            access = EndpointAccess(("small",), {"chat": "Qwen"}, url, token)
            for run, template in [("of-python", python(ASKS)), ("of-command", shell(ASKS))]:
                ended = await world.run(template, run=run, endpoints=access)
                assert ended.exit_code == 0, ended
        assert asked == 2 * [
            ("/v1/models", f"Bearer {token}"),
            (f"/t/{token}/api/tags", None),
        ]
        kept = [file for file in (world.directory / "home").rglob("*") if file.is_file()]
        assert kept
        assert not [file for file in kept if token.encode() in file.read_bytes()]

    @story
    async def test_no_proxy_of_a_task_gets_its_calls(self, world: World) -> None:
        proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
        env = {**proxies, "NO_PROXY": "example.org"}
        code = ASKS + "\nassert os.environ['NO_PROXY'].startswith('example.org,127.0.0.1')"
        with answering() as (url, asked):
            access = EndpointAccess(("small",), {"chat": "Qwen"}, url, "fl-abc")
            for run, template in [("of-python", python(code)), ("of-command", shell(code))]:
                template = template.model_copy(update={"env": env})
                ended = await world.run(template, run=run, endpoints=access)
                assert ended.exit_code == 0, ended
        assert len(asked) == 4

    @story
    async def test_launchers_of_one_node_meet_at_a_port_of_their_own(self, world: World) -> None:
        code = "import os, socket\nport = int(os.environ['MASTER_PORT'])\n"
        code += "assert os.environ['PET_MASTER_PORT'] == str(port)\n"
        code += "assert not os.environ.keys() & {'WORLD_SIZE', 'RANK', 'MASTER_ADDR'}\n"
        code += "socket.socket().bind(('127.0.0.1', port))\nSUBMIT(port=port)"
        ports = set()
        for run in ("one", "two"):
            ended = await world.run(python(code), run=run)
            assert ended.exit_code == 0, ended
            ports.add(ended.result)
        assert len(ports) == 2
        given = python("import os\nassert os.environ['MASTER_PORT'] == '29511'")
        ended = await world.run(given.model_copy(update={"env": {"MASTER_PORT": "29511"}}), run="x")
        assert ended.exit_code == 0, ended

    @story
    async def test_programs_ask_by_the_helper_and_a_dead_model_ends_them(
        self, world: World
    ) -> None:
        with answering() as (url, _):
            access = EndpointAccess(("small",), {"chat": "Qwen"}, url, "fl-abc")
            asked = await world.run(python("SUBMIT(said=llm_query('hi'))"), endpoints=access)
            assert asked.result == '{"said":"yes"}'
            for run, template in [("of-python", python(DEAD)), ("of-command", shell(DEAD))]:
                ended = await world.run(template, run=run, endpoints=access, template_hash=run)
                assert ended.reason == "TooManyFallbacks", ended
                assert "20 of 20 calls failed and were replaced" in ended.message


DEAD = """
from fleetctl_llm import llm_query
for _ in range(25):
    llm_query("hi", model="dead", on_error="original")
"""


def shell(program: str) -> Template:
    """The same program as a command."""
    return command("python3", "-c", program)


class TestRestored:
    """The store was put back from a backup, and its names have been used since."""

    @pytest.fixture(autouse=True)
    def _nothing_left(self, tmp_path: Path) -> Iterator[None]:
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> World:
        return LocalWorld(tmp_path)

    @story
    async def test_what_ended_is_adopted_as_itself_and_not_as_other_work(
        self, world: World
    ) -> None:
        order = world.order(python("SUBMIT(x=x)"), params={"x": 1})
        ref = await world.begin(order)
        await world.ended(ref)
        with pytest.raises(Unavailable) as caught:
            await world.again().start(replace(order, params={"x": 2}))
        assert caught.value.reason == BEGUN_AS_ANOTHER
        assert await world.begin(order, world.again()) == ref
