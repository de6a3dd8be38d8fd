"""One expression of CEL: parsed into a tree of ours, checked before it is stored, bounded before it
is evaluated.

The library is the binding of cel-rust, an extra, imported when a policy is evaluated. It has no
limit on the cost of an evaluation, so that is estimated from the text and the data first: the
rounds of each loop, and the bytes copied each time. The growth of texts cannot be estimated;
evaluator.py bounds that. An expression that the parser here cannot read is left to the library,
which has messages for users.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused
from fleetctl.common.install import install_hint
from fleetctl.common.text import did_you_mean

if TYPE_CHECKING:
    import cel


VARIABLES = ("object", "old", "plan", "cost", "namespace")
_NAMESPACE = "namespace_"
# One unit is some 0.02 µs on a small machine, so that loops alone take 50 ms at the most.
COST_MAX = 2_500_000
NESTED_MAX = 3  # loops in loops
# The copying cost of a round that reads only its own variable.
ROUND_COST = 60
PROGRAMS_KEPT_MAX = 1024
ERROR_CHARS_MAX = 200

LOOPS = ("all", "exists", "exists_one", "map", "filter")
_BUILDING = ("map", "filter")  # each round copies the list that it makes
# The functions of cel-rust and of Kubernetes' CEL.
FUNCTIONS = frozenset(
    {
        *("bytes", "contains", "double", "duration", "dyn", "endsWith", "getDate"),
        *("getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
        *("getMilliseconds", "getMinutes", "getMonth", "getSeconds", "has", "hasValue", "int"),
        *("matches", "none", "of", "or", "orValue", "size", "startsWith"),
        *("string", "timestamp", "type", "uint", "value", *LOOPS),
    }
)
# In `optional.of(...)` and `optional.none()`: the library takes it for a variable.
_OPTIONAL = "optional"
_TOKEN = re.compile(
    r"(?P<text>[rRbB]{0,2}(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"))"
    r"|(?P<note>//[^\n]*)"
    r"|(?P<loop>\.\s*(?:all|exists_one|exists|map|filter)\s*\()"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<other>.)",
    re.DOTALL,
)
_PATH = re.compile(r"[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*\s*$")
_BOUND = re.compile(r"\s*([A-Za-z_]\w*)\s*,")
_PLACE = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?(.*)")

_SYNTAX_TOKEN = re.compile(
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


class ExpressionError(Exception):
    """Raised for text that is not an expression, or that cannot be evaluated here, with the
    reason."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class ExpressionLoop:
    """One loop. over: the path of the list, or "" where it is computed. outer: the enclosing loops,
    outermost first. wide: a round reads more than its own variables.
    """

    over: str
    outer: tuple[str, ...]
    builds: bool
    wide: bool


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """A checked expression. names: the members of VARIABLES that it reads."""

    text: str
    made: cel.Program
    loops: tuple[ExpressionLoop, ...]
    names: frozenset[str]


class ExpressionData:
    """The data that expressions read, converted once for all expressions."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._context: Any = None
        self.nodes, self._longest = _measure_sizes(values)

    @property
    def context(self) -> Any:
        if self._context is None:
            named = {
                _NAMESPACE if it == "namespace" else it: self._values[it] for it in self._values
            }
            self._context = load_cel().Context(named)
        return self._context

    def cost(self, program: CompiledExpression) -> int:
        """Returns the maximal cost of an evaluation, in the unit of COST_MAX."""
        return self.nodes + sum(map(self._cost, program.loops))

    def _cost(self, loop: ExpressionLoop) -> int:
        rounds = 1
        for over in loop.outer:
            rounds *= self._length(over)
        length = self._length(loop.over)
        each = self.nodes + ROUND_COST if loop.wide else ROUND_COST
        return rounds * (length * each + (length * length if loop.builds else 0))

    def _length(self, path: str) -> int:
        value: Any = self._values
        for name in path.split(".") if path else ():
            value = value.get(name) if isinstance(value, dict) else None
        known = isinstance(value, list | dict) and bool(path)
        return max(1, len(value) if known else self._longest)


def load_cel() -> Any:
    """Imports the library. Raises Refused where it is not installed."""
    try:
        import cel
    except ImportError as error:
        raise Refused(
            "policies need the package `common-expression-language`, which is not installed",
            hint=install_hint("policies"),
        ) from error
    return cel


@lru_cache(PROGRAMS_KEPT_MAX)
def compile_expression(text: str) -> CompiledExpression:
    """Parses an expression. Raises ExpressionError for invalid text, and Refused without the
    library.
    """
    cel = load_cel()
    loops, bound, words = _read_loops(text)
    try:
        made = cel.compile(_escape_reserved(_without_optionals(text)))
    except (ValueError, RuntimeError, TypeError) as error:
        raise ExpressionError(_describe_syntax_error(str(error))) from error
    known = {*VARIABLES, _NAMESPACE, *bound, _OPTIONAL}
    unknown = [it for it in made.variables() if it not in known]
    if unknown:
        near = did_you_mean(unknown[0], list(VARIABLES))
        raise ExpressionError(
            f"there is no variable `{unknown[0]}`", near or f"there are {', '.join(VARIABLES)}"
        )
    functions = (it for it in made.functions() if it.replace(".", "").isidentifier())
    for name in functions:
        if name not in FUNCTIONS and not name.startswith("_"):
            raise ExpressionError(
                f"there is no function `{name}`", did_you_mean(name, sorted(FUNCTIONS))
            )
    if any(len(it.outer) >= NESTED_MAX for it in loops):
        raise ExpressionError(f"more than {NESTED_MAX} loops are nested in each other")
    return CompiledExpression(text, made, loops, frozenset(words & set(VARIABLES)))


def evaluate_expression(found: CompiledExpression, data: ExpressionData) -> Any:
    """Returns the value. Raises ExpressionError where there is none, or its evaluation may take
    too long.
    """
    cost = data.cost(found)
    if cost > COST_MAX:
        raise ExpressionError(
            f"it may take {cost / COST_MAX:,.0f} times as long as an expression may",
            "go through shorter lists, or ask for `size(...)`",
        )
    try:
        return found.made.execute(data.context)
    except KeyError as error:
        name = str(error).strip("'\"")
        raise ExpressionError(f"`{name}` is not there", f"ask `has(...{name})` first") from error
    except (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError) as error:
        raise ExpressionError(
            " ".join(str(error).split(". ")[0].split())[:ERROR_CHARS_MAX]
        ) from error


def _without_optionals(text: str) -> str:
    """Returns the expression without optional syntax, which the library does not know."""
    if ".?" not in text and "[?" not in text:
        return text
    try:
        return write_expression(parse_expression(text))
    except UnreadExpression as error:
        raise ExpressionError(f"its optional fields cannot be read: {error}") from error


def _escape_reserved(text: str) -> str:
    """Renames `namespace`, a word that CEL reserves and that users of Kubernetes and ours would
    write."""
    parts = []
    at = 0
    for match in _TOKEN.finditer(text):
        word = match.lastgroup == "word" and match[0] == "namespace"
        if word and not text[: match.start()].rstrip().endswith("."):
            parts += [text[at : match.start()], _NAMESPACE]
            at = match.end()
    return "".join((*parts, text[at:]))


def _describe_syntax_error(message: str) -> str:
    match = _PLACE.search(message)
    if match is None:
        return "it cannot be read"
    line, column, why = match.groups()
    where = f"column {column}" if line == "1" else f"line {line}, column {column}"
    why = why.split(" expecting ")[0].replace("'<EOF>'", "end")
    return f"{where}: {why[:ERROR_CHARS_MAX]}"


def _read_loops(text: str) -> tuple[tuple[ExpressionLoop, ...], frozenset[str], frozenset[str]]:
    """Returns its loops, the names that they bind, and all words outside of its strings."""
    found: list[_OpenLoop] = []
    open_: list[_OpenLoop | None] = []  # the loop that a bracket belongs to
    bound: set[str] = set()
    words: set[str] = set()
    for match in _TOKEN.finditer(text):
        sort = match.lastgroup
        if sort == "loop":
            name = re.sub(r"\W", "", match[0])
            outer = tuple(it.over for it in open_ if it is not None)
            over = _path_before(text[: match.start()])
            found.append(
                _OpenLoop(
                    over,
                    outer,
                    name in _BUILDING,
                    match.end(),
                    len(text),
                )
            )
            open_.append(found[-1])
            if named := _BOUND.match(text, match.end()):
                bound.add(named[1])
        elif sort == "open":
            open_.append(None)
        elif sort == "close" and open_:
            if (seen := open_.pop()) is not None:
                seen.end = match.start()
        elif sort == "word":
            words.add(match[0])
    loops = [
        ExpressionLoop(
            _free_path(it.over, bound),
            tuple(_free_path(path, bound) for path in it.outer),
            it.builds,
            _uses_variables(text[it.begin : it.end]),
        )
        for it in found
    ]
    return tuple(loops), frozenset(bound), frozenset(words)


@dataclass(slots=True)
class _OpenLoop:
    """A loop while the text is read. begin, end: of the text in its brackets."""

    over: str
    outer: tuple[str, ...]
    builds: bool
    begin: int
    end: int


def _path_before(text: str) -> str:
    match = _PATH.search(text)
    if match is None or text[: match.start()].rstrip().endswith((".", "]", ")")):
        return ""
    return re.sub(r"\s", "", match[0])


def _free_path(path: str, bound: set[str]) -> str:
    """Returns the path where it begins at a variable that is not of a loop."""
    first = path.split(".")[0]
    if first in VARIABLES and first not in bound:
        return path
    return ""


def _uses_variables(inside: str) -> bool:
    return any(it.lastgroup == "word" and it[0] in VARIABLES for it in _TOKEN.finditer(inside))


def _measure_sizes(value: Any) -> tuple[int, int]:
    """Returns the number of values in it, and the length of the longest list, mapping or text."""
    nodes = longest = 0
    left: list[Any] = [value]
    while left:
        one = left.pop()
        nodes += 1
        if isinstance(one, dict):
            longest = max(longest, len(one))
            left += one.values()
        elif isinstance(one, list):
            longest = max(longest, len(one))
            left += one
    return nodes, longest


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
    """Returns the syntax tree of an expression. Raises UnreadExpression, also for one that is
    nested too deep.
    """
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
    while match := _SYNTAX_TOKEN.match(text, at):
        sort = match.lastgroup or ""
        found.append((sort, match[sort], match.start(sort)))
        at = match.end()
    if re.sub(r"//[^\n]*", "", text[at:]).strip():
        raise UnreadExpression("a character that is none of CEL's")
    return found
