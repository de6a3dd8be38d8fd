"""Carrying a Dockerfile out: pip packages into a virtual environment, RUN lines in a box.

The base image is this machine whatever FROM says, and packages of a distribution are not installed.
Everything else is real: files are copied, commands run and may fail, the log is their output.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fnmatch
import glob
import hashlib
import os
import posixpath
import shlex
import shutil
import string
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.emulators.boxes import Box, BoxError, base_path

from .dockerfile import Instruction, Malformed, assignments, command, parse, steps, words
from .state import ORGANIZATION_ID, Build, Image, World

LOG_TAIL_CHARACTERS = 1000
CHUNK_BYTES = 1 << 16


class BuildFailed(Exception):
    """The message is the reason that callers are told."""


async def make(world: World, build: Build) -> Image:
    try:
        instructions = parse(build.dockerfile)
    except Malformed as malformed:
        raise BuildFailed(str(malformed)) from malformed
    digest = hashlib.sha256(build.reference.encode()).hexdigest()[:16]
    place = world.directory / "images" / digest
    await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    venv = _venv_place(world, build, instructions)
    # Two builds at once may want the same environment.
    async with world.environments.setdefault(venv, asyncio.Lock()) if venv else asyncio.Lock():
        return await _carry_out(_Builder(world, build, place, venv), instructions)


async def _carry_out(builder: _Builder, instructions: list[Instruction]) -> Image:
    try:
        await builder.prepare()
        for number, one in enumerate(instructions, start=1):
            await builder.carry_out(one, step=f"{number}/{len(instructions)}")
    finally:
        await builder.close()
    return builder.image


def _venv_place(world: World, build: Build, instructions: list[Instruction]) -> Path | None:
    """One environment for all images with the same pip lines, and none for those without."""
    lines = [
        step.text
        for one in instructions
        if one.word == "RUN"
        for step in steps(one.rest)
        if step.kind == "pip"
    ]
    if not lines:
        return None
    if any("-r" in shlex.split(line) for line in lines):
        lines += build.context_hashes
    digest = hashlib.sha256("\n".join((sys.version, *lines)).encode()).hexdigest()[:16]
    return world.directory / "venvs" / digest


class _Builder:
    """Owns the box that RUN lines run in, for as long as one build lasts."""

    def __init__(self, world: World, build: Build, place: Path, venv: Path | None) -> None:
        self._world, self._build, self._place, self._venv = world, build, place, venv
        self._tree = place / "root"
        self._context = place / "context"
        self._arguments: dict[str, str] = {}
        self._installed = 0
        self._cwd = "/"
        self._box: Box | None = None
        self._scaffold: dict[str, tuple[int, int]] = {}  # what that box made of its own
        self.image = Image(build.reference, tree=self._tree, venv=venv)

    async def prepare(self) -> None:
        self._tree.mkdir(parents=True)
        self._context.mkdir()
        for one in self._build.context_hashes:
            path = self._world.directory / "contexts" / ORGANIZATION_ID / one / "context.tar"
            await asyncio.to_thread(_unpack, path, self._context)
        if self._venv is not None and not (self._venv / "pyvenv.cfg").exists():
            await self._make_environment(self._venv)

    async def close(self) -> None:
        if self._box is not None:
            await self._box.kill()
            _take_down(self._scaffold)

    async def carry_out(self, one: Instruction, *, step: str) -> None:
        self._build.log.write(f"Step {step} : {one.text}")
        if one.word == "FROM":
            self._from(one.rest.split()[0] if one.rest else "")
        elif one.word == "RUN":
            for part in steps(one.rest):
                await self._step(part.kind, part.text)
        elif one.word in ("COPY", "ADD"):
            await asyncio.to_thread(self._copy, one.rest)
        else:
            self._set(one)

    def _from(self, name: str) -> None:
        if any(fnmatch.fnmatch(name, gone) for gone in self._world.settings.gone_images):
            raise BuildFailed(f"failed to resolve source metadata for {name}: not found")

    def _set(self, one: Instruction) -> None:
        if one.word == "ENV":
            self.image.env |= {k: self._expand(v) for k, v in assignments(one.rest).items()}
        elif one.word == "ARG":
            name, _, value = one.rest.partition("=")
            self._arguments[name] = value.strip("\"'")
        elif one.word == "WORKDIR":
            self._cwd = self.image.workdir = self._absolute(self._expand(words(one.rest)[0]))
            self._host(self._cwd).mkdir(parents=True, exist_ok=True)
        elif one.word == "ENTRYPOINT":
            self.image.entrypoint = command(one.rest)

    async def _make_environment(self, venv: Path) -> None:
        """Its `pip` is this machine's, working on the environment: so it needs no registry."""
        python = ["--python", sys.executable, "--system-site-packages"]
        await self._program(["uv", "venv", "--quiet", *python, venv])
        for name in ("pip", "pip3"):
            shim = venv / "bin" / name
            shim.write_text(f'#!/bin/sh\nexec {venv}/bin/python -m pip "$@"\n')
            shim.chmod(0o755)

    async def _step(self, kind: str, text: str) -> None:
        if kind == "skip":
            self._build.log.write(f"(taken from this machine: {text})")
        elif kind == "pip":
            await self._install(text)
        else:
            await self._run(text)

    async def _install(self, wanted: str) -> None:
        """With uv, into the environment; a line of an environment that is there costs nothing."""
        assert self._venv is not None
        self._installed += 1
        done = self._venv / f"installed-{self._installed}"
        if done.exists():
            self._build.log.write("(cached)")
            return
        words_wanted = [
            word for word in shlex.split(wanted) if word not in ("--no-cache-dir", "--user", "-q")
        ]
        for number, word in enumerate(words_wanted):
            if number and words_wanted[number - 1] in ("-r", "--requirement"):
                words_wanted[number] = str(self._host(self._absolute(word)))
        pre = ["--prerelease", "allow"] if "--pre" in words_wanted else []
        rest = [word for word in words_wanted if word != "--pre"]
        python = self._venv / "bin" / "python"
        await self._program(["uv", "pip", "install", "--python", python, *pre, *rest])
        done.touch()

    async def _program(self, argv: list[str | Path]) -> None:
        """A program of this machine that the platform's builder would run itself."""
        uv = Path(sys.executable).parent / "uv"
        name = str(uv) if argv[0] == "uv" and uv.exists() else str(argv[0])
        process = await asyncio.create_subprocess_exec(
            name,
            *map(str, argv[1:]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        try:
            await self._log_all(process.stdout)
            self._judge(await process.wait(), shlex.join(map(str, argv)))
        finally:
            if process.returncode is None:
                process.kill()

    async def _run(self, text: str) -> None:
        if self._box is None:
            self._box = await self._start_box()
        read, write = os.pipe()
        try:
            process = await self._box.spawn(
                ["/bin/sh", "-c", text],
                env=self._environment(),
                cwd=self._cwd,
                stdout=write,
                stderr=write,
            )
        except BoxError as error:
            os.close(read)
            raise BuildFailed(f"the command could not be started: {error}") from error
        finally:
            os.close(write)
        reader = asyncio.StreamReader()
        transport, _protocol = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
        )
        try:
            await self._log_all(reader)
            self._judge(await process.wait(), text)
        finally:
            transport.close()

    async def _start_box(self) -> Box:
        layers = {str(self._venv): self._venv} if self._venv else {}
        box = Box(self._place, layers=layers, env={"HOME": "/root"})
        before = _marks(self._tree)
        await box.start()
        self._scaffold = {
            path: mark for path, mark in _marks(self._tree).items() if path not in before
        }
        return box

    async def _log_all(self, reader: asyncio.StreamReader) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while chunk := await reader.read(CHUNK_BYTES):
            self._build.log.add(decoder.decode(chunk))

    def _judge(self, code: int, what: str) -> None:
        if code:
            tail = self._build.log.text[-LOG_TAIL_CHARACTERS:]
            raise BuildFailed(f"The command '{what}' returned a non-zero code: {code}\n{tail}")

    def _environment(self) -> dict[str, str]:
        path = self.image.env.get("PATH", base_path())
        if self._venv is not None:
            path = f"{self._venv / 'bin'}:{path}"
        return {**self._arguments, **self.image.env, "PATH": path}

    def _copy(self, rest: str) -> None:
        parts = [part for part in words(rest) if not part.startswith("--")]
        if len(parts) < 2:
            raise BuildFailed("dockerfile parse error: COPY requires at least two arguments")
        *sources, goal = map(self._expand, parts)
        for source in sources:
            found = sorted(glob.glob(str(self._context / source.lstrip("/"))))
            if not found:
                raise BuildFailed(f'"/{source.lstrip("/")}": not found')
            many = len(sources) > 1 or len(found) > 1 or goal.endswith(("/", "."))
            for path in found:
                _put(Path(path), self._host(self._absolute(goal)), into=many)

    def _expand(self, text: str) -> str:
        return string.Template(text).safe_substitute({**self._arguments, **self.image.env})

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._cwd, path))

    def _host(self, path: str) -> Path:
        return self._tree / path.lstrip("/")


def _marks(tree: Path) -> dict[str, tuple[int, int]]:
    """Every path, parents before children, with what changes when anything about it does."""
    found: dict[str, tuple[int, int]] = {}
    for parent, directories, files in os.walk(tree):
        for name in (*directories, *files):
            status = os.lstat(f"{parent}/{name}")
            found[f"{parent}/{name}"] = (status.st_mode, status.st_ctime_ns)
    return found


def _take_down(scaffold: Mapping[str, tuple[int, int]]) -> None:
    """A box makes empty directories and links for itself; those that the build left as they were
    are no part of the image: else each sandbox would copy them first.
    """
    same = []
    for path, mark in scaffold.items():
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if (status.st_mode, status.st_ctime_ns) == mark:
                same.append(path)
    for path in reversed(same):
        with contextlib.suppress(OSError):  # it holds something of the image
            os.unlink(path) if os.path.islink(path) else os.rmdir(path)


def _unpack(path: Path, into: Path) -> None:
    with tarfile.open(path) as tar:
        tar.extractall(into, filter="tar")


def _put(source: Path, goal: Path, *, into: bool) -> None:
    """As COPY does: a directory's contents, a file under the new name or into the directory."""
    if source.is_dir():
        shutil.copytree(source, goal, symlinks=True, dirs_exist_ok=True)
        return
    target = goal / source.name if into or goal.is_dir() else goal
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
