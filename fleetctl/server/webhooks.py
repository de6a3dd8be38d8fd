"""Receives the webhooks of GitHub and GitLab: a push makes the Sources of its repository look now.

A sender proves itself by the secret of `fleetctl serve --webhook-secret`, not by a token: GitHub
signs the body with it, GitLab sends it. A push decides no more than which Sources look; each reads
its repository itself. Called by its route.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from fleetctl.common.errors import UsageError
from fleetctl.notices.commit_status import split_repository
from fleetctl.server.callers import EDITOR, Caller, HttpError
from fleetctl.server.changes import KEYS_MAX, read_body, send_verb
from fleetctl.server.route_table import ApiCall
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.access import EVERYWHERE
from fleetctl.views.objects import as_mapping
from fleetctl.views.store_reading import StoreReading

SENDER = "webhook"  # the user in the audit
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 16, 1024
GITHUB_HEADER = "x-hub-signature-256"  # of Gitea and Forgejo, too
GITLAB_HEADER = "x-gitlab-token"
# Fields of a push that name its repository: GitHub, Gitea and Forgejo; then GitLab.
_URLS = ("clone_url", "ssh_url", "html_url", "git_http_url", "git_ssh_url", "web_url", "homepage")
_REF_KINDS = ("refs/heads/", "refs/tags/")


def read_webhook_secret(path: str) -> bytes:
    """Returns the secret in a file, without the white space around it; empty without a path. Raises
    UsageError."""
    if not path:
        return b""
    try:
        with Path(path).open("rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        words = (error.strerror or "").lower()
        raise UsageError(f"--webhook-secret `{path}` cannot be read: {words}") from None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise UsageError(
            f"--webhook-secret `{path}` has {len(secret)} bytes; it must have {SECRET_BYTES_MIN} to"
            f" {SECRET_BYTES_MAX}",
            hint=f"openssl rand -hex 32 > {path}",
        )
    return secret


async def receive_push(call: ApiCall) -> Response:
    """Lets the Sources look whose repository and ref a push names. Raises HttpError 401 for a
    sender that does not know the secret."""
    _check_sender(call.parts.webhook_secret, call.request.headers, await call.request.body())
    push = await read_body(call)
    repositories = set(_repositories_in(push))
    if not repositories:
        raise UsageError("the body names no repository", hint="choose push events, sent as JSON")

    def matching(reading: StoreReading) -> list[str]:
        sources = reading.views(KINDS["Source"], specs=True)
        return [
            it.key for it in sources if _is_of(as_mapping(it.spec()["git"]), repositories, push)
        ]

    keys = (await call.parts.readers.read(matching))[:KEYS_MAX]
    if not keys:
        return JSONResponse({"ok": True, "code": 0, "results": []})
    sender = Caller(SENDER, EDITOR, EVERYWHERE, SENDER, call.request.scope["state"]["address"])
    return await send_verb(replace(call, caller=sender), "reconcile", {"keys": keys})


def _check_sender(secret: bytes, headers: Mapping[str, str], body: bytes) -> None:
    if not secret:
        raise HttpError(
            404,
            "this server takes no webhooks",
            hint="`fleetctl serve --webhook-secret FILE` takes them",
            code=4,
        )
    signature = f"sha256={hmac.new(secret, body, sha256).hexdigest()}".encode()
    signed = hmac.compare_digest(headers.get(GITHUB_HEADER, "").encode(), signature)
    if not signed and not hmac.compare_digest(headers.get(GITLAB_HEADER, "").encode(), secret):
        raise HttpError(
            401,
            "the sender does not know the secret of this server's webhooks",
            hint=f"header {GITHUB_HEADER} has GitHub's signature, {GITLAB_HEADER} GitLab's secret",
        )


def _repositories_in(push: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Returns the names that the repository of a push has."""
    for part in (push.get("repository"), push.get("project")):
        if isinstance(part, dict):
            named = (part.get(field) for field in _URLS)
            yield from (_repository_name(it) for it in named if isinstance(it, str) and it)


def _repository_name(url: str) -> tuple[str, str]:
    """(host, path), as services compare them: in any case."""
    host, path = split_repository(url)
    return host.casefold(), path.casefold()


def _is_of(
    git: Mapping[str, Any], repositories: set[tuple[str, str]], push: Mapping[str, Any]
) -> bool:
    """Returns whether a push may have moved the commit of a Source. A push without a ref is the
    ping by which a service tries a webhook."""
    if _repository_name(str(git["url"])) not in repositories:
        return False
    pushed, wanted = push.get("ref"), git.get("ref")
    if not isinstance(pushed, str) or not wanted:
        return True
    return pushed == wanted or pushed in {f"{kind}{wanted}" for kind in _REF_KINDS}
