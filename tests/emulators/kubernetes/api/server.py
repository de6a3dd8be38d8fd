"""The HTTP side: who asks, whether they may, which fault meets them, and what answers."""

from __future__ import annotations

import asyncio
import gzip
import sys
import traceback
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.emulators.kubernetes.access import reviews
from tests.emulators.kubernetes.access.rbac import Rbac, Wish
from tests.emulators.kubernetes.access.users import Users
from tests.emulators.kubernetes.api import call as calls
from tests.emulators.kubernetes.api import discovery, openapi
from tests.emulators.kubernetes.api.call import Call, User
from tests.emulators.kubernetes.api.faulty import PAGE, Cut, Fault, Faults, error_of
from tests.emulators.kubernetes.api.reading import Watch, listed
from tests.emulators.kubernetes.api.verbs import Verbs
from tests.emulators.kubernetes.api.writes.bodies import BODY_BYTES_MAX, checked, parsed
from tests.emulators.kubernetes.store.errors import ApiError, no_such_path
from tests.emulators.kubernetes.store.objects import Store, dumps
from tests.emulators.kubernetes.store.resources import Key, Resources

GZIP_BYTES_MIN = 128 * 1024  # as the real server does
JSON = "application/json"
Streaming = Callable[[web.BaseRequest, Call], Awaitable[web.StreamResponse]]
Below = Callable[[Call], tuple[int, bytes]]


class ApiServer:
    """streaming and below: what answers subresources, by resource and name; "*" is any."""

    def __init__(
        self,
        *,
        store: Store,
        resources: Resources,
        verbs: Verbs,
        users: Users,
        rbac: Rbac,
        faults: Faults,
    ) -> None:
        self._store, self._resources, self._verbs = store, resources, verbs
        self._users, self._rbac, self.faults = users, rbac, faults
        self.streaming: dict[tuple[Key, str], Streaming] = {}
        self.below: dict[tuple[Key | str, str], Below] = {}
        self.watches: dict[int, tuple[Call, Watch, Cut]] = {}
        self.streams: dict[int, tuple[Call, web.BaseRequest]] = {}
        self.requests: dict[str, int] = {}  # by "verb resource"
        self.away = False  # connections are cut, as while the server is down

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.away:
            return self._severed(request)
        call = Call(request.method, request.path, {}, {}, ())
        try:
            call = calls.read(
                request.method, request.path, request.query, request.headers, self._resources
            )
            return await self._answered(request, call)
        except ApiError as error:
            return self._reply(request, call, error.code, dumps(error.status()), error)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {BODY_BYTES_MAX}"
            body = {**ApiError(413, message).status(), "reason": "RequestEntityTooLarge"}
            return self._reply(request, call, 413, dumps(body))
        except ConnectionError:
            raise
        except Exception as error:  # a mistake of the emulator's: tests show its traceback
            traceback.print_exc(file=sys.stderr)
            failed = ApiError(500, f"Internal error occurred: {error!r}")
            return self._reply(request, call, 500, dumps(failed.status()))

    async def _answered(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        call.user = self._impersonated(call, self._users.of_headers(request.headers))
        counted = f"{call.verb} {call.plural or call.path}"
        if call.subresource:
            counted += f"/{call.subresource}"
        self.requests[counted] = self.requests.get(counted, 0) + 1
        faults = self.faults.of(call)
        for fault in faults:
            if fault.slow_s:
                await asyncio.sleep(fault.slow_s)
            if fault.page:
                return web.Response(status=fault.code, text=PAGE, content_type="text/html")
            if fault.code and not (fault.code == 410 and call.verb == "watch"):
                raise error_of(fault, call)
        self._authorize(call)
        if call.method in ("POST", "PUT", "PATCH", "DELETE") and not self._streams(call):
            call.body = await request.read()
        if call.resource is None:
            if call.plural:
                raise no_such_path()
            return self._plain(request, call)
        if self._streams(call):
            self.streams[id(request)] = call, request
            try:
                return await self.streaming[call.found().key, call.subresource](request, call)
            finally:
                del self.streams[id(request)]
        if call.verb == "watch":
            return await self._watched(request, call, faults)
        code, body = self._done(call, faults)
        if any(it.lost for it in faults):
            return self._severed(request)
        return self._reply(request, call, code, body)

    def _streams(self, call: Call) -> bool:
        return call.resource is not None and (call.resource.key, call.subresource) in self.streaming

    def _done(self, call: Call, faults: list[Fault]) -> tuple[int, bytes]:
        resource = call.found()
        if resource.group in reviews.GROUPS:
            node = self._verbs.schema(call)
            body = checked(call, parsed(call), node, resource=resource)
            told = reviews.answered(call, body, rbac=self._rbac, users=self._users)
            return 201, dumps(told)
        if call.subresource and call.subresource != "status":
            below = self.below.get((resource.key, call.subresource)) or self.below.get(
                ("*", call.subresource)
            )
            if below is None:
                raise no_such_path()
            return below(call)
        if call.subresource and "status" not in discovery.subresources_of(resource, call.version):
            raise no_such_path()
        if call.verb == "list":
            back = max((it.stale for it in faults), default=0)
            stale = self._store.past(resource.key, back) if back else None
            return 200, listed(call, self._store, stale_rv=stale)
        if call.verb == "create" and call.name and not call.subresource:
            raise ApiError(405, "the server does not allow this method on the requested resource")
        verb = getattr(self._verbs, call.verb, None)
        if verb is None or (call.verb in ("update", "patch", "delete") and not call.name):
            raise ApiError(405, "the server does not allow this method on the requested resource")
        answer: tuple[int, bytes] = verb(call)
        return answer

    async def _watched(
        self, request: web.BaseRequest, call: Call, faults: list[Fault]
    ) -> web.StreamResponse:
        watch, cut = Watch(call, self._store), Cut()
        loop = asyncio.get_running_loop()
        for fault in faults:
            if fault.cut_s is not None:
                cut.at_s = loop.time() + fault.cut_s
                loop.call_later(fault.cut_s + 0.001, watch.nudge)
            if fault.code == 410:
                watch.expire()
        self.watches[id(watch)] = call, watch, cut
        try:
            return await watch.serve(request, cut)
        finally:
            del self.watches[id(watch)]

    def cut_watches(self, plural: str = "*") -> int:
        """End streams in the middle; says how many."""
        found = [it for it in self.watches.values() if plural in ("*", it[0].plural)]
        for _call, watch, cut in found:
            cut.done = True
            watch.nudge()
        return len(found)

    def cut_streams(self, name: str) -> int:
        """End commands' streams of a pod without a goodbye; says how many."""
        found = [request for call, request in self.streams.values() if call.name == name]
        for request in found:
            if request.transport is not None:
                request.transport.abort()
        return len(found)

    def _impersonated(self, call: Call, user: User) -> User:
        name = call.headers.get("Impersonate-User")
        if not name:
            return user
        if not self._rbac.allows(user, Wish("impersonate", "", "users", name=name)):
            raise self._rbac.refusal(user, Wish("impersonate", "", "users", name=name))
        getall = getattr(call.headers, "getall", None)
        groups = tuple(getall("Impersonate-Group", ())) if getall else ()
        return User(name, (*groups, "system:authenticated"))

    def _authorize(self, call: Call) -> None:
        if call.plural:
            # What is called namespaces/x is asked for at the namespace x.
            wish = Wish(
                call.verb,
                call.group,
                call.plural,
                call.subresource,
                call.namespace,
                call.name,
            )
        else:
            wish = Wish(call.method.lower(), path=call.path)
        if not self._rbac.allows(call.user, wish):
            raise self._rbac.refusal(call.user, wish)

    def _plain(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        top = call.parts[0] if call.parts else ""
        if top in ("healthz", "livez", "readyz"):
            return web.Response(text="ok")
        if top == "version":
            return self._reply(request, call, 200, dumps(discovery.VERSION))
        if top in ("api", "apis"):
            body, kind = discovery.answer(call, self._resources)
            return self._reply(request, call, 200, dumps(body), kind=kind)
        if top == "openapi":
            code, found, kind = openapi.answer(call, self._resources)
            return self._reply(request, call, code, found, kind=kind)
        raise no_such_path()

    def _reply(
        self,
        request: web.BaseRequest,
        call: Call,
        code: int,
        body: bytes,
        error: ApiError | None = None,
        *,
        kind: str = JSON,
    ) -> web.StreamResponse:
        response = web.Response(status=code, body=body)
        headers: Any = response.headers
        headers["Content-Type"] = kind
        headers["Audit-Id"] = str(uuid.uuid4())
        headers["Cache-Control"] = "no-cache, private"
        for warning in dict.fromkeys(call.warnings):
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            headers.add("Warning", f'299 - "{text}"')
        if error is not None and error.retry_after_s:
            headers["Retry-After"] = str(error.retry_after_s)
        if len(body) > GZIP_BYTES_MIN and "gzip" in request.headers.get("Accept-Encoding", ""):
            response.body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
            headers["Vary"] = "Accept-Encoding"
        return response

    def _severed(self, request: web.BaseRequest) -> web.StreamResponse:
        """No answer: the connection ends."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)


def request_factory(handler: Any, loop: asyncio.AbstractEventLoop) -> Any:
    """Requests whose bodies may be as large as the real server lets them."""

    def make(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES_MAX
        )

    return make
