"""`fleetctl run --each FILE|-`: a task for each row of a file, or for each line of stdin.

Called by from_flags.py. `{NAME}` in the command is the parameter NAME of the task, and `{}` is the
line where rows are lines. The command becomes a script whose placeholders are quoted variables, so
that no value of a row is read by the shell.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import escape_line
from fleetctl.guest.task.parameters import variable
from fleetctl.manifest.files.parameter_rows import RowError, read_rows

STDIN = "-"
LINE = "line"  # the parameter of a row that is a line
LINES_BYTES_MAX = 64 * 1024 * 1024  # as of a file of rows
ROW_SUFFIXES = (".csv", ".jsonl")

_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_NAMES_SHOWN_MAX = 10


class TaskRows(NamedTuple):
    """tasks: the field of the manifest. names: parameters that the first row has."""

    tasks: dict[str, Any]
    names: tuple[str, ...]


def read_tasks(file: str) -> TaskRows:
    """Reads the tasks of `--each FILE|-`. Raises NotFound, UsageError."""
    if file != STDIN and Path(file).suffix.lower() in ROW_SUFFIXES:
        try:
            first = read_rows(file)[0]
        except OSError as error:
            raise NotFound(f"--each: there is no file `{escape_line(file)}`") from error
        except (RowError, ValueError) as error:
            line = f":{error.line}" if isinstance(error, RowError) else ""
            raise UsageError(f"--each: {escape_line(file)}{line}: {error}") from error
        return TaskRows({"fromFile": {"path": file}}, tuple(first))
    lines = list(_read_lines(file))
    if not lines:
        raise UsageError(
            f"--each: `{escape_line(file)}` has no lines",
            hint="ls *.pdf | fleetctl run --each - -- ocr {}",
        )
    return TaskRows({"items": [{LINE: it} for it in lines]}, (LINE,))


def _read_lines(file: str) -> Iterator[str]:
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(LINES_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(LINES_BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise NotFound(f"--each: there is no file `{escape_line(file)}`") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--each: `{escape_line(file)}` is not UTF-8") from error
    if len(data) > LINES_BYTES_MAX:
        raise UsageError(
            f"--each: `{escape_line(file)}` is larger than {LINES_BYTES_MAX // 1024**2} MiB"
        )
    return (it for it in (line.rstrip("\r") for line in text.split("\n")) if it.strip())


def script_of(command: Sequence[str], names: Sequence[str]) -> str:
    """Returns the command as a POSIX shell script. Raises UsageError for a name that no row has."""
    return "exec " + " ".join(_quote_word(word, names) for word in command)


def _quote_word(word: str, names: Sequence[str]) -> str:
    parts: list[str] = []
    end = 0
    for found in _PLACEHOLDER.finditer(word):
        name = _name_of(found[1], names)
        if found.start() > end:
            parts.append(shlex.quote(word[end : found.start()]))
        parts.append(f'"${{{variable(name)}}}"')
        end = found.end()
    if end < len(word) or not parts:
        parts.append(shlex.quote(word[end:]))
    return "".join(parts)


def _name_of(name: str, names: Sequence[str]) -> str:
    if not name and len(names) == 1:
        return names[0]
    if name in names:
        return name
    known = ", ".join(f"`{{{it}}}`" for it in names[:_NAMES_SHOWN_MAX])
    raise UsageError(
        f"--each: no row has `{{{escape_line(name)}}}`", hint=f"known here: {escape_line(known)}"
    )


def template_of(command: Sequence[str], rows: TaskRows | None) -> Mapping[str, Any]:
    """Returns the field of the template that runs the command."""
    if rows is None:
        return {"command": list(command)}
    return {"script": script_of(command, rows.names)}
