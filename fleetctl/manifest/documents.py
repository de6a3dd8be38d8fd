"""Paths on a command line to texts in memory, within limits. Called by cli."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

FILE_BYTES_MAX = 8 * 1024 * 1024  # about 15,000 manifests of ordinary size
FILES_MAX = 10_000
SUFFIXES = (".yaml", ".yml", ".json")


class Document(NamedTuple):
    """A text to load; it may hold many YAML documents. A named tuple: it is made on a fast path.

    path: as the person named it, for messages. dir: absolute; relative paths inside begin there.
    refused: why the file could not be read; `load` reports it beside all other problems.
    """

    path: str
    text: str
    dir: str
    refused: str = ""
    hint: str = ""


def read_documents(paths: Sequence[str], *, stdin: BinaryIO | None = None) -> list[Document]:
    """Files, directories (their *.yaml, *.yml and *.json, sorted, not hidden) and `-` for stdin."""
    found: list[Document] = []
    for path in paths:
        if path == "-":
            assert stdin is not None, "the caller passes stdin along with `-`"
            found.append(_document("-", stdin, Path.cwd()))
        elif Path(path).is_dir():
            found.extend(_directory(path))
        else:
            found.append(_file(path))
    return found


def _directory(path: str) -> Iterator[Document]:
    try:
        names = sorted(
            entry.name
            for entry in os.scandir(path)
            if entry.name.endswith(SUFFIXES) and not entry.name.startswith(".") and entry.is_file()
        )
    except OSError as error:
        yield _refused(path, f"the directory cannot be read: {_reason(error)}")
        return
    if not names:
        yield _refused(path, "the directory holds no .yaml, .yml or .json file")
    if len(names) > FILES_MAX:
        yield _refused(
            path, f"the directory holds {len(names):,} manifests; {FILES_MAX:,} are read"
        )
        return
    for name in names:
        yield _file(str(Path(path) / name))


def _file(path: str) -> Document:
    try:
        with Path(path).open("rb") as stream:
            size = os.fstat(stream.fileno())
            if stat.S_ISREG(size.st_mode) and size.st_size > FILE_BYTES_MAX:
                return _too_large(path)
            return _document(path, stream, Path(path).absolute().parent)
    except FileNotFoundError:
        return _refused(path, "there is no such file")
    except (OSError, ValueError) as error:
        return _refused(path, f"the file cannot be read: {_reason(error)}")


def _document(path: str, stream: BinaryIO, directory: Path) -> Document:
    # One byte more than allowed tells a file that is too large from one that just fits.
    data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        return _too_large(path)
    try:
        return Document(path, data.decode("utf-8-sig"), str(directory))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        encoding = "; it looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        return _refused(
            path,
            f"byte {column} of line {line} is not UTF-8{encoding}",
            hint="save the file as UTF-8",
        )


def _too_large(path: str) -> Document:
    return _refused(
        path,
        f"the file is larger than {FILE_BYTES_MAX // 1024**2} MiB",
        hint="keep data in a file of its own and name it in `tasks.fromFile`",
    )


def _refused(path: str, why: str, *, hint: str = "") -> Document:
    return Document(path, "", "/", refused=why, hint=hint)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return (
            f"{os.strerror(error.errno).lower()} ({errno.errorcode.get(error.errno, error.errno)})"
        )
    return "its name is not valid"
