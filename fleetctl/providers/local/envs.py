"""The Python of an image: the one that runs fleetctl, or an environment built by uv for the image's
content.

Called once a keeper. Nothing is ever installed outside of $FLEETCTL_HOME.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleetctl.errors import Refused, Unavailable
from fleetctl.providers.local import pythons, system
from fleetctl.providers.local.keeper.cleaning import remove_tree
from fleetctl.providers.local.paths import Layout, make_private
from fleetctl.providers.local.programs import ask
from specs.template import Image

BUILD_S = 840.0  # a step of a build; below the deadline of a start, of which it is a part
LOG_TAIL_BYTES = 2000  # of a failed build; the whole log stays beside the environment
LOCK_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, and the directories of ours that its runs must be able to read."""

    python: str
    expose: tuple[str, ...] = ()


async def python_of(layout: Layout, image: Image | None) -> Python:
    """The interpreter for an image, built if need be. Raises Refused or Unavailable."""
    if image is None:
        return _own(layout)
    await system.check(image)
    if image.python is None and not image.pip:
        return _own(layout)
    base = await pythons.find(image.python) if image.python else sys.executable
    return await _environment(layout, image, base)


def _own(layout: Layout) -> Python:
    """The interpreter that runs fleetctl; shown to runs also where it lies below our home."""
    prefixes = {sys.prefix, sys.base_prefix}
    hidden = tuple(sorted(one for one in prefixes if is_hidden(layout, one)))
    return Python(sys.executable, hidden)


def is_hidden(layout: Layout, path: str) -> bool:
    """Whether runs in a namespace would not see `path`."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(layout.home) or real.is_relative_to("/tmp")  # noqa: S108


async def _environment(layout: Layout, image: Image, base: str) -> Python:
    uv = pythons.find_uv()
    facts = [image.python, base, sorted(image.pip), sys.platform, os.uname().machine]
    key = sha256(json.dumps(facts).encode()).hexdigest()[:16]
    directory = make_private(layout.environments) / key
    interpreter = directory / "bin" / "python"
    if not interpreter.exists():
        async with _held(layout.environments / f"{key}.lock"):
            if not interpreter.exists():
                await _build(uv, directory, image, base)
    expose = [str(directory), *_hidden_base(layout, base)]
    return Python(str(interpreter), tuple(expose))


async def _build(uv: str, directory: Path, image: Image, base: str) -> None:
    """Build beside the final place, then rename: an environment that exists is whole."""
    building = directory.with_suffix(f".building-{os.getpid()}")
    await asyncio.to_thread(remove_tree, str(building))
    log = directory.with_suffix(".log")
    log.write_bytes(b"")
    try:
        # Scripts must not name the directory that they were built in.
        await _run(uv, ["venv", "--relocatable", "--python", base, str(building)], log)
        if image.pip:
            python = str(building / "bin" / "python")
            await _run(uv, ["pip", "install", "--python", python, "--", *image.pip], log)
        building.rename(directory)
    finally:
        await asyncio.to_thread(remove_tree, str(building))


async def _run(uv: str, arguments: list[str], log: Path) -> None:
    """One step of a build. Raises Refused with the end of what uv said."""
    with log.open("ab") as output:
        environment = {**os.environ, "UV_NO_PROGRESS": "1", "VIRTUAL_ENV": ""}
        try:
            answer = await ask(
                [uv, "--quiet", *arguments],
                deadline_s=BUILD_S,
                env=environment,
                log=output.fileno(),
            )
        except TimeoutError as error:
            raise Unavailable(
                f"the environment of the image was not built within {BUILD_S:.0f} s",
                hint=f"the log is {log}",
            ) from error
    if answer.code:
        tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        raise Refused(
            f"the environment of the image cannot be built: {_one_line(tail)}",
            hint=f"the whole log is {log}",
        )


def _one_line(tail: str) -> str:
    """uv says a chain of causes, a line each."""
    lines = (
        line.strip().removeprefix("error: ").removeprefix("cause: ") for line in tail.split("\n")
    )
    return "; ".join(line.rstrip(".") for line in lines if line)


def _hidden_base(layout: Layout, base: str) -> list[str]:
    """The directory of the interpreter behind an environment, where runs would not see it."""
    prefix = str(Path(os.path.realpath(base)).parent.parent)
    return [prefix] if is_hidden(layout, prefix) else []


@asynccontextmanager
async def _held(path: Path) -> AsyncIterator[None]:
    """Hold a lock file, also against other processes, without blocking the event loop."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_PAUSE_S)
        yield
    finally:
        os.close(handle)
