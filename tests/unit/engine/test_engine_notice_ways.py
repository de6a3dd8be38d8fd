"""How each sink is told once: Slack, mail and programs, and what is refused before it goes."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest

from fleetctl.controllers.kinds.notices import NoticeMessage
from fleetctl.controllers.kinds.notices import NoticeSink as To
from fleetctl.notices import send
from fleetctl.notices.request import TAKEN, SinkOutcome, keeps_credentials
from fleetctl.notices.send import send_notice
from tests.emulators.sink import Sink

BODY = {
    "id": "msg_1", "event": "Failed", "at": "2026-01-01T00:00:00.000Z", "kind": "BatchJob",
    "name": "a", "namespace": "default", "reason": "FailedIndexes",
    "counts": {"total": 3, "succeeded": 2, "failed": 1}, "costUsd": {"actual": 1.5},
}  # fmt: skip
MESSAGE = NoticeMessage("msg_1", (BODY,))
LINE = "batchjob/a has failed: FailedIndexes, 2 of 3 succeeded, 1 failed, $1.50"


async def tell(
    how: str, fields: Mapping[str, Any], values: Mapping[str, str] | None = None
) -> SinkOutcome:
    to = To("default", how, fields)
    return await send_notice(to, values or {}, MESSAGE, now_s=1_700_000_000.5)


async def run(*argv: str, programs: bool = True) -> SinkOutcome:
    return await send_notice(
        To("default", "command", {}, argv), {}, MESSAGE, now_s=0.0, programs=programs
    )


# Slack


async def test_slack_gets_a_line_of_text() -> None:
    with Sink() as sink:
        assert await tell("slack", {"secret": "s"}, {"SLACK_WEBHOOK_URL": sink.url}) == TAKEN
        assert sink.requests[0].json == {"text": LINE}
        assert "webhook-id" not in sink.requests[0].headers


@pytest.mark.parametrize(
    ("how", "fields", "values", "problem"),
    [
        ("slack", {"secret": "s"}, {}, "secret/s has no SLACK_WEBHOOK_URL"),
        (
            "slack",
            {"secret": "s"},
            {"SLACK_WEBHOOK_URL": "http://example.invalid/canary"},
            "SLACK_WEBHOOK_URL of secret/s must begin with https://",
        ),
        ("webhook", {"secret": "s"}, {}, "secret/s has no WEBHOOK_URL"),
        (
            "webhook",
            {"secret": "s", "url": "http://127.0.0.1:9"},
            {},
            "secret/s has neither WEBHOOK_SECRET nor WEBHOOK_URL",
        ),
        (
            "webhook",
            {"secret": "s", "url": "http://127.0.0.1:9"},
            {"WEBHOOK_SECRET": "canary"},
            "WEBHOOK_SECRET of secret/s: it must begin with `whsec_`",
        ),
        (
            "webhook",
            {"secret": "s"},
            {"WEBHOOK_URL": "ftp://canary"},
            "its URL must begin with https:// or http://, and a host",
        ),
        ("email", {"secret": "s", "to": ["a@x.org"]}, {}, "secret/s has no SMTP_URL"),
        (
            "email",
            {"secret": "s", "to": ["a@x.org"]},
            {"SMTP_URL": "imap://canary"},
            "SMTP_URL must begin with smtp:// or smtps://, and a host",
        ),
        ("webhook", {"url": "http://127.0.0.1:9"}, {}, "no answer: Connection refused"),
    ],
)
async def test_what_cannot_be_told_says_why_and_no_secret(
    how: str, fields: dict[str, Any], values: dict[str, str], problem: str
) -> None:
    assert (await tell(how, fields, values)).problem == problem


# Mail


class Post(socketserver.StreamRequestHandler):
    """As much of SMTP as a client asks for."""

    server: Any

    def handle(self) -> None:
        self._say("220 here")
        while line := self.rfile.readline().decode().rstrip("\r\n"):
            word = line.split(":")[0].split(" ")[0].upper()
            self.server.heard.append(line)
            if word == "EHLO":
                self._say("250-here\r\n250 AUTH PLAIN")
            elif word == "DATA":
                self._say("354 go on")
                text = []
                while (one := self.rfile.readline().decode()) != ".\r\n":
                    text.append(one)
                self.server.mails.append("".join(text))
                self._say("250 taken")
            elif word == "RCPT" and "nobody" in line:
                self._say("550 nobody of that name")
            elif word == "AUTH":
                self._say("235 welcome")
            elif word == "QUIT":
                return
            else:
                self._say("250 well")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def post() -> Iterator[Any]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Post) as server:
        made: Any = server
        made.daemon_threads, made.heard, made.mails = True, [], []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


async def test_a_mail_says_it_in_its_subject_and_has_the_id_of_the_notice() -> None:
    with post() as server:
        url = f"smtp://me:p%40ss@127.0.0.1:{server.server_address[1]}"
        fields = {"secret": "s", "to": ["a@x.org", "b@x.org"], "from": "fleet@x.org"}
        assert await tell("email", fields, {"SMTP_URL": url}) == TAKEN
        mail = message_from_string(server.mails[0])
        assert mail["Subject"] == "fleetctl: batchjob/a has failed"
        assert (mail["From"], mail["To"]) == ("fleet@x.org", "a@x.org, b@x.org")
        assert mail["Message-ID"] == "<msg_1@fleetctl>"
        assert LINE in mail.get_payload()
        assert any(line.startswith("AUTH") for line in server.heard)


async def test_a_recipient_that_is_refused_does_not_have_the_others_told_again() -> None:
    with post() as server:
        url = f"smtp://127.0.0.1:{server.server_address[1]}"
        some = {"secret": "s", "to": ["a@x.org", "nobody@x.org"]}
        found = await tell("email", some, {"SMTP_URL": url})
        assert found == SinkOutcome(remark="its server refused 1 of 2 recipients")
        nobody = {"secret": "s", "to": ["nobody@x.org"]}
        found = await tell("email", nobody, {"SMTP_URL": url})
        assert found.problem == "its server refuses every recipient"


# Programs

KEEPS = (
    "import os, sys; open(sys.argv[1], 'w').write(sys.stdin.read() + '\\n' + str(dict(os.environ)))"
)


async def test_a_program_gets_the_notice_and_nothing_of_the_controllers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "canary")
    assert await run(sys.executable, "-c", KEEPS, str(tmp_path / "out")) == TAKEN
    text, environment = (tmp_path / "out").read_text().split("\n")
    assert json.loads(text)["data"] == BODY
    assert "PATH" in environment and "canary" not in environment


async def test_a_program_that_fails_or_does_not_end_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (await run("sh", "-c", "exit 3")).problem == "`sh` exited with code 3"
    assert (await run("/no/such")).problem.startswith("`/no/such` cannot be started: No such file")
    monkeypatch.setattr(send, "PROGRAM_S", 0.2)
    found = await run("sleep", "1000")
    assert found.problem == "`sleep` was killed: it took longer than 0.2 s"


async def test_a_controller_in_a_cluster_starts_no_program(tmp_path: Path) -> None:
    found = await run("touch", str(tmp_path / "made"), programs=False)
    assert found.gone and not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("169.254.169.254", True), ("fe80::1%eth0", True), ("::ffff:169.254.169.254", True),
        ("64:ff9b::a9fe:a9fe", True), ("64:ff9b:1::a9fe:a9fe", True), ("2002:a9fe:a9fe::1", True),
        ("::a9fe:a9fe", True), ("2001:0:a9fe:a9fe::1", True), ("2001::5601:5601", True),
        ("fd00:ec2::254", True), ("100.100.100.200", True), ("::ffff:100.100.100.200", True),
        ("127.0.0.1", False), ("::1", False), ("10.0.0.1", False), ("::ffff:10.0.0.1", False),
        ("2606:4700::1111", False), ("64:ff9b::a00:1", False),
    ],
)  # fmt: skip
def test_addresses_at_which_clouds_keep_credentials_are_known(address: str, kept: bool) -> None:
    assert keeps_credentials(address) is kept


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518"),
        *("[::ffff:169.254.169.254]", "[64:ff9b::169.254.169.254]"),
    ],
)
async def test_no_proxy_is_asked_for_them(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    heard = await tell("webhook", {"url": f"https://{host}/x"})
    assert "link-local address, where clouds keep credentials" in heard.problem


# States of commits

COMMIT = {
    "id": "msg_2",
    "event": "SourceApplied",
    "kind": "Source",
    "name": "fleet",
    "namespace": "default",
    "reason": "Ready",
    "at": "2026-01-01T00:00:00.000Z",
    "repository": "git@forge.example.org:acme/jobs.git",
    "revision": "4be1f9a",
}
REFUSED = {**COMMIT, "event": "SourceFailed", "reason": "RevisionRefused"}


async def tell_commits(
    fields: Mapping[str, Any], values: Mapping[str, str], *bodies: Mapping[str, Any]
) -> SinkOutcome:
    to = To("default", "commitStatus", {"secret": "s", **fields})
    return await send_notice(to, values, NoticeMessage("msg_2", bodies), now_s=0.0)


async def test_a_commit_that_is_applied_or_refused_is_marked_at_github() -> None:
    with Sink() as sink:
        base, values = sink.url.removesuffix("/hook"), {"GITHUB_TOKEN": "canary"}
        assert await tell_commits({"url": base}, values, COMMIT, REFUSED) == TAKEN
        first, second = sink.requests
        assert first.path == second.path == "/repos/acme/jobs/statuses/4be1f9a"
        assert first.headers["authorization"] == "Bearer canary"
        named = {"context": "fleetctl/default/fleet"}
        assert first.json == {"state": "success", "description": "Ready", **named}
        assert second.json == {"state": "failure", "description": "RevisionRefused", **named}


async def test_and_at_gitlab() -> None:
    with Sink() as sink:
        base, values = sink.url.removesuffix("/hook"), {"GITLAB_TOKEN": "canary"}
        assert await tell_commits({"url": base}, values, REFUSED) == TAKEN
        (request,) = sink.requests
        assert request.path == "/projects/acme%2Fjobs/statuses/4be1f9a"
        assert request.headers["private-token"] == "canary"
        assert (request.json["state"], request.json["name"]) == ("failed", "fleetctl/default/fleet")


@pytest.mark.parametrize(
    ("fields", "values", "body", "problem"),
    [
        ({}, {}, COMMIT, "secret/s must have one of GITHUB_TOKEN and GITLAB_TOKEN"),
        (
            {"url": "http://example.invalid"},
            {"GITHUB_TOKEN": "x"},
            COMMIT,
            "its `url` must begin with https://",
        ),
        ({}, {"GITHUB_TOKEN": "x"}, BODY, "it reports commits of a Source alone"),
    ],
)
async def test_a_commit_that_cannot_be_marked_says_why(
    fields: Mapping[str, Any], values: Mapping[str, str], body: Mapping[str, Any], problem: str
) -> None:
    assert (await tell_commits(fields, values, body)).problem == problem
