"""Builds one layer of an image: its commands are really run, in a box over the layers below.

Called by images.py. A layer's result is the directory into which the box wrote.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.boxes import Box, BoxError

from . import dockerfile
from .basis import UV
from .dockerfile import ImageConfig, Instruction

CONTEXT = "/__modal/context"
CACHE = "/__modal/uv-cache"
# How `add_python` makes the Python known that every box already has.
ADD_PYTHON = "ln -s /usr/local/bin/python3 /usr/local/bin/python"
# Of uv. To compile all of pandas takes eight seconds, and few boxes import any of it.
COMPILE = " --compile-bytecode"
PASSED_ON = ("UV_", "PIP_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_", "no_proxy")

_COPY = """set -e
source="$1"; target="$2"
if [ -d "$source" ]; then mkdir -p "$target"; cp -a "$source/." "$target"
else
  case "$target" in */) mkdir -p "$target";; *) mkdir -p "$(dirname "$target")";; esac
  cp -a "$source" "$target"
fi"""


class BuildFailed(Exception):
    """An instruction failed; the text says which and how."""


@dataclass(frozen=True, slots=True)
class Order:
    """One layer. `context` is the tree that COPY takes from; `log` receives what is printed."""

    steps: list[Instruction]
    config: ImageConfig
    directory: Path
    base: list[Path]
    context: Path
    env: Mapping[str, str]
    build_args: Mapping[str, str]
    cache: Path
    log: Callable[[str], None]


async def build(order: Order) -> Path | None:
    """Changes `order.config`. Returns what the layer adds to the tree. Raises BuildFailed."""
    box: Box | None = None
    try:
        for step in order.steps:
            order.log(f"=> {step.verb} {step.rest}\n")
            if dockerfile.apply_to(order.config, step, order.build_args):
                continue
            argv = _argv(step, order)
            if argv is None:
                continue
            if box is None:
                box = await _builder(order)
            if not box.isolated:
                # A build without a tree of its own would install on, and write to, this machine.
                order.log("(emulated) not run: boxes are not isolated here\n")
                continue
            code = await _run(box, argv, order)
            if code != 0:
                raise BuildFailed(f"{step.verb} {step.rest} returned a non-zero code: {code}")
    finally:
        if box is not None:
            await box.kill()
    return box.root if box is not None else None


def _argv(step: Instruction, order: Order) -> list[str] | None:
    """What to run for an instruction; None when there is nothing."""
    if step.verb == "RUN":
        if step.rest == ADD_PYTHON:
            return None
        return dockerfile.command(step.rest.replace(COMPILE, ""), order.config.shell)
    if step.verb not in ("COPY", "ADD"):
        raise BuildFailed(f"the emulator does not know the instruction {step.verb}")
    parts = dockerfile.words(step.rest) or shlex.split(step.rest)
    image = next((part for part in parts if part.startswith("--from=")), "")
    sources = [part for part in parts if not part.startswith("--")]
    target = sources.pop()
    if image:
        # The one image that layers of the SDK copy from; its only file is the binary.
        if "astral-sh/uv" not in image:
            raise BuildFailed(f"the emulator has no image {image.removeprefix('--from=')}")
        return ["/bin/sh", "-c", _COPY, "copy", UV, target]
    if sources == ["/python/."]:
        return None  # the stand-alone Python of `add_python`; every box has one
    lines = [
        f"/bin/sh -c {shlex.quote(_COPY)} copy {shlex.quote(CONTEXT + '/' + one.lstrip('/'))}"
        f" {shlex.quote(target)}"
        for one in sources
    ]
    return ["/bin/sh", "-c", " && ".join(lines)]


async def _builder(order: Order) -> Box:
    order.cache.mkdir(parents=True, exist_ok=True)
    box = Box(
        order.directory,
        base=order.base,
        mounts={CACHE: order.cache},
        files={CONTEXT: order.context},
        hostname="builder",
    )
    await box.start()
    return box


async def _run(box: Box, argv: list[str], order: Order) -> int:
    told, tell = os.pipe()
    passed_on = {name: text for name, text in os.environ.items() if name.startswith(PASSED_ON)}
    own = {
        "UV_CACHE_DIR": CACHE,
        "UV_LINK_MODE": "copy",
        "UV_NO_PROGRESS": "1",
    }
    env = {**passed_on, **own, **order.build_args, **order.config.env, **order.env}
    workdir = order.config.workdir or "/"
    try:
        if workdir != "/":
            made = await box.spawn(["mkdir", "-p", workdir], cwd="/")
            await made.wait()
        process = await box.spawn(argv, env=env, cwd=workdir, stdout=tell, stderr=tell)
    except BoxError as error:
        os.close(told)
        raise BuildFailed(f"{argv[0]}: {error.strerror}") from error
    finally:
        os.close(tell)
    reading = asyncio.create_task(_follow(told, order.log))
    code = await process.wait()
    await reading
    return code


async def _follow(descriptor: int, log: Callable[[str], None]) -> None:
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    while data := await reader.read(65536):
        log(data.decode(errors="replace"))


def uv_cache() -> Path:
    """The cache of the machine, so that what was once installed is not fetched again."""
    told = subprocess.run([_host_uv(), "cache", "dir"], capture_output=True, text=True, check=True)
    return Path(told.stdout.strip())


def _host_uv() -> str:
    from .basis import _uv

    return _uv()
