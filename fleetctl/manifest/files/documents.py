"""Paths on a command line to texts in memory, within limits. Called by cli."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fleetctl.manifest.files import fence

MANIFEST, VALUES, SET = "", "values", "set"  # roles of a document
FILE_BYTES_MAX = 8 * 1024 * 1024  # about 15,000 manifests of ordinary size
FILES_MAX = 10_000
SUFFIXES = (".yaml", ".yml", ".json")
# A document that has either is meant as a manifest, perhaps of another tool: the loader says so.
_OURS = re.compile(r"""^(["']?)(?:apiVersion|kind)\1[ \t]*:""", re.MULTILINE)
_OURS_IN_FLOW = re.compile(r"""[{,]\s*(["']?)(?:apiVersion|kind)\1\s*:""")
_POINTER = b"version https://git-lfs.github.com/spec/"
_SKIPPED = ("node_modules",)  # thousands of files of others


class Document(NamedTuple):
    """A text to load; it may hold many YAML documents. A named tuple: it is made on a fast path.

    path: as the person named it, for messages. dir: absolute; relative paths inside begin there.
    refused: why the file could not be read; `load` reports it beside all other problems. role: of
    a text that is no manifest: MANIFEST, VALUES (of variables, a mapping), SET (one, `NAME=VALUE`).
    """

    path: str
    text: str
    dir: str
    refused: str = ""
    hint: str = ""
    role: str = ""


def read_documents(
    paths: Sequence[str],
    *,
    stdin: BinaryIO | None = None,
    recursive: bool = False,
    may_be_empty: bool = False,
    foreign: list[str] | None = None,
) -> list[Document]:
    """Files, directories (their *.yaml, *.yml and *.json, sorted, not hidden), addresses, and `-`
    for stdin. With stdin a person names them, and may name a pipe; else they are regular files.

    recursive: also of the directories below. may_be_empty: a directory without any is not an error.
    foreign: gets the files of directories that are of other tools, which are left out.
    """
    found: list[Document] = []
    for path in paths:
        if path == "-":
            assert stdin is not None, "the caller passes stdin along with `-`"
            found.append(_document("-", stdin, Path.cwd()))
        elif is_address(path):
            found.append(_fetched(path))
        elif Path(path).is_dir():
            others = foreign if foreign is not None else []
            found.extend(_directory(path, recursive, may_be_empty, others))
        else:
            found.append(_file(path, piped=stdin is not None))
    return found


def is_address(path: str) -> bool:
    """`https://...`; also with a scheme that is not taken, so that this is what is said."""
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.isalpha()


def _directory(
    path: str, recursive: bool, may_be_empty: bool, foreign: list[str]
) -> Iterator[Document]:
    try:
        names = sorted(_names(path, recursive))
    except OSError as error:
        yield _refused(path, f"the directory cannot be read: {_reason(error)}")
        return
    if len(names) > FILES_MAX:
        yield _refused(
            path, f"the directory holds {len(names):,} manifests; {FILES_MAX:,} are read"
        )
        return
    some = False
    for name in names:
        document = _file(str(Path(path) / name))
        if document.refused or not _is_foreign(document.text):
            some = True
            yield document
        else:
            foreign.append(document.path)
    if some or may_be_empty:
        return
    others = " with a `kind`" if names else ""
    yield _refused(
        path,
        f"the directory holds no .yaml, .yml or .json file{others}",
        hint="" if recursive or not _has_below(path) else "-R also reads the directories below",
    )


def _names(path: str, recursive: bool) -> Iterator[str]:
    """Of manifests, as seen from the directory. Links to directories are not followed."""
    for entry in os.scandir(path):
        if entry.name.startswith("."):
            continue
        if entry.name.endswith(SUFFIXES) and entry.is_file():
            yield entry.name
        elif recursive and entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
            yield from (f"{entry.name}/{name}" for name in _names(entry.path, recursive))


def _has_below(path: str) -> bool:
    return any(
        next(_names(entry.path, recursive=False), "")
        for entry in os.scandir(path)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    )


def _is_foreign(text: str) -> bool:
    """Whether a file of a directory says nothing that a manifest says: a package.json, a
    docker-compose.yml, a sweep that another file names.
    """
    if not text.strip():
        return False
    ours = _OURS_IN_FLOW if text.lstrip()[0] in "{[" else _OURS
    return ours.search(text) is None


def _fetched(address: str) -> Document:
    from fleetctl.manifest.files.fetching import Unfetched, fetch

    try:
        data = fetch(address, bytes_max=FILE_BYTES_MAX)
    except Unfetched as error:
        return _refused(address, str(error), hint=error.hint)
    return _document(address, io.BytesIO(data), Path.cwd())


def _file(path: str, *, piped: bool = False) -> Document:
    try:
        fence.check(path)
        with Path(path).open("rb") if piped else fence.open_regular(path) as stream:
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
    if data.startswith(_POINTER):
        # Taken for a file of another tool, what it declares would be pruned.
        return _refused(
            path,
            "it is a pointer of Git LFS, and not the file",
            hint="`git lfs pull`, or `git.lfs: true` of a Source",
        )
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
    if isinstance(error, fence.Outside | fence.NotRegular):
        return fence.reason(error)
    if isinstance(error, OSError) and error.errno is not None:
        return (
            f"{os.strerror(error.errno).lower()} ({errno.errorcode.get(error.errno, error.errno)})"
        )
    return "its name is not valid"
