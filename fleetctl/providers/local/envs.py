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
from fleetctl.providers.local.paths import Layout
from fleetctl.providers.programs import ask
from fleetctl.providers.rundir.builds import BuildLog, link
from fleetctl.providers.rundir.places import make_private
from specs.template import Image

BUILD_S = 840.0  # a step of a build; below the deadline of a start, of which it is a part
LOCK_PAUSE_S = 0.1
DOINGS = ("Using ", "Resolved ", "Prepared ", "Creating ", "Downloading ", "Audited ")


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, and the directories of ours that its runs must be able to read."""

    python: str
    expose: tuple[str, ...] = ()


async def python_of(layout: Layout, image: Image | None, job: Path | None = None) -> Python:
    """The interpreter for an image, built if need be. Raises Refused or Unavailable.

    job: the directory of the resource that asks, from which the log of the build is linked.
    """
    if image is None:
        return _own(layout)
    await system.check(image)
    if image.python is None and not image.pip:
        return _own(layout)
    base = await pythons.find(image.python) if image.python else sys.executable
    return await _environment(layout, image, base, job)


def _own(layout: Layout) -> Python:
    """The interpreter that runs fleetctl; shown to runs also where it lies below our home."""
    prefixes = {sys.prefix, sys.base_prefix}
    hidden = tuple(sorted(one for one in prefixes if is_hidden(layout, one)))
    return Python(sys.executable, hidden)


def is_hidden(layout: Layout, path: str) -> bool:
    """Whether runs in a namespace would not see `path`."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(layout.home) or real.is_relative_to("/tmp")  # noqa: S108


async def _environment(layout: Layout, image: Image, base: str, job: Path | None) -> Python:
    uv = pythons.find_uv()
    facts = [image.python, base, sorted(image.pip), sys.platform, os.uname().machine]
    key = sha256(json.dumps(facts).encode()).hexdigest()[:16]
    directory = make_private(layout.environments) / key
    interpreter = directory / "bin" / "python"
    log = directory.with_suffix(".log")
    if job is not None:
        link(job, log)
    if not interpreter.exists():
        async with _held(layout.environments / f"{key}.lock"):
            if not interpreter.exists():
                await _build(uv, directory, image, base, log)
    expose = [str(directory), *_hidden_base(layout, base)]
    return Python(str(interpreter), tuple(expose))


async def _build(uv: str, directory: Path, image: Image, base: str, log: Path) -> None:
    """Build beside the final place, then rename: an environment that exists is whole."""
    building = directory.with_suffix(f".building-{os.getpid()}")
    await asyncio.to_thread(remove_tree, str(building))
    try:
        with BuildLog(log) as written:
            # Scripts must not name the directory that they were built in.
            await _run(uv, ["venv", "--relocatable", "--python", base, str(building)], written)
            if image.pip:
                python = str(building / "bin" / "python")
                install = ["pip", "install", "--python", python, "--", *image.pip]
                await _run(uv, install, written)
        building.rename(directory)
    finally:
        await asyncio.to_thread(remove_tree, str(building))


async def _run(uv: str, arguments: list[str], log: BuildLog) -> None:
    """One step of a build. Raises Refused with the end of what uv said."""
    environment = {**os.environ, "UV_NO_PROGRESS": "1", "VIRTUAL_ENV": ""}
    log.write(f"=> uv {' '.join(arguments[:2])}\n")
    try:
        answer = await ask([uv, *arguments], deadline_s=BUILD_S, env=environment, log=log.fileno())
    except TimeoutError as error:
        raise Unavailable(
            f"the environment of the image was not built within {BUILD_S:.0f} s",
            hint=f"the log is {log.path}",
        ) from error
    if answer.code:
        raise Refused(
            f"the environment of the image cannot be built: {_one_line(log.tail())}",
            hint=f"the whole log is {log.path}",
        )


def _one_line(tail: str) -> str:
    """uv says a chain of causes, a line each, below what it says of its doings."""
    step = tail.rpartition("=> ")[2].split("\n")[1:]
    lines = (
        line.strip().removeprefix("error: ").removeprefix("cause: ")
        for line in step
        if not line.startswith(DOINGS)
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
