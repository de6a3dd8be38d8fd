"""The sources of the metrics of a program that does not know us: `metrics` of a template. Pure.

The values are explained in fleetctl/guest/metrics, which reads them beside the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.values.scalars import NonEmptyText, Spec

REGEX_CHARACTERS_MAX = 1000
# Rounds that an expression goes on an empty text, where each takes memory of the searching process.
EMPTY_ROUNDS_MAX = 10_000
NAME = "name"
VALUE = "value"
STEP = "step"
EXAMPLES = "`loss: (?P<loss>\\S+)` or `(?P<name>\\w+)=(?P<value>[-+.\\w]+)`"


def _finds_metrics(value: str) -> str:
    try:
        pattern = re.compile(value)
    except re.error as error:
        raise ValueError(f"it is not a regular expression of Python: {error}") from error
    except (RecursionError, OverflowError) as error:
        raise ValueError("it is nested too deep, or repeats too often") from error
    named = set(pattern.groupindex)
    if not named and pattern.groups < 2:
        raise ValueError(f"it names no metric; write {EXAMPLES}")
    if VALUE in named and NAME not in named and not named - {VALUE, STEP}:
        raise ValueError(f"its group `value` has no group `name` beside it; write {EXAMPLES}")
    if named and not named - {STEP}:
        raise ValueError(f"its group `step` has no metric beside it; write {EXAMPLES}")
    parsed = parser.parse(value)
    if _is_maybe_empty(parsed) and not any(map(_looks_around, _parts_of(parsed))):
        raise ValueError(f"it matches the empty text, so every line; write {EXAMPLES}")
    if _empty_rounds(parsed) > EMPTY_ROUNDS_MAX:
        raise ValueError("it repeats what may be empty more than 10,000 times")
    return value


# How the standard library's own parser sees an expression: it is never tried here, as a text of a
# thousand characters can take for ever on a line without a match.
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_LOOKS = (codes.ASSERT, codes.ASSERT_NOT)


def _is_maybe_empty(parsed: Any) -> bool:
    return bool(parsed.getwidth()[0] == 0)


def _looks_around(part: tuple[Any, Any]) -> bool:
    """Returns True if the part checks its surroundings, so that an empty text may not do."""
    code, given = part
    return code in _LOOKS or given in (codes.AT_BOUNDARY, codes.AT_NON_BOUNDARY)


def _parts_of(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (code, arguments) of all parts at every depth."""
    for code, given in parsed:
        yield code, given
        for inner in _inner_expressions(given):
            yield from _parts_of(inner)


def _inner_expressions(given: Any) -> Iterator[Any]:
    """Yields the expressions among the arguments of a part."""
    if isinstance(given, parser.SubPattern):
        yield given
    elif isinstance(given, tuple | list):
        for one in given:
            yield from _inner_expressions(one)


def _empty_rounds(parsed: Any) -> int:
    """Returns the highest number of repetitions of a part that may be empty, loops in loops."""
    most = 1
    for code, given in parsed:
        rounds = given[0] if code in _REPEATS and _is_maybe_empty(given[2]) else 1
        most = max(most, *(rounds * _empty_rounds(it) for it in _inner_expressions(given)), 1)
    return most


Regex = Annotated[
    NonEmptyText, Field(max_length=REGEX_CHARACTERS_MAX), AfterValidator(_finds_metrics)
]


class Metrics(Spec):
    """Metrics that a program prints or writes, beside those that it reports to fleetctl."""

    from_: Literal["stdout", "tensorboard", "jsonl"] = Field(
        alias="from",
        description="stdout: what it prints; tensorboard: event files; jsonl: JSON objects, one a"
        " line.",
    )
    regex: Regex | None = Field(
        default=None,
        description="For stdout: named groups, as `loss: (?P<loss>\\S+)`; default none.",
    )
    path: NonEmptyText | None = Field(
        default=None,
        description="For files: from where the task starts; may be a pattern; default none.",
    )

    @model_validator(mode="after")
    def _has_what_it_reads(self) -> Metrics:
        own, other = ("regex", "path") if self.from_ == "stdout" else ("path", "regex")
        if getattr(self, own) is None:
            raise ValueError(f"`from: {self.from_}` needs `{own}`: {_WHAT[own]}")
        if getattr(self, other) is not None:
            raise ValueError(f"`from: {self.from_}` has no use for `{other}`; remove it")
        return self


_WHAT = {"regex": "what a metric looks like in a line", "path": "which files to read"}
