"""Sends to a sink once, among them a program of this machine, and the status of a commit at GitHub
or GitLab. Called by engine/kinds/notices.py, which decides when and how often.

Each delivery has a thread of its own, so that a sink that hangs delays only itself, not even the
end of the process, and a deadline over the whole call.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from fleetctl.controllers.kinds.notices import NoticeMessage, NoticeSink, key_bytes, sign_message
from fleetctl.notices.mail import NoticeMail
from fleetctl.notices.request import LOOPBACK_NAMES, TAKEN, NoticePost, SinkOutcome
from fleetctl.specs.blocks.notify import (
    GITHUB_TOKEN,
    GITLAB_TOKEN,
    SLACK_URL,
    SMTP_URL,
    WEBHOOK_KEY,
    WEBHOOK_URL,
)

DEADLINE_S = 30.0

PROGRAM_S = 25.0  # from its start; then all of its session is killed
# Variables of the environment that a program gets: those that desktops and shells need.
KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "DISPLAY",
    "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip


# The name of the token's variable decides between GitHub and GitLab. Where several notices come
# together, each commit has a request of its own. A status that is written again is the same one.

TEXT_CHARS_MAX = 140  # of a description, as GitHub has it
_SCP = re.compile(r"(?:[^@/]+@)?([^:/]+):(?!/)(.+)")
_GITHUB = {True: "success", False: "failure"}
_GITLAB = {True: "success", False: "failed"}


class NoticeSender(Protocol):
    """Sends once, blocking, in a thread; `cut` ends it from another one."""

    def __call__(self) -> SinkOutcome: ...

    def cut(self) -> None: ...


async def send_notice(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
    *,
    now_s: float,
    programs: bool = True,
) -> SinkOutcome:
    """Sends a message. values: of the Secret that the sink names. programs: this process may start
    programs.
    """
    if sink.how == "command" and not programs:
        return SinkOutcome("a controller in a cluster starts no programs", gone=True)
    made = _make_sender(sink, values, message, now_s=now_s)
    if isinstance(made, SinkOutcome):
        return made
    return await _send_in_thread(made)


async def _send_in_thread(way: NoticeSender) -> SinkOutcome:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[SinkOutcome] = loop.create_future()

    def tell(outcome: SinkOutcome) -> None:
        if not answered.done():
            answered.set_result(outcome)

    def work() -> None:
        outcome = way()
        with suppress(RuntimeError):  # the loop is closed, and no caller waits any more
            loop.call_soon_threadsafe(tell, outcome)

    Thread(
        target=work,
        name="notice",
        daemon=True,
    ).start()
    try:
        # `wait_for` of Python 3.11 loses a cancellation that comes with the reply.
        async with asyncio.timeout(DEADLINE_S):
            return await answered
    except TimeoutError:
        return SinkOutcome(f"nothing within {DEADLINE_S:g} s")
    finally:
        way.cut()


def _make_sender(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
    *,
    now_s: float,
) -> NoticeSender | SinkOutcome:
    ways: Mapping[str, Callable[[], NoticeSender | SinkOutcome]] = {
        "webhook": lambda: _make_webhook(sink, values, message, now_s),
        "slack": lambda: _make_slack(sink, values, message),
        "email": lambda: _make_mail(sink, values, message),
        "commitStatus": lambda: statuses_of(sink, values, message),
        "command": lambda: NoticeProgram(sink.argv, message.json, os.environ),
    }
    make = ways.get(sink.how)
    if make is not None:
        return make()
    return SinkOutcome(f"this version knows no `{sink.how}`")


def _make_webhook(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
    now_s: float,
) -> NoticeSender | SinkOutcome:
    url = sink.fields.get("url") or values.get(WEBHOOK_URL)
    if not url:
        return SinkOutcome(f"secret/{sink.secret} has no {WEBHOOK_URL}")
    at_s = int(now_s)
    body = message.json
    headers = {"webhook-id": message.id, "webhook-timestamp": str(at_s)}
    key = values.get(WEBHOOK_KEY)
    if key is None and sink.secret and WEBHOOK_URL not in values:
        return SinkOutcome(f"secret/{sink.secret} has neither {WEBHOOK_KEY} nor {WEBHOOK_URL}")
    if key is not None:
        try:
            headers["webhook-signature"] = sign_message(key_bytes(key), message.id, at_s, body)
        except ValueError as error:
            return SinkOutcome(f"{WEBHOOK_KEY} of secret/{sink.secret}: {error}")
    return NoticePost(str(url), body.encode(), headers)


def _make_slack(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
) -> NoticeSender | SinkOutcome:
    url = values.get(SLACK_URL, "")
    if not url:
        return SinkOutcome(f"secret/{sink.secret} has no {SLACK_URL}")
    host = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    if not url.startswith("https://") and host not in LOOPBACK_NAMES:
        return SinkOutcome(f"{SLACK_URL} of secret/{sink.secret} must begin with https://")
    return NoticePost(url, json.dumps({"text": message.text}).encode(), {})


def _make_mail(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
) -> NoticeSender | SinkOutcome:
    url = values.get(SMTP_URL)
    if not url:
        return SinkOutcome(f"secret/{sink.secret} has no {SMTP_URL}")
    to = sink.fields["to"]
    return NoticeMail(url, message, to, sink.fields.get("from") or to[0])


class NoticeProgram:
    """Passes a notice to a program on its standard input. The program gets only the environment
    variables that describe this machine: the others hold keys of accounts. Its output is discarded.
    """

    def __init__(
        self,
        argv: Sequence[str],
        text: str,
        environ: Mapping[str, str],
    ) -> None:
        self._argv = argv
        self._text = text
        self._env = {name: environ[name] for name in KEPT if name in environ}
        self._process: subprocess.Popen[str] | None = None

    def __call__(self) -> SinkOutcome:
        name = self._argv[0]
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self._env.get("HOME", "/"),
                env=self._env,
                start_new_session=True,
                text=True,
            )
        except OSError as error:
            return SinkOutcome(f"`{name}` cannot be started: {error.strerror}")
        try:
            self._process.communicate(self._text, timeout=PROGRAM_S)
        except subprocess.TimeoutExpired:
            self.cut()
            self._process.wait()
            return SinkOutcome(f"`{name}` was killed: it took longer than {PROGRAM_S:g} s")
        code = self._process.returncode
        if code < 0:
            return SinkOutcome(f"`{name}` was ended by {signal.Signals(-code).name}")
        if code:
            return SinkOutcome(f"`{name}` exited with code {code}")
        return TAKEN

    def cut(self) -> None:
        """Ends the program and its children, if it still runs."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class CommitStatuses:
    """One request for each commit; the first that is not taken ends it."""

    def __init__(self, posts: Sequence[NoticePost]) -> None:
        self._posts = posts

    def __call__(self) -> SinkOutcome:
        for post in self._posts:
            outcome = post()
            if outcome.problem:
                return outcome
        return TAKEN

    def cut(self) -> None:
        for post in self._posts:
            post.cut()


def statuses_of(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
) -> CommitStatuses | SinkOutcome:
    """Returns the sender of commit statuses, or why there is none. values: of the Secret that
    the sink names.
    """
    github = values.get(GITHUB_TOKEN)
    gitlab = values.get(GITLAB_TOKEN)
    if bool(github) == bool(gitlab):
        names = f"{GITHUB_TOKEN} and {GITLAB_TOKEN}"
        return SinkOutcome(f"secret/{sink.secret} must have one of {names}")
    posts = []
    for body in message.bodies:
        made = _build_request(str(sink.fields.get("url") or ""), body, github=bool(github))
        if isinstance(made, SinkOutcome):
            return made
        url, content = made
        token = f"Bearer {github}" if github else ""
        headers = {"Authorization": token} if token else {"PRIVATE-TOKEN": str(gitlab)}
        posts.append(NoticePost(url, content, headers))
    return CommitStatuses(posts)


def _build_request(
    base: str,
    body: Mapping[str, Any],
    *,
    github: bool,
) -> tuple[str, bytes] | SinkOutcome:
    repository = body.get("repository")
    commit = body.get("revision")
    if not repository or not commit:
        return SinkOutcome("it reports commits of a Source alone", gone=True)
    host, path = split_repository(str(repository))
    if not host or not path:
        return SinkOutcome("the Source's repository is at no host", gone=True)
    if base and not base.startswith("https://") and urlsplit(base).hostname not in LOOPBACK_NAMES:
        return SinkOutcome("its `url` must begin with https://")
    good = body["event"] == "SourceApplied"
    context = f"fleetctl/{body['namespace']}/{body['name']}"
    words = f"{body.get('reason') or body['event']}"[:TEXT_CHARS_MAX]
    told = {"context": context, "description": words}
    if github:
        api = base or (
            "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3"
        )
        url = f"{api.rstrip('/')}/repos/{quote(path)}/statuses/{commit}"
        return url, json.dumps({"state": _GITHUB[good], **told}).encode()
    api = base or f"https://{host}/api/v4"
    url = f"{api.rstrip('/')}/projects/{quote(path, safe='')}/statuses/{commit}"
    return url, json.dumps({"state": _GITLAB[good], "name": context, **told}).encode()


def split_repository(repository: str) -> tuple[str, str]:
    """Returns (host, path without `.git`) of a repository's url; both empty for anything else."""
    scp = _SCP.fullmatch(repository)
    if "://" not in repository and scp is not None:
        return scp[1], scp[2].removesuffix(".git").strip("/")
    parts = urlsplit(repository)
    return parts.hostname or "", parts.path.removesuffix(".git").strip("/")
