"""Faults of the API server, set from outside by a test; see control/admin for how."""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.store.errors import ApiError

MESSAGES = {
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: etcdserver: request timed out",
    503: "the server is currently unable to handle the request",
    504: "Timeout: request did not complete within requested timeout - context deadline exceeded",
    410: "The resourceVersion for the provided watch is too old.",
    409: "Operation cannot be fulfilled on {what}: the object has been modified; please apply your"
    " changes to the latest version and try again",
}


@dataclass(slots=True)
class Fault:
    """What meets requests of a verb and a resource, `count` times from the `after`th on.

    verb, resource, name, user: patterns (fnmatch); resource: plural, or plural/subresource.
    code: the answer, before anything is done; 0 leaves it. lost: done, but the connection is cut
    instead of answered. slow_s: before it is done. cut: of a watch, after so many seconds. stale:
    lists with resourceVersion=0 come from so many changes ago. page: the answer is that of a proxy
    before the server. seen counts what met it.
    """

    verb: str = "*"
    resource: str = "*"
    name: str = "*"
    user: str = "*"
    code: int = 0
    retry_after_s: int = 0
    message: str = ""
    lost: bool = False
    slow_s: float = 0.0
    cut_s: float | None = None
    stale: int = 0
    page: bool = False
    count: int = 1
    after: int = 0
    id: int = 0
    seen: int = 0
    met: int = field(default=0)

    def takes(self, call: Call) -> bool:
        what = call.plural + (f"/{call.subresource}" if call.subresource else "")
        if call.resource is None or not (
            fnmatch.fnmatchcase(call.verb, self.verb)
            and fnmatch.fnmatchcase(what, self.resource)
            and fnmatch.fnmatchcase(call.name, self.name)
            and fnmatch.fnmatchcase(call.user.name, self.user)
        ):
            return False
        self.seen += 1
        if self.seen <= self.after or self.met >= self.count:
            return False
        self.met += 1
        return True


@dataclass(slots=True)
class Cut:
    """When a stream ends in the middle. Time is the loop's."""

    at_s: float | None = None
    done: bool = False

    def now(self) -> bool:
        if self.at_s is not None and asyncio.get_running_loop().time() >= self.at_s:
            self.done = True
        return self.done

    def sever(self, request: web.BaseRequest) -> None:
        if request.transport is not None:
            request.transport.abort()


class Faults:
    """Those in force, the oldest first; one request meets each that takes it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.all: list[Fault] = []

    def add(self, **told: Any) -> Fault:
        fault = Fault(**told, id=next(self._numbers))
        self.all.append(fault)
        return fault

    def remove(self, number: int | None) -> None:
        self.all = [it for it in self.all if number is not None and it.id != number]

    def of(self, call: Call) -> list[Fault]:
        return [it for it in self.all if it.takes(call)]

    def told(self) -> list[dict[str, Any]]:
        return [asdict(it) for it in self.all]


PAGE = "<!DOCTYPE html><html><head><title>not found</title></head><body>nginx</body></html>"


def error_of(fault: Fault, call: Call) -> ApiError:
    message = fault.message or MESSAGES.get(fault.code, "an error on the server")
    what = f'{call.plural}{"." + call.group if call.group else ""} "{call.name}"'
    retry = fault.retry_after_s or (1 if fault.code == 429 else 0)
    return ApiError(fault.code, message.format(what=what), retry_after_s=retry)
