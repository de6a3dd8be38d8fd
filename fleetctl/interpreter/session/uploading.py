"""Sends local files onto a session's volume, through the driver. Used by interpreter.py."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from fleetctl.interpreter.interpreter_errors import InterpreterError
from fleetctl.interpreter.session.conversation import Conversation

PIECE_BYTES = 3 * 256 * 1024  # of a file in one message; a multiple of three encodes without rest


def list_uploads(
    local_dirs: Mapping[str, str], local_files: Mapping[str, str]
) -> dict[str, list[tuple[Path, str]]]:
    """Returns remote path as requested -> (local file, its remote path). Raises
    FileNotFoundError.
    """
    wanted = {}
    for local, remote in local_files.items():
        path = Path(local)
        if not path.is_file():
            raise FileNotFoundError(f"`{local}` is not a file")
        wanted[remote] = [(path, remote)]
    for local, remote in local_dirs.items():
        top = Path(local)
        if not top.is_dir():
            raise FileNotFoundError(f"`{local}` is not a directory")
        wanted[remote] = [
            (path, str(PurePosixPath(remote) / path.relative_to(top).as_posix()))
            for path in sorted(top.rglob("*"))
            if path.is_file()
        ]
    return wanted


async def upload_files(
    talk: Conversation, wanted: Mapping[str, list[tuple[Path, str]]]
) -> tuple[str, ...]:
    """Uploads files; returns the remote paths that were written: those of `wanted` that did not
    exist yet.
    """
    written = []
    for remote, files in wanted.items():
        if await talk.ask("exists", path=remote):
            continue
        for local, path in files:
            for piece, first, last in _read_pieces(local):
                await talk.ask(
                    "put",
                    path=path,
                    data=piece,
                    first=first,
                    last=last,
                )
        written.append(remote)
    if written and (problem := await talk.ask("sync")):
        raise InterpreterError(f"the volume does not take what was written: {problem}")
    return tuple(written)


def _read_pieces(path: Path) -> Iterator[tuple[str, bool, bool]]:
    """Yields (base64 text, true for the first piece, true for the last)."""
    with path.open("rb") as file:
        piece = file.read(PIECE_BYTES)
        first = True
        while True:
            following = file.read(PIECE_BYTES)
            yield base64.b64encode(piece).decode(), first, not following
            if not following:
                return
            piece = following
            first = False
