"""A push of GitHub or GitLab, as they send it, makes the Sources of its repository look at once."""

from __future__ import annotations

import hmac
import json
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetctl.common.errors import UsageError
from fleetctl.server.changes import read_webhook_secret
from tests.api.served import ServedFleet, job, until

SECRET = "canary-of-the-webhook"
HOST = {"host": "fleet.example.org"}
WHO = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
NOWHERE = "127.0.0.1"  # its port of https is closed


class Forge:
    """A repository with a branch `main`."""

    def __init__(self, root: Path) -> None:
        self.tree = root / "tree"
        self.url = f"file://{self.tree}"
        self.git("init", "-q", "-b", "main", str(self.tree), cwd=root)

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *WHO, *words], cwd=cwd or self.tree, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def push(self, name: str) -> str:
        (self.tree / f"{name}.yaml").write_text(job(name))
        self.git("add", "-A")
        self.git("commit", "-q", "-m", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    return Forge(tmp_path_factory.mktemp("forge"))


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    directory = tmp_path_factory.mktemp("hooked")
    (directory / "secret").write_text(f"{SECRET}\n")
    words = ("--behind-proxy", "--name", HOST["host"])
    secret = ("--webhook-secret", str(directory / "secret"))
    fleet = ServedFleet(directory / "home", *words, *secret)
    yield fleet
    fleet.close()


def send(fleet: ServedFleet, body: Any, headers: Mapping[str, Any]) -> httpx.Response:
    sort = {"content-type": "application/json"}
    with fleet.client() as client:
        path = "/api/v1/webhooks/push"
        return client.post(path, content=json.dumps(body), headers={**sort, **HOST, **headers})


def signed(body: Any, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), json.dumps(body).encode(), sha256).hexdigest()
    return {"x-github-event": "push", "x-hub-signature-256": f"sha256={digest}"}


def github(url: str = "", ref: str = "refs/heads/main", path: str = "acme/jobs") -> dict[str, Any]:
    """A push, as far as it is read. url: of its repository, by default the one nowhere."""
    urls = {"clone_url": f"https://{NOWHERE}/{path}.git", "ssh_url": f"git@{NOWHERE}:{path}.git"}
    return {"ref": ref, "repository": {**urls, **({"clone_url": url} if url else {})}}


def gitlab(url: str) -> dict[str, Any]:
    project = {"id": 5, "git_http_url": url, "git_ssh_url": f"git@{NOWHERE}:acme/jobs.git"}
    return {"object_kind": "push", "ref": "refs/heads/main", "project": project}


def source(name: str, url: str, **git: Any) -> str:
    """The manifest of a Source that by itself looks once a day."""
    spec = {"git": {"url": url, "interval": "1d", **git}}
    return json.dumps({"kind": "Source", "metadata": {"name": name}, "spec": spec})


def applied(fleet: ServedFleet, name: str, commit: str) -> bool:
    found: dict[str, Any] = fleet.json("get", f"source/{name}")
    return bool(found["status"].get("appliedRevision") == commit)


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_push_is_applied_though_the_next_look_is_far(
    hooked: ServedFleet, forge: Forge, service: str
) -> None:
    before = forge.push(f"before-{service}")
    hooked.ok("apply", "-f", "-", stdin=source("pushed", forge.url, ref="main"))
    hooked.ok("reconcile", "source/pushed")
    assert applied(hooked, "pushed", before)
    after = forge.push(f"after-{service}")
    body = github(forge.url) if service == "github" else gitlab(forge.url)
    headers = signed(body) if service == "github" else {"x-gitlab-token": SECRET}
    answer = send(hooked, body, headers)
    assert answer.status_code == 200, answer.text
    assert [it["key"] for it in answer.json()["results"]] == ["source/pushed"]
    until(lambda: applied(hooked, "pushed", after), "the commit")
    assert hooked.json("get", f"job/after-{service}")["metadata"]["name"]
    last = hooked.json("audit", "-A")[-1]
    assert (last["user"], last["action"], last["object"]) == (
        "webhook",
        "reconcile",
        "source/pushed",
    )
    hooked.ok("delete", "source/pushed", "--cascade", "orphan")


def test_only_sources_of_the_repository_and_its_ref_look(hooked: ServedFleet) -> None:
    refs = {"none": {}, "branch": {"ref": "dev"}, "tag": {"ref": "v1"}, "full": {"ref": "refs/x"}}
    urls = (f"https://{NOWHERE}/Acme/jobs.git", f"ssh://git@{NOWHERE}:2222/acme/jobs")
    texts = [source(name, urls[at % 2], **refs[name]) for at, name in enumerate(refs)]
    hooked.ok("apply", "--allow-missing", "-f", "-", stdin="\n---\n".join(texts))

    def looking(body: Any) -> set[str]:
        answer = send(hooked, body, signed(body))
        assert answer.status_code == 200, answer.text
        return {it["key"].removeprefix("source/") for it in answer.json()["results"]} & set(refs)

    assert looking(github(ref="refs/heads/dev")) == {"none", "branch"}
    assert looking(github(ref="refs/tags/v1")) == {"none", "tag"}
    assert looking(github(ref="refs/x")) == {"none", "full"}
    assert looking(github(path="acme/other")) == set()
    ping = {"zen": "Keep it simple.", "repository": github()["repository"]}
    assert looking(ping) == set(refs)


def test_who_does_not_know_the_secret_is_refused(hooked: ServedFleet) -> None:
    body = github()
    wrong: tuple[dict[str, Any], ...] = (
        {},
        signed(body, "another"),
        signed(github(ref="refs/heads/other")),
        {"x-gitlab-token": "another"},
        {"x-gitlab-token": ""},
        {"x-hub-signature-256": b"sha256=\xff"},
        {"authorization": f"Bearer {SECRET}"},
    )
    acts = len(hooked.json("audit", "-A"))
    for headers in wrong:
        answer = send(hooked, body, headers)
        assert answer.status_code == 401, headers
        assert "does not know the secret" in answer.text
    assert len(hooked.json("audit", "-A")) == acts
    assert SECRET not in hooked.server_log()


@pytest.mark.parametrize("body", [[], {}, {"repository": "x"}, {"repository": {"clone_url": 5}}])
def test_a_push_without_a_repository_is_refused(hooked: ServedFleet, body: Any) -> None:
    answer = send(hooked, body, signed(body))
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == 2


def test_a_server_without_the_secret_takes_none(served: ServedFleet) -> None:
    body = github()
    headers = {**signed(body, ""), "host": served.url.partition("//")[2]}
    for given in (headers, {**headers, "x-gitlab-token": ""}):
        answer = send(served, body, given)
        assert answer.status_code == 404
        assert "--webhook-secret FILE" in answer.text


@pytest.mark.parametrize("text", ["", "short\n", "x" * 2000])
def test_a_secret_that_can_be_guessed_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    with pytest.raises(UsageError, match="it must have 16 to 1024"):
        read_webhook_secret(str(path))
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        read_webhook_secret(str(tmp_path / "none"))
