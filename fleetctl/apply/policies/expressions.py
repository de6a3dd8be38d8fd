"""One expression of CEL: checked before it is stored, bounded before it is evaluated.

The library is the binding of cel-rust, an extra, imported when a policy is looked at. It has no
limit of its own on what an evaluation costs, so that is reckoned from the text and the data first:
how often each loop goes round, and how much is copied each time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused
from fleetctl.common.install import install_hint
from fleetctl.common.text import did_you_mean

if TYPE_CHECKING:
    import cel

VARIABLES = ("object", "old", "plan", "cost", "namespace")
_NAMESPACE = "namespace_"
# One is some 0.2 µs on a small machine, so that an expression takes half a second at the most; see
# tests/bench.
COST_MAX = 2_500_000
NESTED_MAX = 3  # loops in loops
# What a round copies that looks at nothing but its own variable.
ROUND_COST = 60
PROGRAMS_KEPT_MAX = 1024
ERROR_CHARS_MAX = 200

LOOPS = ("all", "exists", "exists_one", "map", "filter")
_BUILDING = ("map", "filter")  # each round copies the list that it makes
# What cel-rust has, and Kubernetes', too.
FUNCTIONS = frozenset(
    {
        *("bytes", "contains", "double", "duration", "dyn", "endsWith", "getDate"),
        *("getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
        *("getMilliseconds", "getMinutes", "getMonth", "getSeconds", "has", "hasValue", "int"),
        *("matches", "optional.none", "optional.of", "or", "orValue", "size", "startsWith"),
        *("string", "timestamp", "type", "uint", "value", *LOOPS),
    }
)
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


class Wrong(Exception):
    """An expression that cannot be one, or cannot be evaluated here: the message says why."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Loop:
    """over: what it goes through, as a path, or "" where that is worked out. outer: the loops that
    it is in, outermost first. wide: whether a round looks at more than its own variables.
    """

    over: str
    outer: tuple[str, ...]
    builds: bool
    wide: bool


@dataclass(frozen=True, slots=True)
class Program:
    """names: which of VARIABLES it looks at."""

    text: str
    made: cel.Program
    loops: tuple[Loop, ...]
    names: frozenset[str]


class Data:
    """What expressions look at, taken over once for all of them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._context: Any = None
        self.nodes, self._longest = _sizes(values)

    @property
    def context(self) -> Any:
        if self._context is None:
            named = {
                _NAMESPACE if it == "namespace" else it: self._values[it] for it in self._values
            }
            self._context = library().Context(named)
        return self._context

    def cost(self, program: Program) -> int:
        """What an evaluation costs at most, in the unit of COST_MAX."""
        return self.nodes + sum(map(self._cost, program.loops))

    def _cost(self, loop: Loop) -> int:
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


def library() -> Any:
    """Raises Refused where it is not installed."""
    try:
        import cel
    except ImportError as error:
        raise Refused(
            "policies need the package `common-expression-language`, which is not installed",
            hint=install_hint("policies"),
        ) from error
    return cel


@lru_cache(PROGRAMS_KEPT_MAX)
def program(text: str) -> Program:
    """Raises Wrong for what is not an expression, and Refused without the library."""
    cel = library()
    loops, bound, words = _read(text)
    try:
        made = cel.compile(_speakable(text))
    except (ValueError, RuntimeError, TypeError) as error:
        raise Wrong(_syntax(str(error))) from error
    known = {*VARIABLES, _NAMESPACE, *bound}
    unknown = [it for it in made.variables() if it not in known]
    if unknown:
        near = did_you_mean(unknown[0], list(VARIABLES))
        raise Wrong(
            f"there is no variable `{unknown[0]}`", near or f"there are {', '.join(VARIABLES)}"
        )
    functions = (it for it in made.functions() if it.replace(".", "").isidentifier())
    for name in functions:
        if name not in FUNCTIONS and not name.startswith("_"):
            raise Wrong(f"there is no function `{name}`", did_you_mean(name, sorted(FUNCTIONS)))
    if any(len(it.outer) >= NESTED_MAX for it in loops):
        raise Wrong(f"more than {NESTED_MAX} loops stand in each other")
    return Program(text, made, loops, frozenset(words & set(VARIABLES)))


def evaluated(found: Program, data: Data) -> Any:
    """Its value. Raises Wrong where there is none, or it may take too long to be found."""
    cost = data.cost(found)
    if cost > COST_MAX:
        raise Wrong(
            f"it may take {cost / COST_MAX:,.0f} times as long as an expression may",
            "go through shorter lists, or ask for `size(...)`",
        )
    try:
        return found.made.execute(data.context)
    except KeyError as error:
        name = str(error).strip("'\"")
        raise Wrong(f"`{name}` is not there", f"ask `has(...{name})` first") from error
    except (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError) as error:
        raise Wrong(" ".join(str(error).split(". ")[0].split())[:ERROR_CHARS_MAX]) from error


def _speakable(text: str) -> str:
    """CEL reserves the word `namespace`, which Kubernetes' people and ours would write."""
    parts, at = [], 0
    for match in _TOKEN.finditer(text):
        word = match.lastgroup == "word" and match[0] == "namespace"
        if word and not text[: match.start()].rstrip().endswith("."):
            parts += [text[at : match.start()], _NAMESPACE]
            at = match.end()
    return "".join((*parts, text[at:]))


def _syntax(message: str) -> str:
    match = _PLACE.search(message)
    if match is None:
        return "it cannot be read"
    line, column, why = match.groups()
    where = f"column {column}" if line == "1" else f"line {line}, column {column}"
    why = why.split(" expecting ")[0].replace("'<EOF>'", "end")
    return f"{where}: {why[:ERROR_CHARS_MAX]}"


def _read(text: str) -> tuple[tuple[Loop, ...], frozenset[str], frozenset[str]]:
    """Its loops, the names that they bind, and all words outside of its strings."""
    found: list[_Seen] = []
    open_: list[_Seen | None] = []  # the loop that a bracket belongs to
    bound: set[str] = set()
    words: set[str] = set()
    for match in _TOKEN.finditer(text):
        sort = match.lastgroup
        if sort == "loop":
            name = re.sub(r"\W", "", match[0])
            outer = tuple(it.over for it in open_ if it is not None)
            over = _path_before(text[: match.start()])
            found.append(_Seen(over, outer, name in _BUILDING, match.end(), len(text)))
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
        Loop(
            _free(it.over, bound),
            tuple(_free(path, bound) for path in it.outer),
            it.builds,
            _wide(text[it.begin : it.end]),
        )
        for it in found
    ]
    return tuple(loops), frozenset(bound), frozenset(words)


@dataclass(slots=True)
class _Seen:
    """A loop while the text is read. begin, end: of what stands in its brackets."""

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


def _free(path: str, bound: set[str]) -> str:
    """The path, where it begins at a variable that is not of a loop."""
    first = path.split(".")[0]
    return path if first in VARIABLES and first not in bound else ""


def _wide(inside: str) -> bool:
    return any(it.lastgroup == "word" and it[0] in VARIABLES for it in _TOKEN.finditer(inside))


def _sizes(value: Any) -> tuple[int, int]:
    """How many values are in it, and the length of the longest list, mapping or text."""
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
