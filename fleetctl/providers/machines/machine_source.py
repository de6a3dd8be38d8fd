"""Brings what a task needs onto a machine before it begins: its code, and the Python of its image.

Called by the providers. An archive is sent to a host once, by its digest; a repository is cloned
there by git, with the task's secrets.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.machines.agent_line import AgentLine
from fleetctl.providers.pip_index import index_options, index_variables
from fleetctl.providers.sources import clone_command
from fleetctl.providers.sources.archive import archive_of
from fleetctl.providers.sources.pinning import pin_commit
from fleetctl.specs.blocks.template import Image, Source
from fleetctl.specs.values.packages import without_digest

READ_BYTES = 1 << 18
SEND_S = 1800.0
BUILD_S = 3600.0


def check_image(image: Image | None, provider: str) -> None:
    """Raises Refused for what machines that are used as they are cannot give."""
    if image is None:
        return
    for name in ("registry", "snapshot", "run", "apt"):
        if getattr(image, name):
            raise Refused(
                f"provider `{provider}` cannot give a task `image.{name}`: its machines are used as"
                " they are",
                hint="list `python` and `pip` under `image`, and install the rest on the machines",
            )


def order_variables(order: Mapping[str, Any], image: Image | None) -> dict[str, object]:
    """Returns the order's variables, over those that an image would bake in."""
    return {**(image.env if image is not None else {}), **order["env"]}


async def ensure_python(line: AgentLine, image: Image | None) -> str:
    """Returns the interpreter of an image on the host; "" for the host's own. Raises AgentFault
    with what the installer says.
    """
    if image is None or not (image.pip or image.python):
        return ""
    wanted = {
        "python": image.python or "",
        "pip": [without_digest(it) for it in image.pip],
        "index": index_options(image.pip_index),
    }
    variables = index_variables(image.pip_index)
    reply = await line.call(
        "environment", {"image": wanted, "variables": variables}, deadline_s=BUILD_S
    )
    return str(reply["python"])


async def bring_source(line: AgentLine, source: Source, job: Path) -> None:
    """Sends the archive of a directory to the host, unless it is there."""
    if source.path is None:
        return
    archive = await asyncio.to_thread(archive_of, source, job)
    name = await asyncio.to_thread(archive_name, archive)
    place = {"top": f"{line.facts['root']}/sources", "path": name}
    if (await line.call("touch", place))["there"]:
        return
    await send_file(line, archive, place)


async def send_file(line: AgentLine, path: Path, place: dict[str, str]) -> None:
    """place: `top` and `path` on the host. Raises AgentFault and Unavailable."""
    fields = {**place, "bytes": path.stat().st_size, "mode": path.stat().st_mode & 0o777}
    async with line.asked(deadline_s=SEND_S):
        stream = (await line.link()).stream("receive", fields)
        with path.open("rb") as file:
            while data := await asyncio.to_thread(file.read, READ_BYTES):
                await stream.send(data)
        stream.end_input()
        await stream.reply()


def archive_name(archive: Path) -> str:
    with archive.open("rb") as file:
        return f"{file_digest(file, 'sha256').hexdigest()}.tar.gz"


async def setup_commands(
    request: RunRequest, *, root: str, directory: str, job: Path
) -> list[list[str]]:
    """Returns the commands that put the code into `directory` before the first task. root: of the
    host. Raises Refused for a url that git could misread.
    """
    source = request.template.source
    if source is None:
        return []
    if source.git is not None:
        commit = await pin_commit(request.template, job)
        wanted = source.git.model_copy(update={"ref": commit}) if commit else source.git
        return [clone_command.clone_command(wanted, directory)]
    archive = await asyncio.to_thread(archive_of, source, job)
    path = f"{root}/sources/{await asyncio.to_thread(archive_name, archive)}"
    quoted = shlex.quote(directory)
    return [["/bin/sh", "-c", f"mkdir -p {quoted} && tar -xzf {shlex.quote(path)} -C {quoted}"]]
