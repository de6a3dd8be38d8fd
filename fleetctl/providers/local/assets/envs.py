"""The Python environment of an image, kept below $FLEETCTL_HOME and shared by all images with the
same requirements.

An image that installs packages is built by uv. Any other image gets a plain environment with the
standard library alone, so that a task finds the same on every machine and never the packages that
fleetctl itself happens to be installed with. Called once a supervisor; nothing is installed
anywhere else.
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
from fleetctl.providers.local.assets import local_caches, pythons
from fleetctl.providers.local.assets.pythons import BasePython
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.local.supervisor.run.cleaning import remove_tree
from fleetctl.providers.paths import make_private
from fleetctl.providers.programs import run_program
from fleetctl.providers.rundir.build_logs import BuildLog, link_log
from fleetctl.providers.uv import AWAY, find_uv, index_options, index_variables, one_line
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.values.packages import without_digest

BUILD_S = 840.0  # a step of a build; below the deadline of a start, of which it is a part
LOCK_PAUSE_S = 0.1
# As images of containers have it. Where the controller was started from makes no difference.
_HOMEBREW = "/opt/homebrew/bin:/opt/homebrew/sbin:" if sys.platform == "darwin" else ""
PROGRAMS = f"{_HOMEBREW}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class EnvPython:
    """An interpreter, and the directories of ours that its runs must be able to read."""

    python: str
    expose: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """The variables of its runs, whatever the manifest adds."""
        return {"PATH": f"{Path(self.python).parent}:{PROGRAMS}", "LANG": "C.UTF-8"}


async def python_of(
    layout: LocalLayout,
    image: Image | None,
    job: Path | None = None,
) -> EnvPython:
    """The interpreter for an image, built if need be. Raises Refused or Unavailable.

    job: the directory of the resource that asks, from which the log of the build is linked.
    """
    if image is not None:
        await pythons.check_image(image)
    wanted = image.python if image else None
    base = await pythons.find_python(wanted) if wanted else pythons.own_python()
    if image is None or not image.pip:
        return await _make_plain(layout, base)
    return await _make_environment(layout, image, base, job)


async def _make_plain(layout: LocalLayout, base: BasePython) -> EnvPython:
    """Makes an empty environment. A few files, for which no program is needed."""
    directory = layout.environments / f"plain-{base.short}-{_env_key(base.facts)}"
    interpreter = directory / "bin" / "python"
    if not interpreter.exists():
        async with _lock_file(make_private(layout.environments) / f"{directory.name}.lock"):
            if not interpreter.exists():
                building = _building_path(directory)
                _lay_out(building, base)
                _put_env(building, directory)
    return _expose_env(layout, directory, base)


def _lay_out(directory: Path, base: BasePython) -> None:
    """Makes the same as `python -m venv --without-pip`, in a hundredth of its time."""
    (directory / "bin").mkdir(parents=True)
    (directory / "lib" / f"python{base.short}" / "site-packages").mkdir(parents=True)
    home = Path(base.executable).parent
    text = f"home = {home}\ninclude-system-site-packages = false\nversion = {base.version}\n"
    (directory / "pyvenv.cfg").write_text(text, encoding="utf-8")
    (directory / "bin" / "python").symlink_to(base.executable)
    for name in ("python3", f"python{base.short}"):
        (directory / "bin" / name).symlink_to("python")


def is_hidden(layout: LocalLayout, path: str) -> bool:
    """Returns whether runs in a namespace would not see `path`."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(layout.home) or real.is_relative_to("/tmp")  # noqa: S108


async def _make_environment(
    layout: LocalLayout,
    image: Image,
    base: BasePython,
    job: Path | None,
) -> EnvPython:
    uv = find_uv()
    index = index_options(image.pip_index)
    key = _env_key([*base.facts, sorted(image.pip), "compiled", *([index] if index else [])])
    directory = make_private(layout.environments) / key
    interpreter = directory / "bin" / "python"
    log = directory.with_suffix(".log")
    if job is not None:
        link_log(job, log)
    # Noted again with each use, so that used environments stay; see assets/local_caches.py.
    if not local_caches.mark_used(directory, interpreter):
        async with _lock_file(local_caches.lock_of(directory)) as lock:
            if not interpreter.exists():
                await _build_env(
                    uv,
                    directory,
                    image,
                    base,
                    log,
                )
            os.utime(lock)
    return _expose_env(layout, directory, base)


def _env_key(facts: list[object]) -> str:
    return sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _expose_env(
    layout: LocalLayout,
    directory: Path,
    base: BasePython,
) -> EnvPython:
    expose = [str(directory), *_hidden_base(layout, base.executable)]
    return EnvPython(str(directory / "bin" / "python"), tuple(expose))


async def _build_env(
    uv: str,
    directory: Path,
    image: Image,
    base: BasePython,
    log: Path,
) -> None:
    """Builds beside the final path, then renames: an environment that exists is whole."""
    building = _building_path(directory)
    await asyncio.to_thread(remove_tree, str(building))
    try:
        with BuildLog(log) as written:
            # Scripts must not name the directory that they were built in.
            venv = ["venv", "--relocatable", "--python", base.executable, str(building)]
            await _run_uv(uv, venv, written)
            # Runs cannot write there, so without bytecode each would compile all that it imports.
            install = ["pip", "install", "--compile-bytecode"]
            install += [
                "--python",
                str(building / "bin" / "python"),
                *index_options(image.pip_index),
            ]
            install += ["--", *(without_digest(entry) for entry in image.pip)]
            await _run_uv(uv, install, written, **index_variables(image.pip_index))
        await asyncio.to_thread(_put_env, building, directory)
    finally:
        await asyncio.to_thread(remove_tree, str(building))


def _building_path(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.building-{os.getpid()}")


def _put_env(building: Path, directory: Path) -> None:
    """Puts an environment at its path: one that is there already has lost the Python that it was
    made with.
    """
    remove_tree(str(directory))
    building.rename(directory)


async def _run_uv(
    uv: str,
    arguments: list[str],
    log: BuildLog,
    **given: str,
) -> None:
    """Runs one step of a build. given: variables. Raises Refused with the end of uv's output."""
    environment = {**os.environ, "UV_NO_PROGRESS": "1", "VIRTUAL_ENV": "", **given}
    log.write(f"=> uv {' '.join(arguments[:2])}\n")
    try:
        answer = await run_program(
            [uv, *arguments],
            deadline_s=BUILD_S,
            env=environment,
            log=log.fileno(),
        )
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


def _hidden_base(layout: LocalLayout, base: str) -> list[str]:
    """The directory of the interpreter behind an environment, where runs would not see it."""
    prefix = str(Path(os.path.realpath(base)).parent.parent)
    if is_hidden(layout, prefix):
        return [prefix]
    return []


@asynccontextmanager
async def _lock_file(path: Path) -> AsyncIterator[Path]:
    """Holds a lock file, also against other processes, without blocking the event loop."""
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
