"""What became of a commit, written beside it at GitHub or GitLab. Blocking, in a thread of send.py.

Which of the two it is, the token's variable tells; of several notices that come together each
commit has a request of its own. A status that is written again is the same one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from fleetctl.controllers.kinds.notices.message import NoticeMessage
from fleetctl.controllers.kinds.notices.notice import NoticeSink
from fleetctl.notices.request import LOOPBACK_NAMES, NoticePost
from fleetctl.notices.sink_outcome import TAKEN, SinkOutcome
from fleetctl.specs.blocks.notify import GITHUB_TOKEN, GITLAB_TOKEN

TEXT_CHARS_MAX = 140  # of a description, as GitHub has it
_SCP = re.compile(r"(?:[^@/]+@)?([^:/]+):(?!/)(.+)")
_GITHUB = {True: "success", False: "failure"}
_GITLAB = {True: "success", False: "failed"}


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
    """values: of the Secret that the sink names."""
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
