"""What a JSONPath template is made of. Named tuples: reading verbs load no dataclasses."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """`.name`, or `['name']`."""

    name: str


class Wildcard(NamedTuple):
    """`.*`: the values of an object or the members of a list."""


class Recursive(NamedTuple):
    """`..`: the value itself and everything in it."""


class Slice(NamedTuple):
    """`[start:end:step]`; None where nothing stands. `[*]` is the whole."""

    start: int | None
    end: int | None
    step: int | None


class Index(NamedTuple):
    """`[n]`; negative ones count from the end."""

    at: int


class Union(NamedTuple):
    """`[0,2]` and `['a','b']`: what each part finds, in turn."""

    parts: tuple[Path, ...]


class Literal(NamedTuple):
    """`"text"`, `3`, `true`: itself, wherever it stands."""

    value: str | float | bool


class Filter(NamedTuple):
    """`[?(@.a == "x")]`; without a comparison: members in which `left` finds something."""

    left: Path
    op: str
    right: Path


OneStep = Field | Wildcard | Recursive | Slice | Index | Literal | Filter
Step = OneStep | Union
Path = tuple[Step, ...]


class Range(NamedTuple):
    """`{range PATH}BODY{end}`: the body for each thing that the path finds."""

    over: Path
    body: Template


Template = tuple["str | Path | Range", ...]
