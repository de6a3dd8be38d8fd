"""Explains the YAML parser's errors for users. Called by reader.py."""

from __future__ import annotations

import re
from collections.abc import Sequence

from yaml import MarkedYAMLError
from yaml.reader import ReaderError

from fleetctl.manifest.hints.value_hints import UNEXPANDED
from fleetctl.manifest.problems import quote_text

Position = tuple[int, int]

_INDENTATION = "the line does not fit the block that begins at {begin}; check its indentation"
_UNCLOSED_QUOTE = "the quoted text that begins at {begin} is not closed"
_MESSAGES = {
    "mapping values are not allowed in this context": (
        "`:` and a space cannot stand here; quote the text, or check the indentation"
    ),
    "did not find expected key": _INDENTATION,
    "did not find expected '-' indicator": _INDENTATION,
    "did not find expected <block end>": _INDENTATION,
    "did not find expected ',' or ']'": "the list that begins at {begin} lacks `,` or `]` here",
    "did not find expected ',' or '}'": "the mapping that begins at {begin} lacks `,` or `}}` here",
    "found unexpected end of stream": _UNCLOSED_QUOTE,
    "found unexpected document indicator": _UNCLOSED_QUOTE,
    "found unknown escape character": (
        "the backslash begins no known escape; put a text with backslashes into single quotes"
    ),
    "found invalid Unicode character escape code": "the escape stands for no character",
    "did not find expected <document start>": "a further document must begin with `---`",
    "could not find expected ':'": "the key that begins at {begin} lacks `: ` and a value",
    "did not find expected node content": "a value is expected here",
    "block sequence entries are not allowed in this context": "a list cannot begin with `- ` here",
    "found incompatible YAML document": "only YAML 1.1 and 1.2 are read",
    "found a tab character where an indentation space is expected": (
        "the line is indented with a tab; YAML indents with spaces"
    ),
}


def syntax_problem(
    text: str,
    error: MarkedYAMLError,
    unclosed: Position | None,
) -> tuple[Position, str, str]:
    """Returns position, message and hint; a problem without an entry above keeps the parser's own
    words.

    unclosed: position of the innermost `[` or `{` that is still open.
    """
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        row = text.count("\n", 0, conflict.start()) + 1
        hint = "choose one side, and delete the lines `<<<<<<<`, `=======` and `>>>>>>>`"
        return (row, 1), "a merge conflict is left here", hint

    at, message = _describe_problem(text, error)
    row, column = at
    lines = [*text.splitlines(), ""]
    line = lines[min(row, len(lines)) - 1]
    rest = line[column - 1 :]
    problem = str(error.problem or "")

    at_end = row >= len(lines) - 1 and not rest
    over = at_end or line.startswith(("---", "..."))
    if unclosed is not None and over and _MESSAGES.get(problem) is not _UNCLOSED_QUOTE:
        return _describe_unclosed(lines, unclosed)
    if "${" in line or "{{" in line:
        return at, message, f"quote what has braces; {UNEXPANDED}"
    pair = _PAIR.fullmatch(line)
    if pair is not None and problem.startswith("mapping values"):
        return at, message, f"write `{pair[1]}: {quote_text(pair[2].strip())}`"
    if problem in (_NO_NAME, _NO_TOKEN) and not rest.startswith("\t"):
        word = _WORD_ENDS.split(rest)[0]
        return at, message, f"write `{quote_text(word)}`"
    return at, message, ""


def _describe_unclosed(lines: Sequence[str], unclosed: Position) -> tuple[Position, str, str]:
    """Returns position, message and hint of a bracket that is not closed."""
    row, column = unclosed
    line = lines[row - 1]
    opened = line[column - 1]
    closing = {"[": "]", "{": "}"}[opened]
    hint = f"write `{closing}` where it ends"
    if " #" in line:
        hint = "` #` begins a comment; put a text that holds it into quotes"
    return unclosed, f"the `{opened}` is not closed", hint


_CONFLICT = re.compile(r"^<{7}(?: |$)", re.MULTILINE)
_WORD_ENDS = re.compile(r"[,\]}\s]")
_PAIR = re.compile(r"\s*(?:- )*([A-Za-z_][\w.-]*): ([^\"'\[{|>].*: .*)")
_NO_TOKEN = "found character that cannot start any token"  # noqa: S105
_NO_NAME = "did not find expected alphabetic or numeric character"


def _describe_problem(text: str, error: MarkedYAMLError) -> tuple[Position, str]:
    mark = error.problem_mark or error.context_mark
    at = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    problem = str(error.problem or error.context)
    if problem == _NO_TOKEN:
        return at, _bad_beginning(text, at)
    if problem == _NO_NAME and error.context_mark is not None:
        # `*.txt` and `&&`: taken for an alias or an anchor, whose name would follow.
        begun = error.context_mark.line + 1, error.context_mark.column + 1
        return begun, _bad_beginning(text, begun)
    begin = error.context_mark or mark
    where = f"{begin.line + 1}:{begin.column + 1}" if begin is not None else "the top"
    message = _MESSAGES.get(problem)
    return at, message.format(begin=where) if message else f"not valid YAML: {problem}"


def reader_problem(text: str, error: ReaderError) -> tuple[Position, str]:
    """A character that YAML forbids. The parser counts in bytes of UTF-8 here."""
    before = text.encode()[: error.position].decode(errors="replace")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    code = error.character if isinstance(error.character, int) else ord(error.character)
    return (line, column), (
        f"U+{code:04X} is a control character; write it as an escape in double quotes"
    )


def _bad_beginning(text: str, at: Position) -> str:
    line = text.splitlines()[at[0] - 1] if text else ""
    character = line[at[1] - 1 : at[1]]
    if character == "\t":
        return "the line is indented with a tab; YAML indents with spaces"
    return f"a text cannot begin with `{character}`; quote it"
