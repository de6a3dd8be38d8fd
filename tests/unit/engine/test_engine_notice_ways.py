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

from fleetctl.controllers.kinds.notices.message import Message
from fleetctl.controllers.kinds.notices.notice import Sink as To
from fleetctl.notices import program
from fleetctl.notices.outcome import TAKEN, Outcome
from fleetctl.notices.send import send
from tests.emulators.sink import Sink

BODY = {
    "id": "msg_1", "event": "Failed", "at": "2026-01-01T00:00:00.000Z", "kind": "BatchJob",
    "name": "a", "namespace": "default", "reason": "FailedIndexes",
    "counts": {"total": 3, "succeeded": 2, "failed": 1}, "costUsd": {"actual": 1.5},
}  # fmt: skip
MESSAGE = Message("msg_1", (BODY,))
LINE = "batchjob/a has failed: FailedIndexes, 2 of 3 succeeded, 1 failed, $1.50"


async def tell(
    how: str, fields: Mapping[str, Any], values: Mapping[str, str] | None = None
) -> Outcome:
    to = To("default", how, fields)
    return await send(to, values or {}, MESSAGE, now_s=1_700_000_000.5)


async def run(*argv: str, programs: bool = True) -> Outcome:
    return await send(To("default", "command", {}, argv), {}, MESSAGE, now_s=0.0, programs=programs)


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
        assert found == Outcome(remark="its server refused 1 of 2 recipients")
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
    assert (await run("sh", "-c", "exit 3")).problem == "`sh` ended with exit code 3"
    assert (await run("/no/such")).problem.startswith("`/no/such` cannot be started: No such file")
    monkeypatch.setattr(program, "PROGRAM_S", 0.2)
    found = await run("sleep", "1000")
    assert found.problem == "`sleep` was killed: it took longer than 0.2 s"


async def test_a_controller_in_a_cluster_starts_no_program(tmp_path: Path) -> None:
    found = await run("touch", str(tmp_path / "made"), programs=False)
    assert found.gone and not (tmp_path / "made").exists()
