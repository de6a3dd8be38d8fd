"""The `describe` of an object that does no work: its spec, a line a field, and further lines of its
kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from fleetctl.common.text import format_assignments, format_duration, format_money, format_scalar
from fleetctl.specs.kinds.shown import DescribeField
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading


def asset_lines(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line."""
    yield from _describe_fields(seen)
    if seen.kind.lines:
        module, _, name = seen.kind.lines.partition(":")
        yield from getattr(import_module(module), name)(seen, reading, now_s)


def _describe_fields(seen: View) -> Iterator[tuple[str, str]]:
    """Yields the fields of a spec: those with a default first, as its kind's row has them, then the
    others in their order. A Secret's has references, never values.
    """
    rows = {it.path: it for it in seen.kind.fields}
    defaults = {it.path: it.default for it in rows.values() if it.default is not None}
    for key, value in {**defaults, **seen.shown_spec()}.items():
        row = rows.get(key) or DescribeField(key[:1].upper() + key[1:], key)
        shown = _FORMATS[row.format](value)
        if shown and row.title:
            yield row.title, shown


def _format_sources(value: object) -> str:
    """Returns `TOKEN from HF_TOKEN`."""
    if not isinstance(value, dict):
        return _format_list(value)
    return ", ".join(f"{name} from {source}" for name, source in value.items())


def _format_span(value: object) -> str:
    return format_duration(value) if isinstance(value, (int, float)) else _format_list(value)


def _format_usd(value: object) -> str:
    return format_money(value) if isinstance(value, (int, float)) else _format_list(value)


def _format_list(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_format_value(item) for item in value)
    return _format_value(value)


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return format_assignments(dict(_walk_leaves(value)))
    if value is None:
        return ""
    return format_scalar(value).strip('"')


def _walk_leaves(value: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Yields the fields of a block, by dotted names; whole numbers as users write them."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _walk_leaves(inner, f"{above}{name}.")
        elif isinstance(inner, float) and inner.is_integer():
            yield above + name, int(inner)
        else:
            yield above + name, inner


_FORMATS: Mapping[str, Callable[[object], str]] = {
    "": _format_list,
    "duration": _format_span,
    "money": _format_usd,
    "sources": _format_sources,
}
