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
_SWEEP = re.compile(r"(?:https?://[^/]+/)?([^/\s]+)/([^/\s]+)/(?:sweeps/)?([^/\s]+)")
_SIZES = frozenset({"memory", "disk", "size"})
WHOLE_MAX = 1e15  # a float holds every whole number below

UNEXPANDED = (
    "those of a shell are not expanded in a manifest: declare one in `kind: Variables` and write"
    ' `"${{ name }}"`, or use `envsubst < FILE | fleetctl apply -f -`'
)


def of_value(sort: str, path: Path, value: Any) -> str:
    """A hint on a value of the wrong sort or form; empty where nothing is likely. sort: pydantic's
    name for what is wrong.
    """
    field = path[-1] if path else ""
    if field == "resumeArgs" and isinstance(value, str):
        return 'write a list: `[--resume, "${checkpoint}"]`'
    if field == "sweepId" and isinstance(value, str) and (match := _SWEEP.fullmatch(value)):
        entity, project, name = match.groups()
        return f"write `{{entity: {entity}, project: {project}, sweepId: {name}}}`"
    if isinstance(value, str) and _VARIABLE.search(value):
        return UNEXPANDED
    if field in _SIZES and isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number, unit = match[1], match[2].upper()
        plain = "k" if unit == "K" else unit
        return f"did you mean `{number}{unit}i`" + (
            "?" if match[3] else f" (binary) or `{number}{plain}` (decimal)?"
        )
    if isinstance(field, str) and field.endswith("Seconds") and isinstance(value, str):
        if hint := _of_clock(value):
            return hint
        match = _SPAN.fullmatch(value)
        unit = _SPANS.get(match[2].lower() if len(match[2]) > 1 else match[2]) if match else None
        return f"did you mean `{match[1]}{unit}`?" if match and unit else ""
    if isinstance(value, str) and (hint := _of_text(sort, path, value)):
        return hint
    if sort == "int_type":
        return _whole(value)
    if field == "fromEnv" and isinstance(value, dict):
        return f"name the variables alone: `[{shortened(', '.join(value))}]`; no value stands here"
    if sort == "string_type" and isinstance(value, dict) and len(value) == 1:
        ((key, one),) = value.items()
        if isinstance(one, str | int | float) or one is None:
            text = f"{key}: {'' if one is None else one}".strip()
            return f'quote a text with a colon in it: `"{shortened(text)}"`'
    return ""


def _of_text(sort: str, path: Path, value: str) -> str:
    """For texts that are nearly right, by what their field holds."""
    field = next((part for part in reversed(path) if isinstance(part, str)), "")
    text = value.strip()
    if sort == "bool_type" or field == "ray":
        word = _TRUTHS.get(text.lower())
        return f"write `{word}`" if word else ""
    if field in ("name", "provider", "secrets", "function", "namespace"):
        slug = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
        usual = re.fullmatch(r"[A-Za-z0-9_. -]{1,63}", text) is not None
        return f"write `{slug}`" if usual and slug and slug != text else ""
    if field in ("mountPath", "links", "path") and sort == "value_error":
        plain = text.removeprefix("./")
        relative = not text.startswith("/") and ".." not in plain.split("/")
        return f"write `/{shortened(plain)}`" if relative and plain else ""
    if field in ("pip", "apt") and sort in ("tuple_type", "list_type"):
        return f"write a list: `[{', '.join(re.split('[ ,]+', text))}]`"
    if field == "python" and (match := re.search(r"3\.[0-9]{1,2}", text)):
        return f'write `"{match[0]}"`'
    if field == "cpu" and (match := re.fullmatch(r"([0-9.]+)\s*(?:v?cpus?|cores?)", text.lower())):
        return f"write `{match[1]}`"
    if field == "maxCost" and (match := _MONEY.fullmatch(text)):
        return f"write `{match[1]}`"
    return ""


_TRUTHS = {
    **dict.fromkeys(("yes", "on", "y", "true", "1"), "true"),
    **dict.fromkeys(("no", "off", "n", "false", "0"), "false"),
}
_MONEY = re.compile(r"(?:\$|USD)?\s*([0-9]+(?:\.[0-9]+)?)\s*(?:\$|USD|usd)?")
_CLOCK = re.compile(r"([0-9]{1,3}):([0-9]{2})(?::([0-9]{2}))?")


def _of_clock(value: str) -> str:
    """`1:30:00` is an hour and a half; `5:30` may be minutes or hours, so nothing is proposed."""
    match = _CLOCK.fullmatch(value.strip())
    if match is None or match[3] is None:
        return ""
    parts = [f"{int(number)}{unit}" for number, unit in zip(match.groups(), "hms", strict=True)]
    message = "".join(part for part in parts if not part.startswith("0"))
    return f"write `{message}`" if message else ""


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
