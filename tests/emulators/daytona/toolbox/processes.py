"""Commands and code that run to their end within one request."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web

from .calls import Call, Route, Toolbox, end_tree
from .charts import RUNNER, split_charts
from .errors import ToolboxError, bad_request, reply
from .pipes import Reader
from .shells import plain
from .typescript import compiled, node_strips_types

CODE_DIRECTORY = "/tmp"
NOT_STARTED = 400
# Language -> (suffix of the file, the words before its name).
LANGUAGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "python": (".py", ("python3", "-u")),
    "javascript": (".js", ("node",)),
    "typescript": (".ts", ("node", "--experimental-strip-types", "--no-warnings")),
}


@dataclass(frozen=True, slots=True)
class Order:
    argv: Sequence[str]
    cwd: str = ""
    env: Mapping[str, str] | None = None
    timeout_s: float | None = None
    drops_out: bool = False
    drops_err: bool = False


async def execute(call: Call) -> web.Response:
    body = await call.body("ExecuteRequest", "command")
    order = Order(
        (call.toolbox.shell, "-c", body.text("command")),
        cwd=body.text("cwd"),
        env=body.mapping("envs"),
        timeout_s=body.number("timeout") or None,
    )
    code, output = await _by_itself(call.toolbox, order) or await captured(call.toolbox, order)
    return reply({"exitCode": code, "result": output.decode(errors="replace")})


async def _by_itself(toolbox: Toolbox, order: Order) -> tuple[int, bytes] | None:
    """What the command gives without its shell, which would only become the program; None when it
    needs one, be it to say that there is no such program.
    """
    cwd, env = toolbox.path(order.cwd or toolbox.cwd), {**toolbox.box.env, **(order.env or {})}
    found = plain(order.argv[-1], shell=toolbox.shell, cwd=cwd, env=env)
    if found is None:
        return None
    same = replace(
        order,
        argv=found.argv,
        env={**(order.env or {}), **found.env},
        drops_out=found.drops_out,
        drops_err=found.drops_err,
    )
    try:
        return await captured(toolbox, same)
    except ToolboxError as error:
        if error.status != NOT_STARTED:
            raise
        return None


async def code_run(call: Call) -> web.Response:
    body = await call.body("CodeRunRequest", "code", "language")
    language = body.text("language")
    if language not in LANGUAGES:
        raise bad_request(f"unsupported language: {language}")
    suffix, words = LANGUAGES[language]
    code = body.text("code")
    if language == "typescript" and not node_strips_types():
        suffix, words = LANGUAGES["javascript"]
        code = await compiled(code, call.world.directory)
    drawing = language == "python" and "matplotlib" in code
    before = CodeFile(call.toolbox, ".py", RUNNER if drawing else "")
    with CodeFile(call.toolbox, suffix, code) as path, before as runner:
        argv = (*words, *((runner,) if drawing else ()), path, *body.texts("argv"))
        order = Order(argv, env=body.mapping("envs"), timeout_s=body.number("timeout") or None)
        exit_code, output = await captured(call.toolbox, order)
    text, charts = split_charts(output.decode(errors="replace"))
    return reply({"exitCode": exit_code, "result": text, "artifacts": {"charts": charts}})


async def captured(toolbox: Toolbox, order: Order) -> tuple[int, bytes]:
    """Exit code, and both streams in the order in which they were written.

    Waits for the end of the output, not of the process: a child left behind that keeps the output
    open keeps the request open too. Raises ToolboxError 408 at the timeout."""
    output = bytearray()
    ours, theirs = os.pipe()
    reader = Reader(ours, output.extend)
    try:
        process = await toolbox.spawn(
            order.argv,
            cwd=order.cwd,
            env=order.env,
            stdout=None if order.drops_out else theirs,
            stderr=None if order.drops_err else theirs,
        )
    except ToolboxError:
        reader.close()
        raise
    finally:
        os.close(theirs)
    try:
        async with asyncio.timeout(order.timeout_s):
            await reader.ended.wait()
            code = await process.wait()
    except TimeoutError:
        end_tree(process.pid)
        text = "command execution timeout"
        raise ToolboxError(408, text, code="PROCESS_EXECUTION_TIMEOUT") from None
    finally:
        reader.close()
    return shell_code(code), bytes(output)


def shell_code(code: int) -> int:
    """A process that died of a signal, in the manner of shells: 128 and the signal's number."""
    return code if code >= 0 else 128 - code


class CodeFile:
    """Text as a file of the box while a `with` lasts; the value is its path in the box."""

    def __init__(self, toolbox: Toolbox, suffix: str, text: str) -> None:
        self._path = f"{CODE_DIRECTORY}/daytona_{secrets.token_hex(6)}{suffix}"
        self._host: Path = toolbox.host(self._path)
        self._text = text

    def __enter__(self) -> str:
        self._host.write_text(self._text)
        return self._path

    def __exit__(self, *_: object) -> None:
        self._host.unlink(missing_ok=True)


ROUTES: list[Route] = [
    ("POST", "/process/execute", execute),
    ("POST", "/process/code-run", code_run),
]
