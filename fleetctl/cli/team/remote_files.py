"""Files of tasks and volumes on a server, with the methods that they have on its machine: lists,
contents that go on after a cut line, and files that are sent by their content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from fleetctl.common.errors import Unavailable
from fleetctl.providers.contract.volume_files import (
    FileCopy,
    FileEntry,
    Tell,
    VolumeFiles,
    download_beside,
)
from fleetctl.providers.rundir.kept_outputs import KeptFile, KeptOutputs

if TYPE_CHECKING:
    from fleetctl.cli.team.api_client import ApiClient

TRIES_MAX = 5  # without a further byte


def read_whole(client: ApiClient, path: str, size: int, /, **query: object) -> Iterator[bytes]:
    """Yields a content of `size` bytes; where the line is cut, from there on. Raises Unavailable
    after several attempts without progress."""
    at = tries = 0
    while at < size:
        before = at
        with suppress(Unavailable):
            for data in client.pieces(path, **query, offset=at):
                at += len(data)
                yield data
        tries = 0 if at > before else tries + 1
        if tries >= TRIES_MAX:
            raise Unavailable(f"{client.url} sent {at:,} of {size:,} bytes", hint="try again")


class RemoteOutputs(KeptOutputs):
    """The outputs of one attempt."""

    def __init__(self, client: ApiClient, path: str, files: list[KeptFile]) -> None:
        super().__init__(Path(), files)
        self._client = client
        self._path = path

    @classmethod
    def of_run(cls, client: ApiClient, run: str) -> RemoteOutputs | None:
        path = f"run-outputs/{quote(run, safe='')}"
        _, body = client.get(path)
        files = [KeptFile(*json.loads(line)) for line in body.splitlines()]
        return cls(client, path, files) if files else None

    def contents(self, file: KeptFile) -> Iterator[bytes]:
        return read_whole(self._client, self._path, file.size, path=file.path)


class RemoteVolumeFiles:
    """The files of a volume. name: of its object."""

    def __init__(self, client: ApiClient, name: str, namespace: str) -> None:
        self._client = client
        self._path = f"volume-files/{quote(name, safe='')}"
        self._namespace = namespace

    async def entries(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
        contents: str = "",
    ) -> Sequence[FileEntry]:
        _, body = self._client.get(
            self._path,
            namespace=self._namespace,
            path=path,
            recursive="true" if recursive else None,
        )
        return [FileEntry(*json.loads(line)) for line in body.splitlines()]

    async def put(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        from fleetctl.cli.team.source_upload import SourceUpload

        upload = SourceUpload(self._client, lambda _: None)
        sent = {it.remote: upload.add_file(it.local) for it in files}
        upload.send()
        for it in files:
            tell(it.size)
        self._client.post_checked(self._path, {"files": sent}, namespace=self._namespace)

    async def get(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        for one in files:
            with download_beside(one.local) as place, place.open("wb") as target:
                for data in read_whole(
                    self._client,
                    self._path,
                    one.size,
                    namespace=self._namespace,
                    path=one.remote,
                    content="true",
                    bytes=one.size,
                ):
                    target.write(data)
                    tell(len(data))

    async def remove(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
    ) -> None:
        message = {"remove": path, "recursive": recursive}
        self._client.post_checked(self._path, message, namespace=self._namespace)

    async def size(self, volume: str) -> int | None:
        _, body = self._client.get(self._path, namespace=self._namespace, size="true")
        found: int | None = json.loads(body)
        return found


_: type[VolumeFiles] = RemoteVolumeFiles
