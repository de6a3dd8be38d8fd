"""Compiles CEL rules as the real server does: against the types that a schema declares.

A field whose schema has no type does not exist for a rule, nor does a list or map of untyped
values. One pass over the text gives the type and the maximal cost of an expression. A type is a
schema of its own, whose `most` is the maximal length of a text or number of items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.emulators.kubernetes.schema.nodes import Node

DYN: Node = {"dyn": True}
BOOL, INT, TEXT = {"type": "boolean"}, {"type": "integer"}, {"type": "string"}
DOUBLE, NULL = {"type": "number"}, {"type": "null"}
_SCALARS = ("string", "integer", "number", "boolean")
# The largest request, from which the server computes the length of values without a limit.
REQUEST_BYTES = 3 * 1024 * 1024
_LEAST_BYTES = {"string": 2, "integer": 1, "number": 1, "boolean": 4, "object": 2, "array": 2}
_EACH_CHARACTER = 0.1  # cost of looking at one
# Words of CEL's own, which a rule writes as `__in__`.
_RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import"),
        *("in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void"),
        "while",
    )
)
_TOKEN = re.compile(
    r"\s*(?:(?P<text>[rb]?(?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"))"
    r"|(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)|(?P<int>0x[0-9a-fA-F]+u?|\d+u?)"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign>&&|\|\||==|!=|<=|>=|\[\?|[-+*/%<>!?:.,()\[\]{}]))"
)
_LOOPS = ("all", "exists", "exists_one", "map", "filter")
_OF_TEXT = {
    **dict.fromkeys(("contains", "endsWith", "startsWith", "matches"), BOOL),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "replace", "substring", "charAt"), TEXT),
    "size": INT,
    "indexOf": INT,
    "lastIndexOf": INT,
    "split": {"type": "array", "items": TEXT},
    "find": TEXT,
    "findAll": {"type": "array", "items": TEXT},
}
_OF_LISTS: Mapping[str, Callable[[Node], Node]] = {
    "size": lambda _: INT,
    "sum": lambda it: it,
    "min": lambda it: it,
    "max": lambda it: it,
    "isSorted": lambda _: BOOL,
    "indexOf": lambda _: INT,
    "lastIndexOf": lambda _: INT,
}
_GLOBAL = {
    **dict.fromkeys(("int", "uint"), INT),
    **dict.fromkeys(("double",), DOUBLE),
    "string": TEXT,
    "bool": BOOL,
    "size": INT,
    "type": DYN,
    "dyn": DYN,
    **dict.fromkeys(("duration", "timestamp", "quantity", "url", "ip", "cidr"), DYN),
    **dict.fromkeys(("isQuantity", "isURL", "isIP", "isCIDR"), BOOL),
}


class CompileError(Exception):
    """at: the column, from 0. The message is the server's."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


def declared(node: Node, *, root: bool = False) -> Node | None:
    """Returns the type of a schema in rules; None without a type."""
    if node.get("x-kubernetes-int-or-string"):
        return DYN
    sort = node.get("type")
    if sort == "object":
        return _declared_object(node, root=root)
    if sort == "array":
        inner = declared(node.get("items") or {})
        if inner is None:
            return None
        return {"type": "array", "items": inner, "most": most_of(node)}
    if sort == "string":
        return DYN if node.get("format") in _OTHERS else {"type": sort, "most": most_of(node)}
    return {"type": sort} if sort in _SCALARS else None


def most_of(node: Node) -> int:
    """Items, entries or bytes that a value may have."""
    if node.get("type") == "string":
        return int(node["maxLength"]) * 4 if "maxLength" in node else REQUEST_BYTES - 2
    limit = node.get("maxItems", node.get("maxProperties"))
    if limit is not None:
        return int(limit)
    inner = node.get("items") or node.get("additionalProperties") or {}
    return REQUEST_BYTES // (_LEAST_BYTES.get(str(inner.get("type")), 1) + 1)


_OTHERS = ("date-time", "date", "duration", "byte")


def _declared_object(node: Node, *, root: bool) -> Node | None:
    more = node.get("additionalProperties")
    if isinstance(more, dict):
        inner = declared(more)
        if inner is None:
            return None
        return {"type": "object", "additionalProperties": inner, "most": most_of(node)}
    fields = {}
    for name, one in node.get("properties", {}).items():
        inner = declared(one)
        if inner is not None:
            fields[_escaped(name)] = inner
    if root or node.get("x-kubernetes-embedded-resource"):
        named = {"name": TEXT, "generateName": TEXT}
        fields |= {"apiVersion": TEXT, "kind": TEXT}
        fields["metadata"] = {"type": "object", "properties": named}
    return {"type": "object", "properties": fields}


def _escaped(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    signs = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
    for sign, words in signs.items():
        name = name.replace(sign, words)
    return name


def cost_of_rule(text: str, node: Node, *, root: bool = False) -> float:
    """Returns the maximal cost of one evaluation. Raises CompileError as the server does."""
    this = declared(node, root=root)
    if this is None:
        raise CompileError(0, "undeclared reference to 'self' (in container '')")
    compiler = _Compiler(text, {"self": this, "oldSelf": this})
    if compiler.whole() not in (BOOL, DYN):
        raise CompileError(0, "must evaluate to a bool")
    return compiler.cost


class _Compiler:
    """names: the types of variables. Each method takes what it reads from the front."""

    cost = 0.0

    def __init__(self, text: str, names: Mapping[str, Node]) -> None:
        self._text, self._at, self._names = text, 0, dict(names)
        self._next: tuple[str, str, int] = ("", "", 0)
        self._advance()

    def whole(self) -> Node:
        found = self._expression()
        if self._next[0] != "end":
            raise self._syntax()
        return found

    def _advance(self) -> tuple[str, str, int]:
        taken = self._next
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self._text[self._at :].strip():
                raise CompileError(self._at, "Syntax error: token recognition error")
            self._next = "end", "", len(self._text)
        else:
            sort = match.lastgroup or ""
            self._next = sort, match[sort], match.start(sort)
            self._at = match.end()
        return taken

    def _takes(self, *signs: str) -> str:
        if self._next[0] in ("sign", "word") and self._next[1] in signs:
            return self._advance()[1]
        return ""

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._syntax()

    def _syntax(self) -> CompileError:
        return CompileError(self._next[2], f"Syntax error: mismatched input '{self._next[1]}'")

    def _expression(self) -> Node:
        found = self._binary(0)
        if not self._takes("?"):
            return found
        first = self._expression()
        self._needs(":")
        other = self._expression()
        return first if first == other else DYN

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        found = self._binary(level + 1)
        while sign := self._takes(*_LEVELS[level]):
            at = self._next[2]
            found = _operated(sign, found, self._binary(level + 1), at)
        return found

    def _unary(self) -> Node:
        if self._takes("!"):
            at = self._next[2]
            return _operated("!", self._unary(), BOOL, at)
        if self._takes("-"):
            return self._unary()
        return self._member(self._primary())

    def _member(self, found: Node) -> Node:
        while True:
            if self._takes("."):
                optional = bool(self._takes("?"))
                sort, name, at = self._advance()
                if sort != "word":
                    raise CompileError(at, f"Syntax error: no viable alternative at '{name}'")
                if self._takes("("):
                    found = self._call(found, name, at)
                else:
                    inner = _field(found, name, at)
                    found = DYN if optional else inner
                self.cost += 1
            elif self._takes("[", "[?"):
                self._expression()
                self._needs("]")
                found = found.get("items") or found.get("additionalProperties") or DYN
            else:
                return found

    def _call(self, target: Node, name: str, at: int) -> Node:
        if name in _LOOPS and (target.get("type") in ("array", "object") or target is DYN):
            return self._loop(target, name)
        self._arguments()
        sort = target.get("type")
        if sort == "string" and name in _OF_TEXT:
            self.cost += 0 if name == "size" else target.get("most", 0) * _EACH_CHARACTER
            return _OF_TEXT[name]
        if sort == "array" and name in _OF_LISTS:
            return _OF_LISTS[name](target.get("items", DYN))
        if sort == "object" and name == "size" and "additionalProperties" in target:
            return INT
        if target is DYN:
            return DYN
        detail = f"found no matching overload for '{name}' applied to '{_shown(target)}.()'"
        raise CompileError(at, detail)

    def _loop(self, target: Node, name: str) -> Node:
        _, bound, _ = self._advance()
        self._needs(",")
        element = target.get("items", DYN) if target.get("type") == "array" else TEXT
        before = self._names.get(bound)
        self._names[bound] = DYN if target is DYN else element
        before_cost, self.cost = self.cost, 1.0
        found = self._expression()
        if self._takes(","):
            found = self._expression()
        self._needs(")")
        self.cost = before_cost + self.cost * target.get("most", 1)
        self._names.pop(bound)
        if before is not None:
            self._names[bound] = before
        if name == "map":
            return {"type": "array", "items": found}
        return {"type": "array", "items": element} if name == "filter" else BOOL

    def _arguments(self) -> list[Node]:
        found = []
        while not self._takes(")"):
            found.append(self._expression())
            self._takes(",")
        return found

    def _primary(self) -> Node:
        sort, text, at = self._advance()
        if sort in _LITERALS:
            return _LITERALS[sort]
        if sort == "sign" and text == "(":
            found = self._expression()
            self._needs(")")
            return found
        if sort == "sign" and text == "[":
            return self._list()
        if sort != "word":
            raise CompileError(at, f"Syntax error: extraneous input '{text}'")
        if text in ("true", "false"):
            return BOOL
        if text == "null":
            return NULL
        if self._takes("("):
            return self._global(text, at)
        if text not in self._names:
            raise CompileError(at, f"undeclared reference to '{text}' (in container '')")
        return self._names[text]

    def _list(self) -> Node:
        items = []
        while not self._takes("]"):
            items.append(self._expression())
            self._takes(",")
        same = items and all(it == items[0] for it in items)
        return {"type": "array", "items": items[0] if same else DYN}

    def _global(self, name: str, at: int) -> Node:
        found = self._arguments()
        if name == "has":
            return BOOL
        if name not in _GLOBAL:
            raise CompileError(at, f"undeclared reference to '{name}' (in container '')")
        countable = ("string", "array", "object")
        if name == "size" and found[0] is not DYN and found[0].get("type") not in countable:
            detail = f"found no matching overload for 'size' applied to '({_shown(found[0])})'"
            raise CompileError(at, detail)
        return _GLOBAL[name]


_LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LITERALS = {"text": TEXT, "int": INT, "double": DOUBLE}
_SIGNS = {"&&": "_&&_", "||": "_||_", "!": "!_", "in": "@in"}


def _field(node: Node, name: str, at: int) -> Node:
    if node is DYN:
        return DYN
    if "additionalProperties" in node:
        found: Node = node["additionalProperties"]
        return found
    if node.get("type") != "object":
        raise CompileError(at, f"type '{_shown(node)}' does not support field selection")
    if name not in node["properties"]:
        raise CompileError(at, f"undefined field '{name}'")
    inner: Node = node["properties"][name]
    return inner


def _operated(sign: str, left: Node, right: Node, at: int) -> Node:
    """Returns the type of an operator's result."""
    sorts = {it.get("type") for it in (left, right) if it is not DYN} - {"null"}
    if sign in ("&&", "||", "!"):
        fits, found = sorts <= {"boolean"}, BOOL
    elif sign == "in":
        fits, found = right is DYN or right.get("type") in ("array", "object"), BOOL
    elif sign in ("==", "!=", "<", "<=", ">", ">="):
        numbers = {"integer", "number"}
        fits, found = len(sorts) <= 1 or (sorts <= numbers and sign not in ("==", "!=")), BOOL
    else:
        fits, found = len(sorts) <= 1, left if left is not DYN else right
    if fits:
        return found
    name = _SIGNS.get(sign, f"_{sign}_")
    shown = f"({_shown(left)}, {_shown(right)})"
    raise CompileError(at, f"found no matching overload for '{name}' applied to '{shown}'")


def _shown(node: Node) -> str:
    if node is DYN:
        return "dyn"
    names: dict[Any, str] = {"integer": "int", "number": "double", "boolean": "bool"}
    sort = node.get("type")
    if sort == "array":
        return f"list({_shown(node['items'])})"
    if sort == "object" and "additionalProperties" in node:
        return f"map(string, {_shown(node['additionalProperties'])})"
    return names.get(sort, str(sort))
