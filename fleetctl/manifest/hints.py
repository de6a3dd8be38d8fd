"""What a person most likely meant by a value that will not do. Called by messages.py; pure."""

from __future__ import annotations

import re
from typing import Any

from fleetctl.manifest.problems import Path, shortened

_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?|\{\{.*?\}\}|\$\(.*?\)")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtTpP])(i?)[bB]?(?:ytes?)?\s*")
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_SPAN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(\w+?)s?\s*")
_SPANS = {
    **dict.fromkeys(("sec", "second", "S"), "s"),
    **dict.fromkeys(("min", "minute", "M"), "m"),
    **dict.fromkeys(("hr", "hour", "H"), "h"),
    **dict.fromkeys(("day", "D"), "d"),
}
_SIZES = frozenset({"memory", "disk", "size"})
WHOLE_MAX = 1e15  # a float holds every whole number below

UNEXPANDED = "variables are not expanded in a manifest: `envsubst < FILE | fleetctl apply -f -`"


def of_value(sort: str, path: Path, value: Any) -> str:
    """A hint on a value of the wrong sort or form; empty where nothing is likely. sort: pydantic's
    name for what is wrong.
    """
    field = path[-1] if path else ""
    if isinstance(value, str) and _VARIABLE.search(value):
        return UNEXPANDED
    if field in _SIZES and isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number, unit = match[1], match[2].upper()
        plain = "k" if unit == "K" else unit
        return f"did you mean `{number}{unit}i`" + (
            "?" if match[3] else f" (binary) or `{number}{plain}` (decimal)?"
        )
    if isinstance(field, str) and field.endswith("Seconds") and isinstance(value, str):
        match = _SPAN.fullmatch(value)
        unit = _SPANS.get(match[2].lower() if len(match[2]) > 1 else match[2]) if match else None
        return f"did you mean `{match[1]}{unit}`?" if match and unit else ""
    if sort == "int_type":
        return _whole(value)
    if sort == "string_type" and isinstance(value, dict) and len(value) == 1:
        ((key, one),) = value.items()
        if isinstance(one, str | int | float) or one is None:
            text = f"{key}: {'' if one is None else one}".strip()
            return f'quote a text with a colon in it: `"{shortened(text)}"`'
    return ""


def of_labels(path: Path, value: Any) -> str:
    """For who writes a selector as Kubernetes has it."""
    if path[-1:] == ("matchLabels",) and isinstance(value, dict):
        pairs = ", ".join(f"{key}: {one}" for key, one in value.items())
        return f"write the labels themselves: `selector: {{{shortened(pairs)}}}`"
    if path[-1:] == ("matchExpressions",):
        return "write the labels themselves: `selector: {team: vision}`"
    return ""


def _whole(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE_MAX:
        return f"write `{int(value)}`"
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        count = float(match[1]) * 2
        return f"write how many: {match[1]}% of 200 is `{count:g}`"
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}([_,][0-9]{3})+", value):
        return f"write `{value.replace('_', '').replace(',', '')}`"
    return ""
