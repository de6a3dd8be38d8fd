"""Parses text into nodes. Accepts every template of kubectl, with the same meaning."""

from __future__ import annotations

import re

from fleetctl.cli.output.jsonpath.template_nodes import (
    FieldStep,
    FilterStep,
    IndexStep,
    LiteralStep,
    Path,
    RangeBlock,
    RecursiveStep,
    SliceStep,
    Step,
    Template,
    UnionStep,
    WildcardStep,
)
from fleetctl.common.errors import UsageError

# Longer ones are not written by hand; deeper ones would only exhaust the stack.
TEMPLATE_CHARS_MAX = 16 * 1024
DEPTH_MAX = 50
HINT = "such as jsonpath='{.items[*].metadata.name}'"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_SLICE = re.compile(r"(-?\d{1,18})?(:-?\d{0,18})?(:-?\d{0,18})?")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_WORD = re.compile(r"\w+")
_ENDS_A_FIELD = frozenset(" \t\r\n.,[]$@{}()")
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


def parse_template(text: str) -> Template:
    """Parses text with actions in braces. Raises UsageError that names the position of the
    error."""
    if len(text) > TEMPLATE_CHARS_MAX:
        raise UsageError(f"a JSONPath template has at most {TEMPLATE_CHARS_MAX} characters")
    # kubectl takes `-o jsonpath=.metadata.name` as well.
    if "{" not in text and text.startswith((".", "$", "@", "[")):
        return (parse_path(text),)
    cursor = _Cursor(text)
    made = _parse_parts(cursor, depth=0)
    if not cursor.at_end:
        raise cursor.wrong("`{end}` closes no `{range}`")
    return made


def parse_path(text: str) -> Path:
    """Parses one path, relaxed as for `--sort-by`: `{.a.b}`, `.a.b` and `a.b` are the same."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    if not inner:
        raise UsageError("a path is empty", hint="such as .metadata.name")
    cursor = _Cursor(inner if inner[0] in ".$@[" else f".{inner}")
    path = _parse_steps(cursor, stop="", depth=0)
    if not cursor.at_end:
        raise cursor.wrong(f"`{cursor.peek()}` is one too many")
    return path


class _Cursor:
    """A position in a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def starts(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def skip_spaces(self) -> None:
        while self.peek().isspace():
            self.at += 1

    def wrong(self, what: str) -> UsageError:
        return UsageError(f"JSONPath `{self.text}`, character {self.at + 1}: {what}", hint=HINT)


def _parse_parts(cursor: _Cursor, *, depth: int) -> Template:
    """Parses up to the end of the text, or to an `{end}`, which is left for the caller."""
    if depth > DEPTH_MAX:
        raise cursor.wrong(f"more than {DEPTH_MAX} ranges in one another")
    made: list[str | Path | RangeBlock] = []
    while not cursor.at_end:
        if not cursor.starts("{"):
            end = cursor.text.find("{", cursor.at)
            end = len(cursor.text) if end < 0 else end
            made.append(cursor.text[cursor.at : end])
            cursor.at = end
            continue
        begin = cursor.at
        cursor.at += 1
        cursor.skip_spaces()
        word = _WORD.match(cursor.text, cursor.at)
        if word and word[0] == "end":
            cursor.at = begin
            return tuple(made)
        if word and word[0] == "range":
            cursor.at = word.end()
            over = _parse_action(cursor)
            made.append(RangeBlock(over, _parse_parts(cursor, depth=depth + 1)))
            _close_range(cursor)
        else:
            made.append(_parse_action(cursor))
    return tuple(made)


def _close_range(cursor: _Cursor) -> None:
    if cursor.at_end:
        raise cursor.wrong("a `{range}` has no `{end}`")
    cursor.at += 1
    cursor.skip_spaces()
    cursor.at += len("end")
    cursor.skip_spaces()
    if cursor.peek() != "}":
        raise cursor.wrong("`{end` takes nothing and ends in `}`")
    cursor.at += 1


def _parse_action(cursor: _Cursor) -> Path:
    """Parses the rest of an action, with its closing brace."""
    path = _parse_steps(cursor, stop="}", depth=0)
    if cursor.at_end:
        raise cursor.wrong("a `{` is not closed")
    cursor.at += 1
    return path


def _parse_steps(
    cursor: _Cursor,
    *,
    stop: str,
    depth: int,
) -> Path:
    if depth > DEPTH_MAX:
        raise cursor.wrong(f"more than {DEPTH_MAX} filters in one another")
    steps: list[Step] = []
    while not cursor.at_end:
        char = cursor.peek()
        if char == stop:
            break
        if char.isspace() or char in "@$":  # the current thing: where every path begins
            cursor.at += 1
        elif cursor.starts("[?("):
            steps.append(_parse_filter(cursor, depth=depth))
        elif char == "[":
            steps.extend(_parse_brackets(cursor, depth=depth))
        elif cursor.starts(".."):
            cursor.at += 1 if cursor.text[cursor.at + 2 : cursor.at + 3] not in ("[", "") else 2
            steps.append(RecursiveStep())
        elif char == ".":
            steps.append(_parse_field(cursor))
        else:
            steps.append(_parse_literal(cursor))
    return tuple(step for step in steps if step != FieldStep(""))


def _parse_field(cursor: _Cursor) -> Step:
    """Parses `.name`, in which a backslash takes the next character as it is."""
    cursor.at += 1
    name = ""
    while not cursor.at_end and cursor.peek() not in _ENDS_A_FIELD:
        if cursor.peek() == "\\":
            cursor.at += 1
        name += cursor.peek()
        cursor.at += 1
    if name == "*":
        return WildcardStep()
    return FieldStep(name)


def _parse_literal(cursor: _Cursor) -> LiteralStep:
    char = cursor.peek()
    if char in "\"'":
        return LiteralStep(_parse_quoted(cursor))
    for pattern in (_NUMBER, _WORD):
        found = pattern.match(cursor.text, cursor.at)
        if found is None:
            continue
        if pattern is _NUMBER:
            cursor.at = found.end()
            return LiteralStep(float(found[0]) if found[1] or found[2] else int(found[0]))
        if found[0] in ("true", "false"):
            cursor.at = found.end()
            return LiteralStep(found[0] == "true")
        raise cursor.wrong(f"`{found[0]}` is not a field; write `.{found[0]}`")
    raise cursor.wrong(f"`{char}` means nothing here")


def _parse_quoted(cursor: _Cursor) -> str:
    quote = cursor.peek()
    text = ""
    cursor.at += 1
    while not cursor.at_end and cursor.peek() != quote:
        if cursor.peek() == "\\":
            cursor.at += 1
            text += _ESCAPES.get(cursor.peek(), cursor.peek())
        else:
            text += cursor.peek()
        cursor.at += 1
    if cursor.at_end:
        raise cursor.wrong(f"a {quote} is not closed")
    cursor.at += 1
    return text


def _parse_brackets(cursor: _Cursor, *, depth: int) -> Path:
    begin = cursor.at
    parts = [part.strip() for part in _split_commas(_read_enclosed(cursor, "[", "]"))]
    paths = [_parse_subscript(part, cursor, begin, depth=depth) for part in parts]
    if len(paths) == 1:
        return paths[0]
    return (UnionStep(tuple(paths)),)


def _parse_subscript(
    part: str,
    cursor: _Cursor,
    begin: int,
    *,
    depth: int,
) -> Path:
    r"""Parses a subscript: `'a.b'` is the path a, b, as in kubectl; a name with a dot is
    `'a\.b'`."""
    if len(part) > 1 and part[0] in "'\"" and part[-1] == part[0]:
        return _parse_steps(_Cursor(f".{part[1:-1]}"), stop="", depth=depth + 1)
    if part == "*":
        return (SliceStep(None, None, None),)
    found = _SLICE.fullmatch(part)
    if not part or part == "-" or found is None:
        cursor.at = begin
        raise cursor.wrong(f"`[{part}]` is neither a number, a slice, a 'name' nor `*`")
    start, end, step = (_parse_bound(text) for text in found.groups())
    if found[2] is None:
        assert start is not None
        return (IndexStep(start),)
    return (SliceStep(start, end, step),)


def _parse_bound(text: str | None) -> int | None:
    digits = (text or "").removeprefix(":")
    if digits and digits != "-":
        return int(digits)
    return None


def _parse_filter(cursor: _Cursor, *, depth: int) -> FilterStep:
    cursor.at += 2
    inside = _read_enclosed(cursor, "(", ")")
    if cursor.peek() != "]":
        raise cursor.wrong("a filter ends in `)]`")
    cursor.at += 1
    left, op, right = _split_comparison(inside)
    if op not in ("", *_OPERATORS):
        raise cursor.wrong(f"`{op}` is not one of {' '.join(_OPERATORS)}")
    return FilterStep(_parse_side(left, depth), op, _parse_side(right, depth))


def _split_comparison(text: str) -> tuple[str, str, str]:
    """Returns left side, operator, right side; without an operator outside brackets all is left."""
    cursor = _Cursor(text)
    nested = 0
    while not cursor.at_end:
        char = cursor.peek()
        if char in "\"'":
            _parse_quoted(cursor)
            continue
        nested += (char in "[(") - (char in ")]")
        if char in "!<>=" and not nested:
            end = cursor.at + 1
            while text[end : end + 1] and text[end] in "!<>=~":
                end += 1
            return text[: cursor.at], text[cursor.at : end], text[end:]
        cursor.at += 1
    return text, "", ""


def _parse_side(text: str, depth: int) -> Path:
    return _parse_steps(_Cursor(text), stop="", depth=depth + 1)


def _read_enclosed(
    cursor: _Cursor,
    opens: str,
    closes: str,
) -> str:
    """Returns the text between a bracket and the one that closes it; the cursor is moved behind
    that."""
    begin = cursor.at + 1
    depth = 0
    while not cursor.at_end:
        char = cursor.peek()
        if char in "\"'":
            _parse_quoted(cursor)
            continue
        depth += (char == opens) - (char == closes)
        cursor.at += 1
        if not depth:
            return cursor.text[begin : cursor.at - 1]
    raise cursor.wrong(f"a `{opens}` is not closed")


def _split_commas(text: str) -> list[str]:
    """Splits at commas outside quotes."""
    cursor = _Cursor(text)
    parts = []
    begin = 0
    while not cursor.at_end:
        if cursor.peek() in "\"'":
            _parse_quoted(cursor)
            continue
        if cursor.peek() == ",":
            parts.append(text[begin : cursor.at])
            begin = cursor.at + 1
        cursor.at += 1
    return [*parts, text[begin:]]
