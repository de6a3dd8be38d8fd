"""One request to a sandbox's toolbox, and what the toolbox keeps between requests.

`handled` makes an aiohttp handler of a function that takes a Call: it turns the failures of
errors.py into answers. What a sandbox's toolbox keeps dies with its box, as the real daemon does:
sessions, terminals and interpreters are gone after a stop, and streams end without a closing frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.emulators.boxes import Box, BoxError, BoxProcess

from ..asking import SANDBOX
from ..state import HOME, Sandbox, World
from .bodies import Body
from .errors import ToolboxError, bad_request, of_os_error, reply
from .places import absolute, host_path

if TYPE_CHECKING:
    from .computer import Desktop
    from .contexts import Context
    from .sessions import Session
    from .terminals import Terminal

SHELLS = ("zsh", "bash", "sh")  # the first that the image has, as the daemon looks for them


@dataclass(slots=True)
class Toolbox:
    """The daemon of one sandbox."""

    box: Box
    home: str
    cwd: str
    shell: str
    sessions: dict[str, Session] = field(default_factory=dict)
    terminals: dict[str, Terminal] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)
    opening: set[str] = field(default_factory=set)  # ids of sessions whose shell is on its way
    desktop: Desktop | None = None
    streams: set[asyncio.Transport] = field(default_factory=set)

    def path(self, path: str) -> str:
        return absolute(path, cwd=self.cwd)

    def host(self, path: str, *, follow_last: bool = True) -> Path:
        return host_path(self.box, self.path(path), follow_last=follow_last)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        **descriptors: Any,
    ) -> BoxProcess:
        try:
            return await self.box.spawn(
                argv, cwd=self.path(cwd or self.cwd), env=env, **descriptors
            )
        except BoxError as error:
            reason = (error.strerror or str(error)).lower()
            where = f" {error.filename}" if error.filename else ""
            raise bad_request(f"fork/exec {argv[0]}: {reason}{where}") from error

    async def watch(self) -> None:
        """When the box dies, what is connected to it loses its connection: nobody says goodbye."""
        await self.box.ended()
        for stream in tuple(self.streams):
            stream.abort()
        for table in (self.sessions, self.terminals, self.contexts):
            for kept in table.values():
                kept.close()


@dataclass(slots=True)
class Call:
    world: World
    sandbox: Sandbox
    toolbox: Toolbox
    request: web.Request

    async def body(self, kind: str = "", *needed: str) -> Body:
        """`kind` is the daemon's name of it, `needed` its required fields."""
        # Not request.read(): the size of a command or a piece of code is not the server's to limit.
        body = Body(await self.request.content.read(), kind=kind)
        body.need(*needed)
        return body

    def query(self, name: str) -> str:
        value = self.request.query.get(name, "")
        if not value:
            raise bad_request(f"{name} is required")
        return value

    def variable(self, name: str) -> str:
        return self.request.match_info[name]


Function = Callable[[Call], Awaitable[web.StreamResponse]]
Route = tuple[str, str, Function]


def handled(world: World, function: Function) -> Callable[[web.Request], Awaitable[Any]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        sandbox = request[SANDBOX]
        transport = request.transport
        toolbox = toolbox_of(sandbox)
        if transport is not None:  # it is when the client is gone already
            toolbox.streams.add(transport)
        try:
            if any("\0" in value for value in request.query.values()):
                raise bad_request("a query holds a NUL")
            return await function(Call(world, sandbox, toolbox, request))
        except ConnectionError:
            raise  # of the client's connection: there is nobody to answer
        except (ToolboxError, OSError) as error:
            failure = of_os_error(error) if isinstance(error, OSError) else error
            body = failure.body(method=request.method, path=request.path)
            return reply(body, status=failure.status)
        finally:
            if transport is not None:
                toolbox.streams.discard(transport)

    return handle


def toolbox_of(sandbox: Sandbox) -> Toolbox:
    """Of the box that runs now; made when the box is first used."""
    box = sandbox.box
    assert box is not None, "the server answers for a sandbox that is not started"
    found = sandbox.toolbox.get("daemon")
    if isinstance(found, Toolbox) and found.box is box:
        return found
    home = box.env["HOME"] = sandbox.environment().get("HOME", HOME)
    box.env.setdefault("USER", sandbox.user)
    cwd = sandbox.image.workdir or HOME
    for directory in {home, cwd}:
        os.makedirs(host_path(box, directory), exist_ok=True)
    made = Toolbox(box, home, cwd, _shell(box))
    sandbox.toolbox["daemon"] = made
    sandbox.toolbox["watch"] = asyncio.ensure_future(made.watch())
    return made


def _shell(box: Box) -> str:
    for name in SHELLS:
        for directory in ("/usr/bin", "/bin"):
            path = f"{directory}/{name}"
            # Most that are not there can be told without a look at each part of the path.
            near = os.path.lexists(path) or os.path.lexists(box.host_text(path))
            if near and host_path(box, path).exists():
                return path
    return "/bin/sh"


def end_tree(pid: int) -> None:
    """SIGKILL for a process of the host and all that came from it, also in other groups."""
    if pid <= 0:
        return  # it was reaped before anyone asked for its number; -1 would be everybody
    children = _children(pid)
    # The parent first: a shell that lives would tell of its child's death on its standard error.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for child in children:
        end_tree(child)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]
