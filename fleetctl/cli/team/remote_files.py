"""Files on a server: those of tasks and volumes, with the methods that they have on its machine,
and directories of this machine that are sent there by their content.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from fleetctl.cli.team.api_client import ApiClient
from fleetctl.common.errors import Refused, Unavailable, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, count_noun
from fleetctl.daemon.client.socket_client import raise_refusal
from fleetctl.manifest.files import fence
from fleetctl.providers.contract.volume_files import (
    FileCopy,
    FileEntry,
    Tell,
    VolumeFiles,
    download_beside,
)
from fleetctl.providers.rundir.kept_outputs import KeptFile, KeptOutputs
from fleetctl.providers.sources.revision import BYTES_MAX, FILES_MAX
from fleetctl.providers.sources.source_snapshots import name_of, without_state
from fleetctl.providers.sources.tree_copy import (
    CopyRules,
    describe_unreadable,
    leads_out,
    walk_tree,
)
from fleetctl.providers.sources.upload_store import UploadedTree
from fleetctl.views.run_files import escape_path

TRIES_MAX = 5  # without a further byte

PIECE_BYTES = 2 * 1024 * 1024  # of a request: 17 kB/s send it before the server gives up
HEAD_BYTES = 160
TALK_BYTES = 1024 * 1024  # less is sent before anybody wonders


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
        return read_whole(self._client, self._path, file.size, path=escape_path(file.path))


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


class NamedPath(NamedTuple):
    """A directory or package that a manifest names. where: its path in the manifest; name: as the
    manifest has it; path: on this machine. exclude, follow: of a source."""

    where: str
    name: str
    path: str
    exclude: tuple[str, ...] = ()
    follow: bool = False


class LocalContent(NamedTuple):
    path: str
    size: int


class SourceUpload:
    """The files that one command sends."""

    def __init__(self, client: ApiClient, talk: Callable[[str], None]) -> None:
        self._client = client
        self._talk = talk
        self._contents: dict[str, LocalContent] = {}
        self._trees: dict[str, UploadedTree] = {}

    def add(self, document: str, named: NamedPath) -> str:
        """Adds a directory or a package; returns its name on the server. Raises UsageError where
        it cannot be sent."""
        path = Path(named.path)
        try:
            tree = self._read_tree(path, named) if path.is_dir() else self._read_package(path)
        except Refused as error:
            raise UsageError(f"{document}: {named.where}: {error}", hint=error.hint) from None
        except OSError as error:
            raise UsageError(
                f"{document}: {named.where} is `{named.name}`; {describe_unreadable(path, error)}",
                hint="change its mode, or leave it out by `exclude`",
            ) from None
        self._trees[tree.digest] = tree
        top = tree.directories[0] if tree.directories else path.name
        return f"{tree.digest}/{top}"

    def add_files(self, document: str, files: Mapping[str, str]) -> dict[str, str]:
        """Adds files of tasks; returns their names on the server. files: paths by digest."""
        for digest, path in files.items():
            self._add_content(digest, path, Path(path).stat().st_size)
        return {digest: digest for digest in files}

    def send(self) -> None:
        """Sends what the server does not have. Raises Unavailable after several attempts without
        progress, and RequestRefused."""
        if not self._contents and not self._trees:
            return
        tries = 0
        left = -1
        while True:
            try:
                lacking = self._request_lacking()
                now_left = sum(self._contents[it].size - at for it, at in lacking.items())
                if left < 0 and now_left >= TALK_BYTES:
                    files = count_noun(len(lacking), "file")
                    self._talk(f"sending {files}, {byte_size(now_left)}, to {self._client.url}")
                tries = 0 if left < 0 or now_left < left else tries
                left = now_left
                if not lacking:
                    break
                self._send_pieces(lacking)
            except Unavailable:
                tries += 1
                if tries >= TRIES_MAX:
                    raise
                time.sleep(0.2 * 2**tries)
        for tree in self._trees.values():
            self._reply("uploads/tree", tree._asdict())

    def _request_lacking(self) -> dict[str, int]:
        sizes = {digest: it.size for digest, it in self._contents.items()}
        found = self._reply("uploads/missing", {"contents": sizes}).get("missing")
        assert isinstance(found, dict)
        return {digest: int(at) for digest, at in found.items() if digest in sizes}

    def _send_pieces(self, lacking: Mapping[str, int]) -> None:
        body = bytearray()
        for digest, at in lacking.items():
            for piece in self._pieces(digest, at):
                if body and len(body) + len(piece) > PIECE_BYTES + HEAD_BYTES:
                    self._send_body(bytes(body))
                    body.clear()
                body += piece
        if body:
            self._send_body(bytes(body))

    def _pieces(self, digest: str, at: int) -> Iterator[bytes]:
        content = self._contents[digest]
        with fence.open_regular(content.path) as file:
            file.seek(at)
            while at < content.size or at == content.size == 0:
                data = file.read(min(PIECE_BYTES, content.size - at))
                yield f"{digest} {content.size} {at} {len(data)}\n".encode() + data
                at += len(data)
                if not data:
                    break

    def _send_body(self, body: bytes) -> None:
        reply = self._client.post_bytes("uploads/contents", body)
        if not reply.get("ok"):
            raise_refusal(reply)

    def _reply(self, verb: str, message: Mapping[str, object]) -> dict[str, object]:
        reply = self._client.post(verb, message)
        if not reply.get("ok"):
            raise_refusal(reply)
        return reply

    def _read_package(self, path: Path) -> UploadedTree:
        digest = self.add_file(path)
        return UploadedTree(((path.name, False, digest),))

    def _read_tree(self, path: Path, named: NamedPath) -> UploadedTree:
        top = name_of(path)
        exclude = without_state(find_state_dir(), path, named.exclude)
        rules = CopyRules.of_project(exclude, follow=named.follow)
        files: list[tuple[str, bool, str]] = []
        links: list[tuple[str, str]] = []
        directories: list[str] = [top]
        size = 0
        for entry, relative in walk_tree(path, rules):
            name = f"{top}/{relative}"
            if entry.is_symlink():
                if not leads_out(entry, path):
                    links.append((name, str(Path(entry.path).readlink())))
            elif entry.is_dir():
                directories.append(name)
            elif entry.is_file():
                looks = entry.stat()
                size += looks.st_size
                files.append(
                    (
                        name,
                        bool(looks.st_mode & 0o100),
                        self.add_file(entry.path),
                    )
                )
            if len(files) + len(links) + len(directories) > FILES_MAX or size > BYTES_MAX:
                raise Refused(
                    f"`{path}` has more than {FILES_MAX:,} files or {BYTES_MAX >> 20} MiB, which"
                    " a server takes of one directory",
                    hint="leave out by `exclude` what tasks do not need, keep data in a Volume, or"
                    " name a repository by `source.git`",
                )
        return UploadedTree(tuple(files), tuple(links), tuple(directories))

    def add_file(self, path: str | Path) -> str:
        """Adds a file; returns its digest. Raises OSError."""
        with fence.open_regular(path) as file:
            digest = file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        self._add_content(digest, str(path), size)
        return digest

    def _add_content(self, digest: str, path: str, size: int) -> None:
        self._contents[digest] = LocalContent(path, size)
