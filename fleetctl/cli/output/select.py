"""`--field-selector` and `--sort-by`: filters and sorts the things of a list. Pure.

Called by lists, with a function that makes the document of a thing; loaded only for these flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from fleetctl.cli.output.jsonpath import Path, VisitLimit, find_values, format_value, parse_path
from fleetctl.cli.output.jsonpath.template_nodes import FieldStep
from fleetctl.common.errors import UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.views.objects import PARTS

Document = Mapping[str, object]
T = TypeVar("T")
# Short names for the most common paths.
SHORT = {
    "name": "metadata.name", "status": "status.phase", "phase": "status.phase",
    "state": "status.phase", "reason": "status.reason", "provider": "status.provider",
    "index": "metadata.index", "attempt": "metadata.attempt", "attempts": "status.attempts",
    "exitCode": "status.exitCode", "cost": "status.cost.actual",
    "age": "metadata.creationTimestamp", "duration": "status.durationSeconds",
    "started": "status.startTime", "gpu": "status.gpu", "wanted": "status.wanted",
}  # fmt: skip
_FIRST = ("apiVersion", "kind", *PARTS)
_DIGITS = re.compile(r"(\d+)")


class FieldTerm(NamedTuple):
    """One part of a field selector; `equal` is False for `!=`."""

    path: Path
    equal: bool
    value: str


def select_items(
    things: Iterable[T],
    document: Callable[[T, Collection[str]], Document],
    *,
    fields: str,
    sort_by: str,
) -> list[T]:
    """Returns the things that the selector takes, sorted on request. `document` gets the parts that
    are needed. Raises UsageError.
    """
    terms = field_terms(fields) if fields else ()
    parts = {part for term in terms for part in _find_parts(term.path)}
    limit = VisitLimit()
    taken = [
        one for one in things if not terms or matches_terms(terms, document(one, parts), limit)
    ]
    if sort_by:
        return sort_things(taken, document, sort_by)
    return taken


def field_terms(text: str) -> tuple[FieldTerm, ...]:
    """Parses `status.phase=Running,metadata.name!=x`: all parts must hold."""
    terms = []
    for part in text.split(","):
        for written, equal in (("!=", False), ("==", True), ("=", True)):
            name, found, value = part.partition(written)
            if found and name.strip():
                terms.append(FieldTerm(_parse_known_path(name.strip()), equal, value.strip()))
                break
        else:
            raise UsageError(
                f"`{text}` is not a field selector",
                hint="write it as status.phase=Running,metadata.name!=x",
            )
    return tuple(terms)


def matches_terms(
    terms: Iterable[FieldTerm],
    document: Document,
    limit: VisitLimit,
) -> bool:
    """Returns true where all terms hold. A field that is missing, or null, equals the empty
    text."""
    for term in terms:
        values = {
            "" if value is None else format_value(value)
            for value in find_values(term.path, document, limit)
        }
        if (term.value in (values or {""})) != term.equal:
            return False
    return True


def sort_things(
    things: list[T],
    document: Callable[[T, Collection[str]], Document],
    sort_by: str,
) -> list[T]:
    """Returns the least first; things without the field before all others, and otherwise as they
    came."""
    path = _parse_field_path(sort_by)
    parts = _find_parts(path)
    limit = VisitLimit()
    found = [find_values(path, document(one, parts), limit) for one in things]
    word = sort_by.strip().strip("{}").removeprefix(".")
    if things and not any(found) and word not in SHORT:
        raise UsageError(
            f"nothing in this list has a field `{sort_by}`",
            hint="`-o json` shows the fields that there are",
        )
    keys = [_sort_key(values[0] if values else None) for values in found]
    return [things[number] for number in sorted(range(len(things)), key=lambda n: keys[n])]


def _parse_known_path(name: str) -> Path:
    """Returns the path to select by. Raises UsageError where no document has its first field: an
    empty list would hide the slip. Fields below that may come and go.
    """
    path = _parse_field_path(name)
    if path and isinstance(path[0], FieldStep) and path[0].name not in _FIRST:
        raise UsageError(
            f"there is no field `{name}` to select by",
            hint=did_you_mean(name, SHORT)
            or f"write a path such as status.phase, or one of {', '.join(SHORT)}",
        )
    return path


def _parse_field_path(text: str) -> Path:
    word = text.strip().strip("{}").removeprefix(".")
    return parse_path(SHORT.get(word, text))


def _find_parts(path: Path) -> Collection[str]:
    """Returns the parts where a path can lead; one that does not begin with a name, anywhere."""
    if path and isinstance(path[0], FieldStep):
        return (path[0].name,)
    return PARTS


def _sort_key(value: object) -> tuple[int, float, tuple[tuple[int, str], ...]]:
    """Orders missing values first, then numbers, then texts, in which `job-9` comes before
    `job-10`."""
    if value is None:
        return 0, 0.0, ()
    if isinstance(value, (bool, int, float)):
        return 1, float(value), ()
    parts = _DIGITS.split(format_value(value))
    return 2, 0.0, tuple(_number_key(part) if n % 2 else (0, part) for n, part in enumerate(parts))


def _number_key(part: str) -> tuple[int, str]:
    """Orders numbers of equal length as texts, so the length goes first."""
    bare = part.lstrip("0")
    return len(bare), bare
