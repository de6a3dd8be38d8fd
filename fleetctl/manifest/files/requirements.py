"""Makes files that `image.pip` names part of the spec: `-r FILE`, as pip reads it, and editable
packages, `-e ./lib`.

The image has the package with all its dependencies; if its directory is part of the source, tasks
import the source's own files before those.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from fleetctl.manifest.files import fence
from fleetctl.specs.values.packages import INDEX_OPTION, LOCAL, with_digest

LINES_MAX = 10_000
BYTES_MAX = 1024 * 1024
NESTED_MAX = 8  # files that name files
_NAMED = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(?P<file>\S.*)")
_DIRECTORY = re.compile(
    r"(?:(?:-e|--editable)(?:\s+|=))?"
    r"(?P<path>(?!\S+\.(?:whl|zip|gz)\b)\.{1,2}(?:/[^\s\[]*)?)(?:\[[^\]]*\])?"
)
_BESIDE = re.compile(
    r"(?P<editable>(?:-e|--editable)(?:\s+|=))?"
    r"(?P<path>(?:\.{1,2}|~)(?:/[^\[\]]*)?|/[^\[\]]*)(?P<extras>\[[^\]]*\])?"
)
_COMMENT = re.compile(r"(^|\s+)#.*$")

VARIABLE = "PYTHONPATH"
# Where many projects keep their packages, one level below pyproject.toml.
LAYOUT = "src"
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(?P<path>[^\[\]]+?)(?:\[[^\]]*\])?")
NO_SOURCE = "there is no `source.path` that brings it to tasks"
OUTSIDE = "it is outside of `source.path`"
ELSEWHERE = "`workdir` is not a directory inside of the source"


class RequirementsError(ValueError):
    """A fault of a requirements file: `file` as a user would name it, `line` from 1, or 0."""

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int = 0,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


def parse_named_file(entry: object) -> str | None:
    """Returns the file that an entry of `image.pip` names; None for a package."""
    match = _NAMED.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if match is not None:
        return match["file"].strip()
    return None


def read_requirements(
    path: str,
    directory: str,
    read: list[str],
    *,
    within: str = "",
    deep: int = 0,
) -> list[str]:
    """The packages that a file lists, in its order. read: gets every file that was read, absolute.
    within: a directory that no file may leave, absolute.

    Options that name an index are among them, as `split_options` takes them. Raises
    RequirementsError, also for other options.
    """
    own = os.path.join(directory, os.path.expanduser(path))  # no user may be there
    absolute = os.path.normpath(own)
    if deep > NESTED_MAX:
        raise RequirementsError("requirements files name each other in a circle", file=path)
    if within and not absolute.startswith(os.path.join(within, "")):
        raise RequirementsError("it is outside of the repository", file=path)
    read.append(absolute)
    try:
        with fence.open_regular(absolute) as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise RequirementsError(f"it is larger than {BYTES_MAX // 1024} KiB", file=path)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise RequirementsError(
            f"it cannot be read: {fence.describe_error(error)}", file=path
        ) from error
    except UnicodeDecodeError as error:
        raise RequirementsError("it is not UTF-8", file=path) from error
    found: list[str] = []
    for number, line in _logical_lines(text):
        if number > LINES_MAX:
            raise RequirementsError(f"it has more than {LINES_MAX:,} lines", file=path)
        if inner := parse_named_file(line):
            below = os.path.dirname(absolute)  # a text in, a text out
            found += read_requirements(inner, below, read, within=within, deep=deep + 1)
        elif local := _DIRECTORY.fullmatch(line):
            raise RequirementsError(
                f"`{line}` installs a directory, and an image is made before its source comes into"
                f" the sandbox; leave it out, and set `env: {{PYTHONPATH: {local['path']}}}`",
                file=path,
                line=number,
            )
        elif line.startswith("-") and not INDEX_OPTION.fullmatch(line):
            option = line.split(maxsplit=1)[0]
            raise RequirementsError(
                f"`{option}` is an option of pip and no package", file=path, line=number
            )
        else:
            found.append(line)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields (number of its first line, logical line) without comments and blanks; hashes are pip's
    business and left out, as a spec of one package and no more.
    """
    waiting = ""
    began = 0
    for number, raw in enumerate(text.splitlines(), 1):
        began = began or number
        line = _COMMENT.sub("", raw).rstrip()
        if line.endswith("\\"):
            waiting += line[:-1] + " "
            continue
        whole = re.sub(r"\s+--hash=\S+", "", waiting + line).strip()
        if whole:
            yield began, whole
        waiting = ""
        began = 0


def resolve_path(entry: object, directory: str) -> object:
    """Returns an entry that names a file or directory beside the manifest, from the root on. An
    editable one is installed as it is; tasks import it from their source.
    """
    match = _BESIDE.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if match is None or (match["path"].startswith("/") and not match["editable"]):
        return entry
    path = os.path.normpath(os.path.join(directory, os.path.expanduser(match["path"])))
    return path + (match["extras"] or "")


def resolve_sent_package(entry: object, sent: Mapping[str, str]) -> object:
    """Returns an entry that names a package of another machine with the path that it was sent to.
    sent: paths by the names in the manifest."""
    match = LOCAL.fullmatch(entry) if isinstance(entry, str) and sent else None
    if match is None or match["path"] not in sent:
        return entry
    begin, end = match.span("path")
    return match.string[:begin] + sent[match["path"]] + match.string[end:]


def explain_wrong_package(entry: object) -> str:
    """Returns the reason why a file or directory of this machine cannot be a package; empty if it
    may be one.
    """
    match = LOCAL.fullmatch(entry) if isinstance(entry, str) else None
    if match is None:
        return ""
    if not fence.is_inside(match["path"]):
        return fence.describe_error(fence.OutsideRepository())
    if fence.is_of_kernel(match["path"]):
        return "it holds no package"
    return ""


def add_content_digest(entry: object, read: list[str]) -> object:
    """Adds the digest of its content to a package's file: another build at the same path is another
    image. A directory stays as it is written, and so does an unreadable file: the build of the
    image reports that. read: gets the file.
    """
    match = LOCAL.fullmatch(entry) if isinstance(entry, str) else None
    if match is None or match["digest"] is not None:
        return entry
    try:
        with fence.open_regular(match["path"]) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return entry
    read.append(match["path"])
    return with_digest(match.string, digest)


def editable_path(entry: object, directory: str) -> str | None:
    """Returns the absolute directory of an editable package; None for any other entry."""
    match = _EDITABLE.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if match is None:
        return None
    return os.path.normpath(os.path.join(directory, os.path.expanduser(match["path"])))


def explain_no_import(
    path: str,
    origin: str,
    workdir: object,
) -> str:
    """Returns the reason why tasks cannot import the files of the source; empty if they can."""
    if not origin:
        return NO_SOURCE
    if path != origin and not path.startswith(os.path.join(origin, "")):
        return OUTSIDE
    if workdir is not None and (not isinstance(workdir, str) or workdir.startswith("/")):
        return ELSEWHERE
    return ""


def put_first(
    holder: dict[str, Any],
    path: str,
    origin: str,
) -> None:
    """Makes programs of this template find the package at `path`, relative to their start
    directory, since the source's path differs between sandboxes.
    """
    code = FilePath(path) / LAYOUT
    start = os.path.join(origin, holder.get("workdir") or "")
    found = os.path.relpath(code if code.is_dir() else path, start)
    env = holder.get("env")
    if env is None:
        env = holder["env"] = {}
    if not isinstance(env, dict):
        return  # the model reports the fault
    parts = str(env[VARIABLE]).split(":") if VARIABLE in env else []
    if found not in parts:
        env[VARIABLE] = ":".join([found, *parts])
