"""Paths on a command line to texts in memory, within limits. Called by cli."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fleetctl.manifest.files import fence

MANIFEST, VALUES, SET = "", "values", "set"  # roles of a document
FILE_BYTES_MAX = 8 * 1024 * 1024  # about 15,000 manifests of ordinary size
FILES_MAX = 10_000
SUFFIXES = (".yaml", ".yml", ".json")
# A document that has either is meant as a manifest, perhaps of another tool: the loader reports
# that.
_OURS = re.compile(r"""^(["']?)(?:apiVersion|kind)\1[ \t]*:""", re.MULTILINE)
_OURS_IN_FLOW = re.compile(r"""[{,]\s*(["']?)(?:apiVersion|kind)\1\s*:""")
# A W&B sweep configuration has both of them.
_OF_SWEEP = re.compile(r"""(?:^|[{,])\s*(["']?)(method|parameters)\1[ \t]*:""", re.MULTILINE)
POINTER = b"version https://git-lfs.github.com/spec/"
_SKIPPED = ("node_modules",)  # thousands of files of others


class Document(NamedTuple):
    """A text to load; it may hold many YAML documents. A named tuple: it is made on a fast path.

    path: as the user named it, for messages. dir: absolute; relative paths inside begin there.
    refused: why the file could not be read; `load` reports it beside all other problems. role: of a
    text that is no manifest: MANIFEST, VALUES (of variables, a mapping), SET (one, `NAME=VALUE`).
    sent: files of another machine that were sent here, absolute paths by the names in the text, or
    by the digest of their content.
    """

    path: str
    text: str
    dir: str
    refused: str = ""
    hint: str = ""
    role: str = ""
    sent: Mapping[str, str] = {}


def file_of(document: Document) -> str:
    """Its path, absolute."""
    return os.path.join(document.dir, os.path.basename(document.path))


def read_documents(
    paths: Sequence[str],
    *,
    stdin: BinaryIO | None = None,
    recursive: bool = False,
    may_be_empty: bool = False,
    foreign: list[Document] | None = None,
) -> list[Document]:
    """Reads files, directories (their *.yaml, *.yml and *.json, sorted, not hidden), addresses, and
    `-` for stdin. With stdin a user names the paths, which may be pipes; else they must be regular
    files.

    recursive: also the directories below. may_be_empty: a directory without any file is not an
    error. foreign: gets the documents in directories that are of other tools, and left out.
    """
    found: list[Document] = []
    for path in paths:
        if path == "-":
            assert stdin is not None, "the caller passes stdin along with `-`"
            found.append(_read_stream("-", stdin, Path.cwd()))
        elif is_address(path):
            found.append(_fetch_document(path))
        elif os.path.isdir(path):  # pathlib's raises for a long name
            others = foreign if foreign is not None else []
            found.extend(_read_directory(path, recursive, may_be_empty, others))
        else:
            found.append(_read_file(path, piped=stdin is not None))
    return found


def read_document(path: str) -> Document:
    """Reads one regular file; of a directory, the document says that it is none."""
    return _read_file(path)


def is_address(path: str) -> bool:
    """Returns True for `https://...`; also with a scheme that is not accepted, so that the message
    names the scheme.
    """
    scheme, colon, _ = path.partition("://")
    return bool(colon) and scheme.isalpha()


def _read_directory(
    path: str,
    recursive: bool,
    may_be_empty: bool,
    foreign: list[Document],
) -> Iterator[Document]:
    try:
        names = sorted(_list_names(path, recursive))
    except OSError as error:
        yield _refuse_document(path, f"the directory cannot be read: {_describe_error(error)}")
        return
    if len(names) > FILES_MAX:
        yield _refuse_document(
            path, f"the directory holds {len(names):,} manifests; {FILES_MAX:,} are read"
        )
        return
    some = False
    for name in names:
        document = _read_file(str(Path(path) / name))
        if document.refused or not is_foreign(document.text):
            some = True
            yield document
        else:
            foreign.append(document)
    if some or may_be_empty:
        return
    others = " with a `kind`" if names else ""
    yield _refuse_document(
        path,
        f"the directory holds no .yaml, .yml or .json file{others}",
        hint="" if recursive or not _has_below(path) else "-R also reads the directories below",
    )


def _list_names(path: str, recursive: bool) -> Iterator[str]:
    """Lists the names of manifests, relative to the directory. Links to directories are not
    followed.
    """
    for entry in os.scandir(path):
        if entry.name.startswith("."):
            continue
        if entry.name.endswith(SUFFIXES) and entry.is_file():
            yield entry.name
        elif recursive and entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
            yield from (f"{entry.name}/{name}" for name in _list_names(entry.path, recursive))


def _has_below(path: str) -> bool:
    return any(
        next(_list_names(entry.path, recursive=False), "")
        for entry in os.scandir(path)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    )


def is_sweep_file(text: str) -> bool:
    """Returns True if a text looks like a bare W&B sweep configuration."""
    if not is_foreign(text):
        return False
    return len({found[2] for found in _OF_SWEEP.finditer(text)}) == 2


def is_foreign(text: str) -> bool:
    """Returns True if a file of a directory has no field of a manifest: a package.json, a
    docker-compose.yml, a sweep that another file names.
    """
    if not text.strip():
        return False
    ours = _OURS_IN_FLOW if text.lstrip()[0] in "{[" else _OURS
    return ours.search(text) is None


def _fetch_document(address: str) -> Document:
    from fleetctl.manifest.files.fetching import FetchError, fetch_manifest

    try:
        data = fetch_manifest(address, bytes_max=FILE_BYTES_MAX)
    except FetchError as error:
        return _refuse_document(address, str(error), hint=error.hint)
    return _read_stream(address, io.BytesIO(data), Path.cwd())


def _read_file(path: str, *, piped: bool = False) -> Document:
    try:
        fence.check_inside(path)
        with Path(path).open("rb") if piped else fence.open_regular(path) as stream:
            size = os.fstat(stream.fileno())
            if stat.S_ISREG(size.st_mode) and size.st_size > FILE_BYTES_MAX:
                return _refuse_large(path)
            return _read_stream(path, stream, Path(path).absolute().parent)
    except FileNotFoundError:
        return _refuse_document(path, "there is no such file")
    except (OSError, ValueError) as error:
        return _refuse_document(path, f"the file cannot be read: {_describe_error(error)}")


def _read_stream(
    path: str,
    stream: BinaryIO,
    directory: Path,
) -> Document:
    # One byte above the limit shows that a file is too large, not just full.
    data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        return _refuse_large(path)
    if data.startswith(POINTER):
        # If it were taken for a file of another tool, its objects would be pruned.
        return _refuse_document(
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
        return _refuse_document(
            path,
            f"byte {column} of line {line} is not UTF-8{encoding}",
            hint="save the file as UTF-8",
        )


def _refuse_large(path: str) -> Document:
    return _refuse_document(
        path,
        f"the file is larger than {FILE_BYTES_MAX // 1024**2} MiB",
        hint="keep data in a file of its own and name it in `tasks.fromFile`",
    )


def _refuse_document(
    path: str,
    why: str,
    *,
    hint: str = "",
) -> Document:
    return Document(
        path,
        "",
        "/",
        refused=why,
        hint=hint,
    )


def _describe_error(error: OSError | ValueError) -> str:
    if isinstance(error, fence.OutsideRepository | fence.NotRegularFile):
        return fence.describe_error(error)
    if isinstance(error, OSError) and error.errno is not None:
        return (
            f"{os.strerror(error.errno).lower()} ({errno.errorcode.get(error.errno, error.errno)})"
        )
    return "its name is not valid"
