"""Passes changes on to the controller, with the name and the role of the sender, and receives the
webhooks of GitHub and GitLab.

The controller decides; its reply is the answer, refusals and findings included, with the exit code
that the same verb has on the command line.

The sender of a webhook proves itself by the secret of `fleetctl serve --webhook-secret`, not by a
token: GitHub signs the body with it, GitLab sends it. A push decides no more than which Sources
look; each reads its repository itself.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from fleetctl.common.errors import Unavailable, UsageError
from fleetctl.daemon.client.socket_client import (
    THROUGH_CLUSTER,
    NotRunning,
    results_of,
    send_request,
)
from fleetctl.daemon.client.spawn import request_or_start
from fleetctl.notices.send import split_repository
from fleetctl.providers.paths import serves_cluster
from fleetctl.providers.sources.upload_store import UploadStore
from fleetctl.server.callers import ADMIN, EDITOR, Caller, HttpError
from fleetctl.server.guard import error_document
from fleetctl.server.response_types import Planned
from fleetctl.server.route_table import ApiCall
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.access import EVERYWHERE
from fleetctl.views.kinds import Target, kind_of, target_of, target_with
from fleetctl.views.objects import as_mapping
from fleetctl.views.store_reading import StoreReading

# Exit codes as statuses of HTTP; the body has the code itself.
STATUSES = {0: 200, 1: 500, 2: 400, 3: 409, 4: 404, 5: 409}
KEYS_MAX = 1000  # of one request
NOWHERE = "/nonexistent"  # no file of this machine is below it
DOCUMENT_NAME = "manifest.yaml"
APPLY_FIELDS = (
    "namespace", "namespaceBinds", "yes", "dryRun", "rollout", "keepFinished", "rerun", "applyset",
    "prune", "maxPrune", "takeOver", "override", "allowMissing", "waitForCapacity", "approved",
    "expected", "tellWork", "env",
)  # fmt: skip

SENDER = "webhook"  # the user in the audit
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 16, 1024
GITHUB_HEADER = "x-hub-signature-256"  # of Gitea and Forgejo, too
GITLAB_HEADER = "x-gitlab-token"
# Fields of a push that name its repository: GitHub, Gitea and Forgejo; then GitLab.
_URLS = ("clone_url", "ssh_url", "html_url", "git_http_url", "git_ssh_url", "web_url", "homepage")
_REF_KINDS = ("refs/heads/", "refs/tags/")


async def read_body(call: ApiCall) -> dict[str, Any]:
    """Returns the JSON object of a request. Raises UsageError."""
    try:
        found = json.loads(await call.request.body() or b"{}")
    except (ValueError, RecursionError):
        raise UsageError("the body is no JSON") from None
    if not isinstance(found, dict):
        raise UsageError("the body must be a JSON object")
    return found


async def apply_manifests(call: ApiCall) -> Response:
    """Applies manifests."""
    body = await read_body(call)
    namespace = read_namespace(call, body)
    message = {
        "verb": "apply",
        "documents": await asyncio.to_thread(documents_in, call, body),
        **{name: body[name] for name in APPLY_FIELDS if name in body},
        **({"namespace": namespace} if namespace else {}),
    }
    env = message.pop("env", None)
    reply = await _send_message(call, message)
    names = reply.get("needEnv")
    if isinstance(names, list):
        if not isinstance(env, dict):
            return await _build_response(
                call, "apply", {**reply, "code": 3}, namespace, record=False
            )
        missing = [str(name) for name in names if name not in env]
        if missing and not call.caller.may(ADMIN):
            # The controller would take them from its own environment, which is not this user's.
            raise HttpError(
                409,
                f"`{call.caller.user}` does not say what {', '.join(missing[:5])} is",
                hint="set the variable in your own shell; the server's own are for its admins",
            )
        reply = await _send_message(call, {**message, "env": env})
    return await _build_response(call, "apply", reply, namespace, record=not message.get("dryRun"))


async def plan_manifests(call: ApiCall) -> Planned:
    """Shows what an apply would do, where and at what cost; changes nothing."""
    body = await read_body(call)
    namespace = read_namespace(call, body)
    order = {name: body[name] for name in APPLY_FIELDS if name in body}
    if namespace:
        order["namespace"] = namespace
    from fleetctl.server.planning import plan_in_process

    return await asyncio.to_thread(
        plan_in_process,
        call.parts.home,
        call.caller,
        await asyncio.to_thread(documents_in, call, body),
        order,
        by_limits=body.get("byLimits") is True,
        diff=body.get("diff") is True,
        strict=body.get("strict") is True,
        report=body.get("report") is True,
    )


def documents_in(call: ApiCall, body: Mapping[str, Any]) -> list[dict[str, object]]:
    """Returns the texts of a request, which name no file of this machine but those that were sent
    before. Raises UsageError and NotFound."""
    if isinstance(text := body.get("manifest"), str):
        return [{"path": DOCUMENT_NAME, "text": text, "dir": NOWHERE}]
    found = body.get("documents")
    if not isinstance(found, list) or not all(isinstance(it, dict) for it in found):
        raise UsageError(
            "the body needs `manifest`, a text, or `documents`",
            hint='{"documents": [{"path": "job.yaml", "text": "kind: BatchJob ..."}]}',
        )
    return [
        {
            "path": str(it.get("path") or DOCUMENT_NAME),
            "text": str(it.get("text") or ""),
            "dir": NOWHERE,
            "role": str(it.get("role") or ""),
            "sent": UploadStore(call.parts.home, call.caller.namespace).paths_of(it.get("sent")),
        }
        for it in found
    ]


def read_namespace(call: ApiCall, body: Mapping[str, Any]) -> str:
    """Returns the namespace of documents that name none: the one given, else the caller's own."""
    given = str(body.get("namespace") or "")
    if given:
        call.caller.require(EDITOR, given)
    return given or ("" if call.caller.namespace == "*" else call.caller.namespace)


def make_verb(
    verb: str,
    fields: Sequence[str],
    fixed: Mapping[str, object] | None = None,
) -> Callable[[ApiCall], Any]:
    """Returns the handler of a verb on stored objects, alone or in bulk. fields: of the body,
    beside `keys`, that the controller understands."""

    async def handle(call: ApiCall) -> Response:
        body = await read_body(call)
        keys = keys_of(call, body)
        message: dict[str, object] = {"keys": keys, **(fixed or {})}
        message |= {name: body[name] for name in fields if name in body}
        if "override" in message:
            call.caller.require(ADMIN)
        if verb == "retry":
            message.setdefault("request", secrets.token_hex(8))
        if verb == "delete" and not body.get("yes"):
            await _check_deletion(call, keys, orphans=body.get("cascade") == "orphan")
        return await send_verb(call, verb, message)

    handle.__doc__ = f"Handles `{verb}`."
    return handle


async def send_verb(
    call: ApiCall,
    verb: str,
    message: Mapping[str, Any],
) -> Response:
    """Sends a verb on the objects in `keys` to the controller, and records it."""
    reply = await _send_message(call, {"verb": verb, **message})
    return await _build_response(call, verb, reply, keys=message["keys"])


async def set_fields(call: ApiCall) -> Response:
    """Changes fields of an object, or its parallelism."""
    body = await read_body(call)
    (key,) = keys_of(call, {"keys": [body.get("key")]})
    fields = body.get("fields")
    if "parallelism" in body:
        if not isinstance(body["parallelism"], int):
            raise UsageError("`parallelism` must be a number")
        fields = [f"parallelism={body['parallelism']}"]
    if not isinstance(fields, list) and not {"labels", "annotations", "spec"} & body.keys():
        raise UsageError("the body needs `fields`, a list of FIELD=VALUE, or `parallelism`")
    message: dict[str, object] = {"verb": "set", "key": key}
    if isinstance(fields, list):
        message["fields"] = fields
    message |= {
        name: body[name]
        for name in ("yes", "rollout", "override", "labels", "annotations", "spec", "generation")
        if name in body
    }
    if "override" in message:
        call.caller.require(ADMIN)
    return await _build_response(call, "set", await _send_message(call, message), keys=[key])


async def create_from(call: ApiCall) -> Response:
    """Makes now what a schedule makes."""
    body = await read_body(call)
    (schedule,) = keys_of(call, {**body, "keys": [body.get("from")]})
    message = {
        "verb": "create",
        "from": schedule,
        "kind": kind_of(str(body.get("kind") or "")).name,
        "name": str(body.get("name") or ""),
    }
    return await _build_response(
        call, "create", await _send_message(call, message), keys=[schedule]
    )


def keys_of(
    call: ApiCall,
    body: Mapping[str, Any],
    *,
    role: str = EDITOR,
) -> list[str]:
    """Returns the keys of a request, with their namespaces. role: that the caller needs there.
    Raises UsageError and HttpError."""
    found = body.get("keys")
    if not isinstance(found, list) or not found or len(found) > KEYS_MAX:
        raise UsageError(
            f"the body needs `keys`, a list of 1 to {KEYS_MAX} names such as `batchjob/chunks`",
            hint='{"namespace": "team", "keys": ["batchjob/chunks", "sweep/lr"]}',
        )
    default = str(body.get("namespace") or "") or call.namespace
    targets = [_target_named(str(text), default) for text in found]
    for one in targets:
        call.caller.require_kind(one.kind, role, one.namespace)
    return [one.key for one in targets]


def _target_named(text: str, default: str) -> Target:
    """Returns the object that `batchjob/x`, in the namespace `default`, or `batchjob/x -n team`
    names."""
    word, name, namespace = split_key(text)
    if not name or "/" in name:
        raise UsageError(f"`{text[:100]}` is not KIND/NAME")
    return target_of(kind_of(word), name, namespace if " -n " in text else default)


async def _check_deletion(
    call: ApiCall,
    keys: Sequence[str],
    *,
    orphans: bool,
) -> None:
    """Raises NeedsConsent where data or work of others would be lost, and the body has no `yes`."""

    from fleetctl.apply.consent import NeedsConsent
    from fleetctl.apply.deletion import deletion_losses

    def losses(reading: StoreReading) -> list[str]:
        found = (reading.find(target_with(key)) for key in keys)
        return [text for it in found for text in deletion_losses(it, reading, orphans=orphans)]

    if lost := await call.parts.readers.read(losses):
        raise NeedsConsent(lost, hint="add `yes` to delete it all the same")


async def _send_message(call: ApiCall, message: Mapping[str, object]) -> dict[str, object]:
    actor = {
        "user": call.caller.user,
        "role": call.caller.role,
        "namespace": call.caller.namespace,
    }
    ours = not call.caller.token  # the machine's own user may do all that the verbs may
    caller = call.request.headers.get("traceparent", "")
    message = {**message, "traceparent": caller}  # not the one of the server's own environment
    whole = {**message, "agent": call.caller.agent, **({} if ours else {"actor": actor})}
    send = request_or_start
    if serves_cluster(call.parts.home):
        whole[THROUGH_CLUSTER], send = True, _request_operator
    with call.parts.metrics.time_request(str(message["verb"])):
        return await asyncio.to_thread(send, call.parts.home, whole)


def _request_operator(home: Path, message: Mapping[str, object]) -> dict[str, object]:
    """Returns the reply of the operator that leads. None is started here: its rights in the cluster
    are not this process's."""
    try:
        return send_request(home, message)
    except NotRunning:
        raise Unavailable(
            "no operator leads on this state now, so nothing can be changed",
            hint="`kubectl get pods -n fleetctl`; another replica leads within seconds",
        ) from None


async def _build_response(
    call: ApiCall,
    verb: str,
    reply: Mapping[str, object],
    namespace: str = "",
    *,
    keys: Sequence[str] = (),
    record: bool = True,
) -> Response:
    """Returns the reply as a response, and writes the act into the audit."""
    code = reply.get("code")
    code = 0 if reply.get("ok") else code if isinstance(code, int) else 1
    named = [str(it.get("key")) for it in results_of(reply) if it.get("key")]
    if record:
        await asyncio.to_thread(
            call.parts.access.add_audit,
            call.caller.author,
            verb,
            keys=",".join((named or list(keys))[:KEYS_MAX]),
            namespace=namespace or call.namespace,
            token=call.caller.token,
            address=call.caller.address,
            code=code,
        )
    return JSONResponse({"code": code, **reply}, STATUSES.get(code, 500))


def refusal_response(error: Exception) -> Response:
    """Returns an error of ours as a response."""
    document = error_document(error)
    code = document["code"]
    status = getattr(error, "status", STATUSES.get(code if isinstance(code, int) else 1, 500))
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(document, status, headers=headers)


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
