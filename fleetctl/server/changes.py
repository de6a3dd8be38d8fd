"""Passes changes on to the controller, with the name and the role of who sends them, and writes
each into the audit. Called by the routes.

The controller decides; its reply is the answer, refusals and findings included, with the exit code
that the same verb has on the command line.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from fleetctl.common.errors import UsageError
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.daemon.client.spawn import request_or_start
from fleetctl.providers.sources.upload_store import UploadStore
from fleetctl.server.callers import ADMIN, EDITOR, HttpError
from fleetctl.server.guard import error_document
from fleetctl.server.route_table import ApiCall
from fleetctl.specs.values.namespaces import split_key
from fleetctl.views.kinds import Target, kind_of, target_of, target_with
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
    namespace = own_namespace(call, body)
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


async def plan_manifests(call: ApiCall) -> Response | Mapping[str, object]:
    """Shows what an apply would do, where and at what cost; changes nothing."""
    body = await read_body(call)
    namespace = own_namespace(call, body)
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


def own_namespace(call: ApiCall, body: Mapping[str, Any]) -> str:
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


def keys_of(call: ApiCall, body: Mapping[str, Any]) -> list[str]:
    """Returns the keys of a request, with their namespaces. Raises UsageError and HttpError."""
    found = body.get("keys")
    if not isinstance(found, list) or not found or len(found) > KEYS_MAX:
        raise UsageError(
            f"the body needs `keys`, a list of 1 to {KEYS_MAX} names such as `batchjob/chunks`",
            hint='{"namespace": "team", "keys": ["batchjob/chunks", "sweep/lr"]}',
        )
    default = str(body.get("namespace") or "") or call.namespace
    targets = [_target_named(str(text), default) for text in found]
    for one in targets:
        call.caller.require_kind(one.kind, EDITOR, one.namespace)
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
    from fleetctl.apply.deletion_losses import deletion_losses

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
    whole = dict(message) if ours else {**message, "actor": actor}
    with call.parts.metrics.time_request(str(message["verb"])):
        return await asyncio.to_thread(request_or_start, call.parts.home, whole)


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
            call.caller.user,
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
