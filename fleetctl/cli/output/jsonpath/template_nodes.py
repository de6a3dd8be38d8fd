"""The parts of a JSONPath template. Named tuples: reading verbs load no dataclasses."""

from __future__ import annotations

from typing import NamedTuple


class FieldStep(NamedTuple):
    """`.name`, or `['name']`."""

    name: str


class WildcardStep(NamedTuple):
    """`.*`: the values of an object or the members of a list."""


class RecursiveStep(NamedTuple):
    """`..`: the value itself and everything in it."""


class SliceStep(NamedTuple):
    """`[start:end:step]`; None for an empty part. `[*]` is the whole."""

    start: int | None
    end: int | None
    step: int | None


class IndexStep(NamedTuple):
    """`[n]`; negative ones count from the end."""

    at: int


class UnionStep(NamedTuple):
    """`[0,2]` and `['a','b']`: the results of each part, in turn."""

    parts: tuple[Path, ...]


class LiteralStep(NamedTuple):
    """`"text"`, `3`, `true`: itself, at any position."""

    value: str | float | bool


class FilterStep(NamedTuple):
    """`[?(@.a == "x")]`; without a comparison: members in which `left` has a result."""

    left: Path
    op: str
    right: Path


OneStep = (
    FieldStep | WildcardStep | RecursiveStep | SliceStep | IndexStep | LiteralStep | FilterStep
)
Step = OneStep | UnionStep
Path = tuple[Step, ...]


class RangeBlock(NamedTuple):
    """`{range PATH}BODY{end}`: the body for each result of the path."""

    over: Path
    body: Template


Template = tuple["str | Path | RangeBlock", ...]
