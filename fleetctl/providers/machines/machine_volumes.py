"""Files in the volumes of machines, for `cp`, `ls`, `rm` and `tasks.fromFiles`: directories that
the machines' agents reach.

A volume that machines do not share is on each of them: writes go to all, and reads take the first
machine that has the file. Used without a controller, over lines of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from fleetctl.common.errors import Refused, Unavailable
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
from fleetctl.providers.machines.agent_line import AgentLine
from fleetctl.providers.machines.agent_link import AgentFault
from fleetctl.providers.machines.machine_source import send_file

TRANSFER_S = 3600.0
# As the agent names them.
_FAULTS = {"much": contents_too_large, "slow": contents_too_slow, "unread": contents_unread}
Line = TypeVar("Line", bound=AgentLine)


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
