"""Tokens, roles in namespaces, and the audit: the reach of each user, and that it is recorded."""

from __future__ import annotations

import json
import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.api.served import ServedFleet, job, names, until


@pytest.fixture(scope="module")
def team(served: ServedFleet) -> dict[str, str]:
    texts = (job("ours", namespace="team"), job("theirs"))
    served.ok("apply", "-f", "-", stdin="\n---\n".join(texts))
    return {
        "viewer": served.token("vera", "viewer", "-n", "team", "--expires", "1h"),
        "editor": served.token("ed", "editor", "-n", "team"),
        "admin": served.token("ada", "admin", "-n", "team"),
        "all": served.token("root", "admin", "-A"),
    }


def test_a_user_sees_one_namespace_alone(served: ServedFleet, team: dict[str, str]) -> None:
    token = team["viewer"]
    assert names(served.get("batchjobs", token=token)) == ["ours"]
    assert served.get("batchjobs", token=token)["metadata"]["total"] == 1
    assert served.get("batchjobs/ours", token=token)["metadata"]["namespace"] == "team"
    assert sorted(names(served.get("batchjobs", token=team["all"]))) == ["ours", "theirs"]
    with served.client(token) as client:
        for path in (
            "batchjobs?namespace=default",
            "batchjobs/theirs?namespace=default",
            "batchjobs/theirs/logs?namespace=default",
            "events?namespace=default",
            "batchjobs?watch=true&namespace=default",
            'rows/resource?args={"kind":"BatchJob","name":"theirs"}',
        ):
            answer = client.get(f"/api/v1/{path}")
            assert answer.status_code == 403, path
            assert "`vera` has `viewer` in `team`" in answer.text
        assert client.get("/metrics").status_code == 403
    objects = {it["object"] for it in served.get("events", token=token)["items"]}
    assert objects == {"batchjob/ours -n team"}


@pytest.mark.parametrize("verb", ["suspend", "resume", "delete", "rerun", "scale", "apply"])
def test_a_viewer_changes_nothing(served: ServedFleet, team: dict[str, str], verb: str) -> None:
    body: dict[str, Any] = {"keys": ["batchjob/ours"], "key": "batchjob/ours", "parallelism": 1}
    body["manifest"] = job("new")
    answer = served.post(verb, body, token=team["viewer"])
    assert answer.status_code == 403, answer.text
    after = served.get("batchjobs/ours", token=team["viewer"])
    assert after["metadata"]["generation"] == 1
    assert served.run("get", "job/new", "-n", "team").code == 4


def test_an_editor_changes_the_own_namespace_alone(
    served: ServedFleet, team: dict[str, str]
) -> None:
    token = team["editor"]
    made = served.post("apply", {"manifest": job("fresh")}, token=token)
    assert made.status_code == 200, made.text
    assert made.json()["results"][0]["key"] == "batchjob/fresh -n team"
    limits = {"limits": {"maxConcurrent": 1}}
    for manifest in (
        job("fresh", namespace="default"),
        job("fresh", namespace="team2"),
        json.dumps({"kind": "Provider", "metadata": {"name": "local"}, "spec": limits}),
    ):
        answer = served.post("apply", {"manifest": manifest}, token=token)
        assert answer.status_code == 409, answer.text
        assert "may not change" in answer.json()["errors"][0]
    for key in ("batchjob/theirs -n default", "provider/local"):
        answer = served.post("delete", {"keys": [key], "yes": True}, token=token)
        assert answer.status_code == 403, answer.text
    assert served.status("job/theirs")
    answer = served.post("suspend", {"keys": ["batchjob/fresh", "batchjob/none"]}, token=token)
    assert [it["outcome"] for it in answer.json()["results"]] == ["suspended", "missing"]
    beyond = {"keys": ["batchjob/fresh"], "override": True}
    assert served.post("suspend", beyond, token=token).status_code == 403


@pytest.mark.parametrize(
    "spec",
    [
        {"tasks": {"fromFile": "/etc/passwd"}},
        {"tasks": {"fromFiles": "/etc/*"}},
        {"template": {"python": "1", "source": {"path": "/etc"}}},
        {"template": {"python": "1", "image": {"pip": ["-r /etc/passwd"]}}},
        {"template": {"python": "1", "image": {"pip": ["/etc"]}}},
        {"notify": [{"when": ["Failed"], "command": ["touch", "/tmp/owned"]}]},
    ],
    ids=["fromFile", "fromFiles", "source", "requirements", "package", "program"],
)
def test_no_manifest_of_a_user_reads_a_file_of_the_server(
    served: ServedFleet, team: dict[str, str], spec: dict[str, object]
) -> None:
    manifest = json.loads(job("thief"))
    manifest["spec"] |= spec
    for verb in ("apply", "plan"):
        answer = served.post(verb, {"manifest": json.dumps(manifest)}, token=team["editor"])
        assert answer.status_code == 400, answer.text
        assert "root:" not in answer.text
        assert answer.json()["errors"]
    assert served.run("get", "job/thief", "-n", "team").code == 4


def test_a_secret_of_a_user_is_not_the_servers_own_variable(
    served: ServedFleet, team: dict[str, str]
) -> None:
    secret = json.dumps(
        {"kind": "Secret", "metadata": {"name": "s"}, "spec": {"fromEnv": ["PATH"]}}
    )
    first = served.post("apply", {"manifest": secret}, token=team["editor"])
    assert first.json()["needEnv"] == ["PATH"]
    refused = served.post("apply", {"manifest": secret, "env": {}}, token=team["editor"])
    assert refused.status_code == 409
    assert "does not say what PATH is" in refused.text
    given = served.post("apply", {"manifest": secret, "env": {"PATH": "/x"}}, token=team["editor"])
    assert given.status_code == 200, given.text


def test_a_wrong_ended_or_revoked_token_opens_nothing(
    served: ServedFleet, team: dict[str, str]
) -> None:
    gone = served.token("gone", "admin", "-A")
    ident = gone.split("_")[1]
    assert served.get("whoami", token=gone)["user"] == "gone"
    served.ok("token", "revoke", ident)
    short = served.token("short", "admin", "-A", "--expires", "1s")
    until(lambda: served.json("token", "list")[-1]["status"] == "Expired", "its end")
    for token in (gone, short, team["viewer"][:-1], f"flt_{ident}_", "x" * 5000):
        with served.client(token) as client:
            answer = client.get("/api/v1/batchjobs")
        assert answer.status_code == 401, token
        assert answer.headers["www-authenticate"] == "Bearer"
    with served.client() as client:
        basic = client.get("/api/v1/batchjobs", headers={"authorization": "Basic YTpi"})
    assert basic.status_code == 401


def test_tokens_are_stored_as_digests_and_show_their_last_use(
    served: ServedFleet, team: dict[str, str]
) -> None:
    served.get("whoami", token=team["viewer"])
    rows = {row["user"]: row for row in served.json("token", "list")}
    assert rows["vera"]["lastUsedAt"]
    assert rows["vera"]["expiresAt"]
    stored = b"".join(it.read_bytes() for it in (served.home / "access").iterdir())
    for token in team.values():
        assert token.split("_", 2)[2].encode() not in stored
    assert (served.home / "access" / "access.db").stat().st_mode & 0o077 == 0


def test_the_audit_names_users_and_only_grows(served: ServedFleet, team: dict[str, str]) -> None:
    served.post("resume", {"keys": ["batchjob/ours"]}, token=team["editor"])
    with served.client(team["viewer"]) as client:
        client.get("/api/v1/batchjobs/ours/logs")
    acts = {(row["user"], row["action"]) for row in served.json("audit", "-n", "team")}
    assert {("ed", "resume"), ("vera", "logs")} <= acts
    seen = served.get("audit", token=team["admin"])["items"]
    assert {it["namespace"] for it in seen} == {"team"}
    with served.client(team["editor"]) as client:
        assert client.get("/api/v1/audit").status_code == 403
    database = sqlite3.connect(served.home / "access" / "access.db", isolation_level=None)
    for query in ("DELETE FROM audit", "UPDATE audit SET user = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            database.execute(query)
    database.close()


def test_events_and_objects_name_the_user(served: ServedFleet, team: dict[str, str]) -> None:
    made = served.post("apply", {"manifest": job("signed")}, token=team["editor"])
    assert made.status_code == 200, made.text

    def named() -> bool:
        items = served.get("batchjobs/signed/events", token=team["editor"])["items"]
        return any(it["message"] == "created by ed" for it in items)

    until(named, "the event")
    notes = served.get("batchjobs/signed", token=team["editor"])["metadata"]["annotations"]
    assert notes["fleetctl.dev/applied-by"] == "ed"
    served.ok("apply", "-n", "team", "-f", "-", stdin=job("signed", "SUBMIT(x=2)"))
    notes = served.get("batchjobs/signed", token=team["editor"])["metadata"]["annotations"]
    assert "fleetctl.dev/applied-by" not in notes
    assert notes["fleetctl.dev/created-by"] == "ed"
    shown = served.ok("describe", "job/signed", "-n", "team")
    assert "ago) by ed\n" in shown
    assert "the server's own user\n" in shown


def test_an_agent_is_named_beside_the_user_whose_token_it_has(
    served: ServedFleet, team: dict[str, str]
) -> None:
    with served.client(team["editor"]) as client:
        client.headers["x-fleetctl-agent"] = "Some Agent"
        made = client.post("/api/v1/apply", json={"manifest": job("acted")})
        assert made.status_code == 200, made.text
        client.headers["x-fleetctl-agent"] = "x; via root"
        client.post("/api/v1/suspend", json={"keys": ["batchjob/acted"]})
    found = served.get("batchjobs", token=team["viewer"], wide="true")
    users = {it["metadata"]["name"]: it["cells"] for it in found["items"]}
    at = found["metadata"]["columns"].index("USER")
    assert users["acted"][at] == "ed via some-agent"
    rows = [it for it in served.json("audit", "--user", "ed", "-A") if "acted" in it["object"]]
    assert [it["user"] for it in rows] == ["ed via some-agent", "ed"]


@contextmanager
def another(served: ServedFleet, *flags: str) -> Iterator[str]:
    """The address of a second server of the same fleet."""
    other = served.start(*flags)
    assert other.stdout is not None
    try:
        yield other.stdout.readline().decode().strip()
    finally:
        other.terminate()
        other.wait(60)
        other.stdout.close()


def test_behind_a_proxy_everybody_needs_a_token(served: ServedFleet, team: dict[str, str]) -> None:
    with another(served, "--behind-proxy", "--name", "fleet.example.org") as url:
        headers = {"host": "fleet.example.org", "x-forwarded-for": "1.2.3.4, 5.6.7.8"}
        bare = httpx.get(f"{url}/api/v1/batchjobs", headers=headers, timeout=60)
        assert bare.status_code == 401
        headers["authorization"] = f"Bearer {team['editor']}"
        body = {"keys": ["batchjob/ours"]}
        good = httpx.post(f"{url}/api/v1/suspend", headers=headers, json=body, timeout=60)
        assert good.status_code == 200, good.text
        assert good.headers["strict-transport-security"]
    assert served.json("audit", "-n", "team")[-1]["address"] == "5.6.7.8"


def test_tls_serves_and_names_an_https_address(
    served: ServedFleet, team: dict[str, str], tmp_path: Path
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    with another(served, "--tls-cert", str(cert), "--tls-key", str(key)) as url:
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context()
        authority.configure_trust(trusted)
        headers = {"authorization": f"Bearer {team['viewer']}"}
        answer = httpx.get(f"{url}/api/v1/batchjobs", headers=headers, verify=trusted, timeout=60)
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"]
