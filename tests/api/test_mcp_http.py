"""The server for agents over HTTP, with the official client: the token's user and role bind the
tools, and nobody without a token for this very resource gets as far as a tool."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
import yaml
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.context import ClientRequestContext
from mcp.client.extension import ClientExtension
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from tests.api.oidc_issuer import AUDIENCE, OidcIssuer
from tests.api.served import SOON, WAIT_S, ServedFleet, job
from tests.api.test_mcp import PRICED, bounded, refusal, stored, volume

RULES = [
    {"claim": "groups", "value": "ml", "role": "editor", "namespace": "team"},
    {"claim": "groups", "value": "lookers", "role": "viewer", "namespace": "team"},
]
CHANGING = {"apply", "suspend", "resume", "retry", "delete"}
HEAD = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
METADATA = "/.well-known/oauth-protected-resource"
YES = types.ElicitResult(action="accept", content={"yes": True})
NO = types.ElicitResult(action="decline")
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

Work = Callable[[Client], Awaitable[Any]]


class AgentsFleet(ServedFleet):
    """A fleet whose server is that of `fleetctl mcp --http`. Its address ends with /mcp."""

    verb, listen_flag, module = "mcp", "--http", "fleetctl.agents.mcp_http"

    def send(self, token: str = "", **headers: str) -> httpx2.Response:
        """The answer to a request as a program without the client sends it."""
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        return httpx2.post(self.url, json=LIST, headers=HEAD | bearer | headers, timeout=WAIT_S)

    def use(
        self,
        work: Work,
        token: str = "",
        *,
        auth: httpx2.Auth | None = None,
        answer: types.ElicitResult | None = None,
        mode: str = "auto",
        extensions: Sequence[ClientExtension] = (),
    ) -> Any:
        """Returns the reply that a client gets. answer: that of its user."""
        headers = {"authorization": f"Bearer {token}"} if token else {}

        async def elicit(
            _: ClientRequestContext, params: types.ElicitRequestParams
        ) -> types.ElicitResult:
            assert answer is not None
            return answer

        async def run() -> Any:
            with anyio.fail_after(WAIT_S):
                async with (
                    httpx2.AsyncClient(headers=headers, auth=auth, timeout=WAIT_S) as web,
                    Client(
                        streamable_http_client(self.url, http_client=web),
                        mode=mode,
                        client_info=types.Implementation(name="Robot", version="1"),
                        elicitation_callback=None if answer is None else elicit,
                        extensions=extensions,
                    ) as client,
                ):
                    return await work(client)

        return anyio.run(run)

    def call(self, tool: str, arguments: dict[str, Any], token: str, **given: Any) -> Any:
        return self.use(lambda client: client.call_tool(tool, arguments), token, **given)

    def close(self) -> None:
        for namespace in ("team", "other"):
            if keys := self.ok("get", "all", "-n", namespace, "-o", "name").split():
                self.ok("delete", "-n", namespace, "--yes", *keys)
        super().close()


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    made = OidcIssuer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory, issuer: OidcIssuer) -> Iterator[AgentsFleet]:
    place = tmp_path_factory.mktemp("mcp-http")
    about = {"issuer": issuer.url, "audience": AUDIENCE, "user": "email", "rules": RULES}
    (place / "oidc.yaml").write_text(yaml.safe_dump(about))
    fleet = AgentsFleet(place / "home", "--oidc", str(place / "oidc.yaml"))
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def ana(agents: AgentsFleet) -> str:
    return agents.token("ana", "editor", "--namespace", "team")


@pytest.fixture(scope="module")
def vic(agents: AgentsFleet) -> str:
    return agents.token("vic", "viewer", "--namespace", "team")


async def wait_for(client: Client, name: str) -> dict[str, Any]:
    """The object once it has ended, as an agent waits for it."""
    while True:
        found = await client.call_tool("describe", {"plural": "batchjobs", "name": name})
        assert found.structured_content is not None
        if found.structured_content["status"].get("phase") in SOON:
            return found.structured_content
        await anyio.sleep(0.1)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_lists_tools_plans_applies_and_waits(
    agents: AgentsFleet, ana: str, mode: str
) -> None:
    name = f"round-{mode}"
    text = job(name, "SUBMIT(y=a + 1)", tasks=2)

    async def work(client: Client) -> tuple[Any, ...]:
        tools = {it.name for it in (await client.list_tools()).tools}
        plan = await client.call_tool("plan", {"manifest": text})
        applied = await client.call_tool("apply", {"manifest": text})
        ended = await wait_for(client, name)
        results = await client.call_tool("results", {"plural": "batchjobs", "name": name})
        return tools, plan, applied, ended, results

    tools, plan, applied, ended, results = agents.use(work, ana, mode=mode)
    assert CHANGING | {"plan", "get", "logs"} <= tools
    assert plan.structured_content["plan"]["objects"][0]["action"] == "create"
    assert not applied.is_error, applied
    assert ended["metadata"]["namespace"] == "team"
    assert ended["status"]["phase"] == "Succeeded"
    assert [it["result"]["y"] for it in results.structured_content["items"]] == [1, 2]
    acts = [it for it in agents.json("audit", "-A") if it["action"] == "apply"]
    mine = [it for it in acts if it["user"] == "ana via robot"]
    assert mine, acts
    assert {it["token"] for it in mine} == {ana.split("_")[1]}
    assert "created by ana via robot" in agents.ok("events", f"job/{name}", "-n", "team")


def test_a_request_without_a_token_learns_where_the_metadata_is(agents: AgentsFleet) -> None:
    for token, words in (("", "a token is needed"), ("flt_none_none", "not known")):
        answer = agents.send(token)
        assert answer.status_code == 401, answer.text
        assert words in answer.text
        header = answer.headers["www-authenticate"]
        assert header.startswith("Bearer ")
        assert ('error="invalid_token"' in header) == bool(token)
        address = header.partition('resource_metadata="')[2].rstrip('"')
        about = httpx2.get(address).json()
        assert about["resource"] == agents.url
    assert httpx2.get(agents.url, headers={"cookie": f"fleetctl_token={token}"}).status_code == 401


def test_the_metadata_name_the_resource_and_its_issuer(
    agents: AgentsFleet, issuer: OidcIssuer
) -> None:
    root = agents.url.removesuffix("/mcp")
    for path in (f"{METADATA}/mcp", METADATA):
        assert httpx2.get(root + path).json() == {
            "resource": agents.url,
            "resource_name": "fleetctl",
            "authorization_servers": [issuer.url],
            "bearer_methods_supported": ["header"],
        }
    by_name = httpx2.get(root.replace("127.0.0.1", "localhost") + path).json()
    assert by_name["resource"] == agents.url.replace("127.0.0.1", "localhost")


def test_a_client_finds_the_issuer_and_gets_a_token_for_this_resource(
    agents: AgentsFleet, issuer: OidcIssuer
) -> None:
    class Tokens:
        tokens: OAuthToken | None = None

        async def get_tokens(self) -> OAuthToken | None:
            return self.tokens

        async def set_tokens(self, tokens: OAuthToken) -> None:
            self.tokens = tokens

        async def get_client_info(self) -> OAuthClientInformationFull | None:
            return None

        async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
            raise AssertionError(client_info)

    auth = ClientCredentialsOAuthProvider(
        server_url=agents.url, storage=Tokens(), client_id="robot", client_secret="s",
        issuer=issuer.url,
    )  # fmt: skip
    text = job("by-oauth")
    applied = agents.use(lambda it: it.call_tool("apply", {"manifest": text}), auth=auth)
    assert not applied.is_error, applied
    assert issuer.grants[-1]["resource"] == agents.url
    acts = [it for it in agents.json("audit", "-A") if it["token"] == "oidc"]
    assert {it["user"] for it in acts} == {"ana@example.org via robot"}


@pytest.mark.parametrize("audience", [AUDIENCE, "https://other.example/mcp", None])
def test_a_token_for_another_resource_opens_nothing(
    agents: AgentsFleet, issuer: OidcIssuer, audience: str | None
) -> None:
    answer = agents.send(issuer.token(aud=audience))
    assert answer.status_code == 401, answer.text
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert agents.send(issuer.token(aud=[AUDIENCE, agents.url])).status_code != 401


def test_a_user_without_a_role_is_refused(agents: AgentsFleet, issuer: OidcIssuer) -> None:
    answer = agents.send(issuer.token(aud=agents.url, groups=["others"]))
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


def test_a_viewer_changes_nothing(agents: AgentsFleet, vic: str, issuer: OidcIssuer) -> None:
    async def work(client: Client) -> tuple[Any, ...]:
        tools = {it.name for it in (await client.list_tools()).tools}
        plan = await client.call_tool("plan", {"manifest": job("viewed")})
        return tools, plan, await client.call_tool("apply", {"manifest": job("viewed")})

    for token in (vic, issuer.token(aud=agents.url, groups=["lookers"])):
        tools, plan, applied = agents.use(work, token)
        assert not CHANGING & tools
        assert not plan.is_error, plan
        assert "needs the role `editor`" in refusal(applied)
    assert agents.run("get", "job/viewed", "-n", "team").code == 4


def test_a_token_stays_in_its_namespace(agents: AgentsFleet, ana: str) -> None:
    agents.ok("apply", "-f", "-", stdin=job("theirs", namespace="other"))
    refusal(agents.call("delete", {"keys": ["batchjob/theirs -n other"]}, ana, answer=YES))
    refusal(agents.call("apply", {"manifest": job("mine", namespace="other")}, ana))
    assert agents.run("get", "job/theirs", "-n", "other").code == 0
    assert agents.run("get", "job/mine", "-n", "other").code == 4
    # An admin's agent is no admin: it changes nothing that belongs to no namespace.
    root = agents.token("root", "admin", "-A")
    refusal(agents.call("apply", {"manifest": json.dumps(PRICED)}, root))
    assert agents.run("get", "provider/local").code == 4


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_loss_waits_for_the_person_at_the_client(agents: AgentsFleet, mode: str) -> None:
    ben = agents.token("ben", "editor", "--namespace", "default")
    name = f"kept-{mode}"
    volume(agents, name)
    arguments = {"keys": [f"volume/{name}"]}
    found = agents.call("delete", arguments, ben, mode=mode, answer=NO)
    assert found.structured_content["needsConsent"] is True
    assert stored(agents, f"volume/{name}")
    assert not agents.call("delete", arguments, ben, mode=mode, answer=YES).is_error


def test_a_question_is_answered_with_the_token_that_it_was_put_to(
    agents: AgentsFleet, ana: str
) -> None:
    """Neither another user nor another token of the same one may answer it."""
    cid = agents.token("cid", "editor", "--namespace", "default")
    other = agents.token("cid", "editor", "--namespace", "default")
    volume(agents, "guarded")
    arguments = {"keys": ["volume/guarded"]}
    asked = []

    async def ask(client: Client) -> None:
        asked.append(await client.session.call_tool("delete", arguments, allow_input_required=True))

    async def reply(client: Client) -> None:
        with pytest.raises(Exception, match="requestState"):
            await client.session.call_tool(
                "delete",
                arguments,
                input_responses={"consent": YES},
                request_state=asked[0].request_state,
                allow_input_required=True,
            )

    agents.use(ask, cid, answer=NO)
    assert isinstance(asked[0], types.InputRequiredResult)
    for token in (ana, other):
        agents.use(reply, token, answer=NO)
    assert stored(agents, "volume/guarded")
    agents.ok("delete", "volume/guarded", "--yes")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8124"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
    ],
)
def test_pages_of_other_sites_reach_no_tool(
    agents: AgentsFleet, ana: str, headers: dict[str, str], status: int
) -> None:
    answer = agents.send(ana, **headers)
    assert answer.status_code == status, answer.text
    assert not [it for it in answer.headers if it.startswith("access-control-")]


def test_a_session_belongs_to_the_token_that_began_it(
    agents: AgentsFleet, ana: str, vic: str
) -> None:
    begin = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                   "clientInfo": {"name": "old", "version": "1"}},
    }  # fmt: skip
    mine = HEAD | {"authorization": f"Bearer {ana}"}
    begun = httpx2.post(agents.url, json=begin, headers=mine, timeout=WAIT_S)
    assert begun.status_code == 200, begun.text
    session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    assert agents.send(vic, **session).status_code == 404
    assert agents.send("", **session).status_code == 401
    ended = httpx2.delete(agents.url, headers=mine | session, timeout=WAIT_S)
    assert ended.status_code == 200, ended.text


def test_the_flags_bind_all_agents_and_the_sum_is_each_users(tmp_path: Path) -> None:
    fleet = AgentsFleet(tmp_path / "home", "-n", "team", "--max-cost", "3", "--read-only")
    try:
        fleet.ok("apply", "-f", "-", stdin=json.dumps(PRICED))
        eve = fleet.token("eve", "admin", "-A")
        out = fleet.token("out", "editor", "--namespace", "other")
        assert "--read-only" in refusal(fleet.call("apply", {"manifest": bounded("no")}, eve))
        assert fleet.send(out).status_code == 403
        fleet.again("-n", "team", "--max-cost", "3")
        again = fleet.token("eve", "editor", "--namespace", "team")
        fay = fleet.token("fay", "editor", "--namespace", "team")
        first = fleet.call("apply", {"manifest": bounded("first", tasks=2)}, eve)
        assert not first.is_error, first
        second = fleet.call("apply", {"manifest": bounded("second", tasks=2)}, again)
        assert "may cost $2.00, and $1.00" in refusal(second)
        third = fleet.call("apply", {"manifest": bounded("third", tasks=2)}, fay)
        assert not third.is_error, third
        listed = fleet.ok("get", "jobs", "-n", "team", "-o", "name").split()
        assert listed == ["batchjob/first", "batchjob/third"]
        fleet.ok("delete", "provider/local")
    finally:
        fleet.close()


def test_an_address_of_others_needs_tls(tmp_path: Path) -> None:
    fleet = AgentsFleet(tmp_path / "home")
    try:
        refused = fleet.run("mcp", "--http", "0.0.0.0:0")
        assert refused.code == 3
        assert "--behind-proxy" in refused.talk
        wrong = fleet.run("mcp", "--name", "fleet.example.org")
        assert wrong.code == 2
        assert "--http" in wrong.talk
        fleet.again("--behind-proxy", "--name", "fleet.example.org")
        outside = {"host": "fleet.example.org", "x-forwarded-for": "192.0.2.7"}
        header = fleet.send("", **outside).headers["www-authenticate"]
        address = "https://fleet.example.org/.well-known/oauth-protected-resource/mcp"
        assert header == f'Bearer resource_metadata="{address}"'
    finally:
        fleet.close()
