"""Files of machines: what a task needs there before it begins, and the volumes, for `cp`, `ls`,
`rm` and `tasks.fromFiles`.

A volume that machines do not share is on each of them: writes go to all, and reads take the first
machine that has the file. The verbs of users work without a controller, over lines of their own.

The archive of a source is sent to a host once, by its digest; a repository is cloned there by git,
with the task's secrets.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import file_digest
from pathlib import Path
from typing import Any, Generic, TypeVar

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.providers.contract.base import RunRequest, no_network, no_pods
from fleetctl.providers.contract.volume_files import (
    CONTENT_LIMITS,
    FileCopy,
    FileEntry,
    Tell,
    VolumeFiles,
    clean_path,
    contents_too_large,
    contents_too_slow,
    contents_unread,
    download_beside,
    is_a_directory,
    no_volume,
    path_missing,
)
from fleetctl.providers.machines.agent_link import AgentFault, AgentLine
from fleetctl.providers.sources import clone_command
from fleetctl.providers.sources.archive import archive_of, name_in_sandbox
from fleetctl.providers.sources.git import directory_name
from fleetctl.providers.sources.pinning import pin_commit
from fleetctl.providers.uv import index_options, index_variables
from fleetctl.specs.blocks.nodes import nodes_of, ray_of
from fleetctl.specs.blocks.template import Image, Source, Template
from fleetctl.specs.values.packages import without_digest

TRANSFER_S = 3600.0
# As the agent names them.
_FAULTS = {"much": contents_too_large, "slow": contents_too_slow, "unread": contents_unread}
Line = TypeVar("Line", bound=AgentLine)

READ_BYTES = 1 << 18
SEND_S = 1800.0
BUILD_S = 3600.0


class MachineVolumes(Generic[Line]):
    """lines: opens lines to all machines; raises Unavailable where one cannot be reached. top:
    returns a volume's directory on the machine of a line.
    """

    def __init__(
        self,
        lines: Callable[[], AbstractAsyncContextManager[Sequence[Line]]],
        top: Callable[[Line, str], str],
    ) -> None:
        self._lines = lines
        self._top = top

    async def entries(
        self, volume: str, path: str, *, recursive: bool = False, contents: str = ""
    ) -> Sequence[FileEntry]:
        wanted = clean_path(path)
        found: dict[str, FileEntry] = {}
        known = False
        there = False
        async with self._lines() as lines:
            for line in lines:
                reply = await self._call_agent(
                    line, "entries", volume, wanted, recursive=recursive, contents=contents
                )
                if reply.get("fault"):
                    raise _FAULTS[reply["fault"]](volume)
                known |= bool(reply.get("top", True))
                if reply["entries"] is not None:
                    there = True
                    for entry in reply["entries"]:
                        found.setdefault(entry[0], FileEntry(*entry))
        if not known and not there:
            raise no_volume("no machine", volume)
        if wanted and not there:
            raise path_missing(volume, path)
        return sorted(found.values())

    async def put(self, volume: str, files: Sequence[FileCopy], *, tell: Tell) -> None:
        async with self._lines() as lines:
            for number, line in enumerate(lines):
                for one in files:
                    top = self._top(line, volume)
                    place = {"top": top, "path": clean_path(one.remote)}
                    try:
                        await send_file(line, one.local, place)
                    except AgentFault as error:
                        raise _path_refusal(error) from error
                    if number == 0:
                        tell(one.size)

    async def get(self, volume: str, files: Sequence[FileCopy], *, tell: Tell) -> None:
        async with self._lines() as lines:
            for one in files:
                with download_beside(one.local) as temporary:
                    for line in lines:
                        if await self._download_file(line, volume, one, temporary):
                            break
                    else:
                        raise path_missing(volume, one.remote)
                tell(one.size)

    async def remove(self, volume: str, path: str, *, recursive: bool = False) -> None:
        wanted = clean_path(path)
        removed = False
        async with self._lines() as lines:
            for line in lines:
                reply = await self._call_agent(line, "remove", volume, wanted, recursive=recursive)
                if reply.get("directory"):
                    raise is_a_directory(path)
                removed |= bool(reply["removed"])
        if not removed:
            raise path_missing(volume, path)

    async def size(self, volume: str) -> int | None:
        """Returns the bytes on the host with most of them."""
        async with self._lines() as lines:
            sizes = [
                (await self._call_agent(line, "measure", volume, ""))["bytes"] for line in lines
            ]
        return max((it for it in sizes if it is not None), default=None)

    async def _call_agent(
        self,
        line: Line,
        op: str,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
        contents: str = "",
    ) -> dict[str, Any]:
        fields = {"top": self._top(line, volume), "path": path, "recursive": recursive}
        if contents:
            fields |= {"contents": contents, "limits": CONTENT_LIMITS}
        try:
            return await line.call(op, fields, deadline_s=TRANSFER_S)
        except AgentFault as error:
            raise _path_refusal(error) from error

    async def _download_file(self, line: Line, volume: str, one: FileCopy, target: Path) -> bool:
        """Returns whether this host has the file."""
        place = {"top": self._top(line, volume), "path": clean_path(one.remote)}
        async with line.asked(deadline_s=TRANSFER_S):
            stream = (await line.link()).stream("send", place)
            with target.open("wb") as file:
                async for data in stream.pieces():
                    file.write(data)
            if stream.code not in (0, 1):
                raise Unavailable(f"`{one.remote}` cannot be read on host `{line.name}`")
        return stream.code == 0


def _path_refusal(error: AgentFault) -> Refused:
    return Refused(str(error), hint="name another path")


_: type[VolumeFiles] = MachineVolumes[AgentLine]


def check_image(image: Image | None, provider: str) -> None:
    """Raises Refused for what machines that are used as they are cannot give."""
    if image is None:
        return
    for name in ("snapshot", "run", "apt"):
        if getattr(image, name):
            raise Refused(
                f"provider `{provider}` cannot give a task `image.{name}`: its machines are used as"
                " they are",
                hint="list `python` and `pip` under `image`, and install the rest on the machines",
            )
    added = [name for name in ("python", "pip") if getattr(image, name)]
    if image.registry is not None and added:
        raise Refused(
            f"provider `{provider}` adds no `image.{added[0]}` to an image of a registry",
            hint="install it when you build the image, or leave out `image.registry`",
        )


def find_obstacles(template: Template, provider: str, no_functions: str) -> Iterator[Finding]:
    """Finds work that no machine can take, without a connection. no_functions: why."""
    if template.is_function:
        hint = "use a sandbox for each task, or place it on `modal` or `local`"
        yield Finding(("runtime",), no_functions, hint)
    if template.network is not None:
        yield no_network(provider)
    if template.kubernetes is not None:
        yield no_pods(provider)
    try:
        check_image(template.image, provider)
    except Refused as error:
        yield Finding(("image",), str(error), error.hint)


def find_python_field(template: Template) -> str:
    """Returns the first field of work that needs Python on its machine; "" without any."""
    image = template.image
    asked = {
        "python": template.python is not None,
        "services": bool(template.services),
        "outputs": bool(template.outputs),
        "metrics": template.metrics is not None,
        "endpoints": bool(template.asks),
        "image": image is not None and bool(image.pip or image.python),
        "nodes": nodes_of(template).max > 1,
        "ray": ray_of(template).enabled,
    }
    found = (name for name, asks in asked.items() if asks)
    # Of a run whose program logs to wandb it is known from its order alone.
    return next(found, "env" if template.needs_python else "")


def order_variables(order: Mapping[str, Any], image: Image | None) -> dict[str, object]:
    """Returns the order's variables, over those that an image would bake in."""
    return {**(image.env if image is not None else {}), **order["env"]}


async def ensure_python(line: AgentLine, image: Image | None) -> str:
    """Returns the interpreter of an image on the host; "" for the host's own. Raises AgentFault
    with the output of the installer.
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
    """Sends a file to a volume on the host. place: `top` and `path` on the host. Raises
    AgentFault and Unavailable.
    """
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


def source_directory(source: Source, box: str) -> str:
    """Returns where the code of a task is. box: the directory of its sandbox."""
    if source.mount_path is not None:
        return source.mount_path.rstrip("/") or "/"
    if source.git is not None:
        return f"{box}/workspace/{directory_name(source.git.url)}"
    return f"{box}/workspace/{name_in_sandbox(source.path or '')}"


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
