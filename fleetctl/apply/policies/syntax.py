"""Parses a CEL expression into a tree, for two things that the library lacks: writing out optional
fields (`a.?b`, `a[?0]`), and type checks (typecheck.py). Pure; called by expressions.py.

An expression that this parser cannot read is left to the library, which has messages for users.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"\s*(?://[^\n]*\s*)*(?:"
    r"(?P<text>[rRbB]{0,2}(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"))"
    r"|(?P<number>0x[0-9a-fA-F]+u?|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+u?)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%<>!?:.,()\[\]{}]))",
    re.DOTALL,
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
# Both keep the recursion of this module and of typecheck.py below CPython's 1,000 frames: a bracket
# takes nine of them to read, a step of the tree three to check.
BRACKETS_MAX = 40
TREE_HEIGHT_MAX = 100


class UnreadExpression(Exception):
    """A text that is no expression, or one that this does not know."""


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """sort: literal, name, select, index, call, list, map, unary, binary or choice. text: a literal
    as it is written, a name or an operator. parts: child nodes, the target of a call first.
    optional: true for an optional select or index. global_: true for a call without a target.
    """

    sort: str
    text: str = ""
    parts: tuple[SyntaxNode, ...] = field(default=())
    optional: bool = False
    at: int = 0
    global_: bool = False


def parse_expression(text: str) -> SyntaxNode:
    """Raises UnreadExpression, also for a tree that is too high to be walked."""
    found = _Parser(text).whole()
    level = [found]
    for _ in range(TREE_HEIGHT_MAX):
        level = [part for node in level for part in node.parts]
        if not level:
            return found
    raise UnreadExpression("it is nested too deep")


def write_expression(node: SyntaxNode) -> str:
    """Returns the expression without optional syntax. Raises UnreadExpression for a computed
    optional index.
    """
    if node.sort in ("select", "index") and _is_chain(node):
        return _render_optional(node)
    parts = [write_expression(it) for it in node.parts]
    if node.sort == "select":
        return f"{parts[0]}.{node.text}"
    if node.sort == "index":
        return f"{parts[0]}[{parts[1]}]"
    if node.sort == "call":
        inside = parts if node.global_ else parts[1:]
        begin = "" if node.global_ else f"{parts[0]}."
        return f"{begin}{node.text}({', '.join(inside)})"
    if node.sort == "list":
        return f"[{', '.join(parts)}]"
    if node.sort == "map":
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
    if node.sort == "unary":
        return f"{node.text}({parts[0]})"
    if node.sort == "binary":
        return f"({parts[0]} {node.text} {parts[1]})"
    if node.sort == "choice":
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"
    return node.text


def _is_chain(node: SyntaxNode) -> bool:
    """Returns whether a chain of steps contains an optional one."""
    while node.sort in ("select", "index"):
        if node.optional:
            return True
        node = node.parts[0]
    return False


def _render_optional(node: SyntaxNode) -> str:
    """Returns an expression for a chain with optional steps: its value if all steps from the first
    optional one exist, else no value.
    """
    steps = []
    while _is_chain(node):
        steps.append(node)
        node = node.parts[0]
    value = write_expression(node)
    conditions = []
    for step in reversed(steps):
        if step.sort == "select":
            conditions.append(f"has({value}.{step.text})")
            value = f"{value}.{step.text}"
            continue
        index = step.parts[1]
        if index.sort != "literal":
            raise UnreadExpression("an optional index must be a number or a text")
        is_number = index.text.isdecimal()
        conditions.append(
            f"size({value}) > {index.text}" if is_number else f"{index.text} in {value}"
        )
        value = f"{value}[{index.text}]"
    return f"({' && '.join(conditions)} ? optional.of({value}) : optional.none())"


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _split_tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> SyntaxNode:
        found = self._expression()
        if self._at != len(self._tokens):
            raise UnreadExpression("more follows")
        return found

    def _peek(self) -> tuple[str, str, int]:
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return ("end", "", -1)

    def _takes(self, *signs: str) -> str:
        sort, text, _ = self._peek()
        if sort in ("sign", "word") and text in signs:
            self._at += 1
            return text
        return ""

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            raise UnreadExpression(f"`{sign}` is missing")

    def _expression(self) -> SyntaxNode:
        self._depth += 1
        if self._depth > BRACKETS_MAX:
            raise UnreadExpression("it is nested too deep")
        found = self._binary(0)
        if self._takes("?"):
            first = self._expression()
            self._needs(":")
            found = SyntaxNode("choice", "?", (found, first, self._expression()), at=found.at)
        self._depth -= 1
        return found

    def _binary(self, level: int) -> SyntaxNode:
        if level == len(_LEVELS):
            return self._unary()
        found = self._binary(level + 1)
        while sign := self._takes(*_LEVELS[level]):
            found = SyntaxNode("binary", sign, (found, self._binary(level + 1)), at=found.at)
        return found

    def _unary(self) -> SyntaxNode:
        signs = []
        at = self._peek()[2]
        while sign := self._takes("!", "-"):
            signs.append((sign, at))
            at = self._peek()[2]

        found = self._primary()
        while sign := self._takes(".", ".?", "[", "[?"):
            found = self._step(found, sign)

        for sign, at in reversed(signs):
            found = SyntaxNode("unary", sign, (found,), at=at)
        return found

    def _step(self, target: SyntaxNode, sign: str) -> SyntaxNode:
        optional = sign.endswith("?")
        if sign.startswith("["):
            index = self._expression()
            self._needs("]")
            return SyntaxNode(
                "index",
                "[",
                (target, index),
                optional,
                target.at,
            )
        sort, name, at = self._peek()
        if sort != "word":
            raise UnreadExpression("a name is missing")
        self._at += 1
        if not optional and self._takes("("):
            return SyntaxNode("call", name, (target, *self._listed(")")), at=at)
        return SyntaxNode(
            "select",
            name,
            (target,),
            optional,
            at,
        )

    def _primary(self) -> SyntaxNode:
        sort, text, at = self._peek()
        self._at += 1
        if sort in ("text", "number") or text in ("true", "false", "null"):
            return SyntaxNode("literal", text, at=at)
        if sort == "word":
            if self._takes("("):
                return SyntaxNode(
                    "call",
                    text,
                    tuple(self._listed(")")),
                    at=at,
                    global_=True,
                )
            return SyntaxNode("name", text, at=at)
        if text == "(":
            found = self._expression()
            self._needs(")")
            return found
        if text == "[":
            return SyntaxNode("list", "[", tuple(self._listed("]")), at=at)
        if text == "{":
            return SyntaxNode("map", "{", tuple(self._entries()), at=at)
        raise UnreadExpression(f"`{text}` is where a value belongs")

    def _listed(self, end: str) -> Sequence[SyntaxNode]:
        found = []
        while not self._takes(end):
            found.append(self._expression())
            if not self._takes(","):
                self._needs(end)
                break
        return found

    def _entries(self) -> Iterator[SyntaxNode]:
        while not self._takes("}"):
            yield self._expression()
            self._needs(":")
            yield self._expression()
            if not self._takes(","):
                self._needs("}")
                break


def _split_tokens(text: str) -> list[tuple[str, str, int]]:
    found = []
    at = 0
    while match := _TOKEN.match(text, at):
        sort = match.lastgroup or ""
        found.append((sort, match[sort], match.start(sort)))
        at = match.end()
    if re.sub(r"//[^\n]*", "", text[at:]).strip():
        raise UnreadExpression("a character that is none of CEL's")
    return found
