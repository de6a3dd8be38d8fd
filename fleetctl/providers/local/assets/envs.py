"""The Python environment of an image, kept below $FLEETCTL_HOME and shared by all that ask for it.

An image that installs something is built by uv. All else gets a plain environment: the standard
library and nothing else, so that a task finds the same on every machine and never what fleetctl
itself happens to be installed with. Called once a supervisor; nothing is installed anywhere else.
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

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.local.assets import pythons, shelf, system
from fleetctl.providers.local.assets.pythons import Base
from fleetctl.providers.local.paths import Layout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.paths import make_private
from fleetctl.providers.pip_index import options, variables
from fleetctl.providers.programs import ask
from fleetctl.providers.rundir.builds import BuildLog, link
from fleetctl.providers.uv import AWAY, find_uv, one_line
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.values.packages import without_digest

BUILD_S = 840.0  # a step of a build; below the deadline of a start, of which it is a part
LOCK_PAUSE_S = 0.1
# As images of containers have it. Where the controller was started from makes no difference.
_HOMEBREW = "/opt/homebrew/bin:/opt/homebrew/sbin:" if sys.platform == "darwin" else ""
PROGRAMS = f"{_HOMEBREW}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, and the directories of ours that its runs must be able to read."""

    python: str
    expose: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """What its runs find in their environment, whatever the manifest adds."""
        return {"PATH": f"{Path(self.python).parent}:{PROGRAMS}", "LANG": "C.UTF-8"}


async def python_of(layout: Layout, image: Image | None, job: Path | None = None) -> Python:
    """The interpreter for an image, built if need be. Raises Refused or Unavailable.

    job: the directory of the resource that asks, from which the log of the build is linked.
    """
    if image is not None:
        await system.check(image)
    wanted = image.python if image else None
    base = await pythons.find(wanted) if wanted else pythons.ours()
    if image is None or not image.pip:
        return await _plain(layout, base)
    return await _environment(layout, image, base, job)


async def _plain(layout: Layout, base: Base) -> Python:
    """An environment with nothing in it. A few files, which no program is needed for."""
    directory = layout.environments / f"plain-{base.short}-{_key(base.facts)}"
    interpreter = directory / "bin" / "python"
    if not interpreter.exists():
        async with _held(make_private(layout.environments) / f"{directory.name}.lock"):
            if not interpreter.exists():
                building = _building(directory)
                _lay_out(building, base)
                _put(building, directory)
    return _shown(layout, directory, base)


def _lay_out(directory: Path, base: Base) -> None:
    """What `python -m venv --without-pip` makes, in a hundredth of its time."""
    (directory / "bin").mkdir(parents=True)
    (directory / "lib" / f"python{base.short}" / "site-packages").mkdir(parents=True)
    home = Path(base.executable).parent
    text = f"home = {home}\ninclude-system-site-packages = false\nversion = {base.version}\n"
    (directory / "pyvenv.cfg").write_text(text, encoding="utf-8")
    (directory / "bin" / "python").symlink_to(base.executable)
    for name in ("python3", f"python{base.short}"):
        (directory / "bin" / name).symlink_to("python")


def is_hidden(layout: Layout, path: str) -> bool:
    """Whether runs in a namespace would not see `path`."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(layout.home) or real.is_relative_to("/tmp")  # noqa: S108


async def _environment(layout: Layout, image: Image, base: Base, job: Path | None) -> Python:
    uv = find_uv()
    index = options(image.pip_index)
    key = _key([*base.facts, sorted(image.pip), "compiled", *([index] if index else [])])
    directory = make_private(layout.environments) / key
    interpreter = directory / "bin" / "python"
    log = directory.with_suffix(".log")
    if job is not None:
        link(job, log)
    # Noted anew with each use, so that what is used stays; see assets/caches.py.
    if not shelf.use(directory, interpreter):
        async with _held(shelf.lock_of(directory)) as lock:
            if not interpreter.exists():
                await _build(uv, directory, image, base, log)
            os.utime(lock)
    return _shown(layout, directory, base)


def _key(facts: list[object]) -> str:
    return sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _shown(layout: Layout, directory: Path, base: Base) -> Python:
    expose = [str(directory), *_hidden_base(layout, base.executable)]
    return Python(str(directory / "bin" / "python"), tuple(expose))


async def _build(uv: str, directory: Path, image: Image, base: Base, log: Path) -> None:
    """Build beside the final place, then rename: an environment that exists is whole."""
    building = _building(directory)
    await asyncio.to_thread(remove_tree, str(building))
    try:
        with BuildLog(log) as written:
            # Scripts must not name the directory that they were built in.
            venv = ["venv", "--relocatable", "--python", base.executable, str(building)]
            await _run(uv, venv, written)
            # Runs cannot write there, so without bytecode each would compile all that it imports.
            install = ["pip", "install", "--compile-bytecode"]
            install += ["--python", str(building / "bin" / "python"), *options(image.pip_index)]
            install += ["--", *(without_digest(entry) for entry in image.pip)]
            await _run(uv, install, written, **variables(image.pip_index))
        await asyncio.to_thread(_put, building, directory)
    finally:
        await asyncio.to_thread(remove_tree, str(building))


def _building(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.building-{os.getpid()}")


def _put(building: Path, directory: Path) -> None:
    """What is there already has lost the Python that it was made with."""
    remove_tree(str(directory))
    building.rename(directory)


async def _run(uv: str, arguments: list[str], log: BuildLog, **given: str) -> None:
    """One step of a build. given: variables. Raises Refused with the end of what uv said."""
    environment = {**os.environ, "UV_NO_PROGRESS": "1", "VIRTUAL_ENV": "", **given}
    log.write(f"=> uv {' '.join(arguments[:2])}\n")
    try:
        answer = await ask([uv, *arguments], deadline_s=BUILD_S, env=environment, log=log.fileno())
    except TimeoutError as error:
        raise Unavailable(
            f"the environment of the image was not built within {BUILD_S:.0f} s",
            hint=f"the log is {log.path}",
        ) from error
    if answer.code:
        why = one_line("\n".join(log.tail().rpartition("=> ")[2].split("\n")[1:]))
        message = f"the environment of the image cannot be built: {why}"
        hint = f"the whole log is {log.path}"
        if any(words in why for words in AWAY):
            raise Unavailable(message, reason="Unreachable", hint=hint)
        raise Refused(message, hint=hint)


def _hidden_base(layout: Layout, base: str) -> list[str]:
    """The directory of the interpreter behind an environment, where runs would not see it."""
    prefix = str(Path(os.path.realpath(base)).parent.parent)
    return [prefix] if is_hidden(layout, prefix) else []


@asynccontextmanager
async def _held(path: Path) -> AsyncIterator[Path]:
    """Hold a lock file, also against other processes, without blocking the event loop."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_PAUSE_S)
        yield path
    finally:
        os.close(handle)
