"""Guesses at the value that a user meant by a wrong one, and lists bare texts with two meanings,
each with both. Pure.

A bare text stands for a mapping with one field only where a text has one reading. The texts here
look like another field's as well, and users meant that one as often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fleetctl.common.finding import Path
from fleetctl.manifest.problems import quote_text, shorten_text

_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?|\{\{.*?\}\}|\$\(.*?\)")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtTpP])(i?)[bB]?(?:ytes?)?\s*")
_NAME_OF_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_READ_ONLY = re.compile(r"([a-z0-9][-.a-z0-9]*):(/[^:]*):ro")
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


def of_value(
    sort: str,
    path: Path,
    value: Any,
) -> str:
    """Returns a hint on a value of the wrong sort or form; empty without a likely meaning. sort:
    pydantic's name for the error.
    """
    field = path[-1] if path else ""
    if field == "resumeArgs" and isinstance(value, str):
        return 'write a list: `[--resume, "${checkpoint}"]`'
    if field == "sweepId" and isinstance(value, str) and (match := _SWEEP.fullmatch(value)):
        entity, project, name = match.groups()
        return f"write `{{entity: {entity}, project: {project}, sweepId: {name}}}`"
    if isinstance(value, str) and _VARIABLE.search(value):
        return UNEXPANDED
    if hint := _of_other_forms(path, value):
        return hint
    if field in _SIZES and isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number = match[1]
        unit = match[2].upper()
        plain = "k" if unit == "K" else unit
        return f"did you mean `{number}{unit}i`" + (
            "?" if match[3] else f" (binary) or `{number}{plain}` (decimal)?"
        )
    if isinstance(field, str) and field.endswith("Seconds") and isinstance(value, str):
        if hint := _of_clock(value):
            return hint
        match = _SPAN.fullmatch(value)
        unit = _SPANS.get(match[2].lower() if len(match[2]) > 1 else match[2]) if match else None
        if match and unit:
            return f"did you mean `{match[1]}{unit}`?"
        return ""
    if isinstance(value, str) and (hint := _of_text(sort, path, value)):
        return hint
    if sort == "int_type":
        return _hint_whole_number(value)
    if field == "fromEnv" and isinstance(value, dict) and value:
        return (
            f"name the variables alone: `[{shorten_text(', '.join(value))}]`; no value belongs here"
        )
    if sort == "string_type" and isinstance(value, dict) and len(value) == 1:
        ((key, one),) = value.items()
        if isinstance(one, str | int | float) or one is None:
            text = f"{key}: {'' if one is None else one}".strip()
            return f'quote a text with a colon in it: `"{shorten_text(text)}"`'
    return ""


def _of_other_forms(path: Path, value: Any) -> str:
    """Returns a hint for a field in the form that another tool gives it, or one level too high."""
    field = next((part for part in reversed(path) if isinstance(part, str)), "")
    if field == "tasks" and isinstance(value, int) and not isinstance(value, bool):
        return f"write `completions: {value}` in its place"
    if field == "tasks" and isinstance(value, str):
        return f"write `{{fromFile: {shorten_text(value)}}}`"
    if field == "secrets":
        return _of_secrets(value)
    if field == "env" and isinstance(value, list) and all(isinstance(it, str) for it in value):
        names = [it.partition("=")[0].strip() for it in value]
        return f"write `{{{shorten_text(', '.join(f'{it}: ...' for it in names))}}}`"
    if field == "volumes" and isinstance(value, dict):
        pairs = (sorted((str(key), str(it)), key=lambda text: text.startswith("/"))
                 for key, it in value.items())  # fmt: skip
        return f"write `[{shorten_text(', '.join(f'{name}:{at}' for name, at in pairs))}]`"
    if field == "volumes" and isinstance(value, str) and (parts := _READ_ONLY.fullmatch(value)):
        return (
            f"write `{{name: {parts[1]}, mountPath: {parts[2]}, readOnly: true}}`, or"
            f' `mountPath: "{parts[2]}:ro"` for a path with a colon'
        )
    if field == "placement" and isinstance(value, list):
        candidates = ", ".join(f"{{provider: {it}}}" for it in value if isinstance(it, str))
        way = f"write `{{ordered: [{candidates}]}}`, or `anyOf` for the cheapest first"
        if candidates:
            return way
        return ""
    if field == "resources" and isinstance(value, str) and re.match(r"[A-Za-z]", value):
        return f"write `{{gpu: {shorten_text(value)}}}`"
    if field == "gpu" and isinstance(value, int) and not isinstance(value, bool):
        return f"write `any:{value}`"
    return ""


def _of_secrets(value: Any) -> str:
    """Names variables only: a user may have written a value beside one."""
    names = list(value) if isinstance(value, list | dict) else [value]
    variables = [it for it in names if isinstance(it, str) and _NAME_OF_VARIABLE.fullmatch(it)]
    if not variables or len(variables) < len(names):
        return ""
    entries = ", ".join(f"{{env: {shorten_text(it)}}}" for it in variables)
    if isinstance(value, str):
        return f"write `{entries}` for the variable, or the name of a Secret"
    return f"write `[{entries}]`"


def _of_text(
    sort: str,
    path: Path,
    value: str,
) -> str:
    """Returns a hint for a text that is nearly right, by the content of its field."""
    field = next((part for part in reversed(path) if isinstance(part, str)), "")
    text = value.strip()
    if sort == "bool_type" or field == "ray":
        word = _TRUTHS.get(text.lower())
        if word:
            return f"write `{word}`"
        return ""
    if field in ("name", "provider", "secrets", "function", "namespace"):
        slug = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
        usual = re.fullmatch(r"[A-Za-z0-9_. -]{1,63}", text) is not None
        if usual and slug and slug != text:
            return f"write `{slug}`"
        return ""
    if field in ("mountPath", "links", "path") and sort == "value_error":
        plain = text.removeprefix("./")
        relative = not text.startswith("/") and ".." not in plain.split("/")
        if relative and plain:
            return f"write `/{shorten_text(plain)}`"
        return ""
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
    """Returns a hint on a time: `1:30:00` is an hour and a half; `5:30` may be minutes or hours, so
    it gets no proposal.
    """
    match = _CLOCK.fullmatch(value.strip())
    if match is None or match[3] is None:
        return ""
    parts = [f"{int(number)}{unit}" for number, unit in zip(match.groups(), "hms", strict=True)]
    message = "".join(part for part in parts if not part.startswith("0"))
    if message:
        return f"write `{message}`"
    return ""


def of_labels(path: Path, value: Any) -> str:
    """Returns a hint for a selector in the form of Kubernetes."""
    if path[-1:] == ("matchLabels",) and isinstance(value, dict):
        pairs = ", ".join(f"{key}: {one}" for key, one in value.items())
        return f"write the labels themselves: `selector: {{{shorten_text(pairs)}}}`"
    if path[-1:] == ("matchExpressions",):
        return "write the labels themselves: `selector: {team: vision}`"
    return ""


def _hint_whole_number(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE_MAX:
        return f"write `{int(value)}`"
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        count = float(match[1]) * 2
        return f"write how many: {match[1]}% of 200 is `{count:g}`"
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}([_,][0-9]{3})+", value):
        return f"write `{value.replace('_', '').replace(',', '')}`"
    return ""


class Readings(NamedTuple):
    """Both meanings of a text, and how each is written."""

    meanings: str
    ways: str


_HOST = re.compile(r"^(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?/[\w./~-]+$")
_REMOTE = re.compile(r"^(?!git@)[\w.@-]+:(?!//)\S+$")
_PYTHON = re.compile(r"^3(?:\.\d+)*$")
_FILE = re.compile(
    r"(?:^|/)(?:[\w.-]*(?:requirements[\w.-]*\.txt|\.toml)|Dockerfile|Containerfile)$"
)


def _of_source(text: str) -> Readings | None:
    shown, quoted = shorten_text(text), quote_text(text)
    if _HOST.match(text):
        return Readings(
            "a directory or a repository",
            f"write `./{shown}` for the directory, `https://{shown}` for the repository",
        )
    if _REMOTE.match(text):
        return Readings(
            "a directory or a repository",
            f"write `{{path: {quoted}}}` or `{{git: {{url: {quoted}}}}}`",
        )
    return None


def _of_image(text: str) -> Readings | None:
    shown, quoted = shorten_text(text), quote_text(text)
    if _PYTHON.match(text):
        return Readings(
            "a version of Python or an image of a registry",
            f"write `{{python: {quoted}}}` or `{{registry: {quoted}}}`",
        )
    if _FILE.search(text):
        field = "requirements" if text.endswith(".txt") else "run"
        way = f"`{{{field}: {shown}}}`" if field == "requirements" else "`{apt: [...], run: [...]}`"
        return Readings(
            "a file of what to install or an image of a registry",
            f"write {way} or `{{registry: {quoted}}}`",
        )
    return None


# By field: returns both readings of a bare text; None where it has one.
READ_TWICE: Mapping[str, Callable[[str], Readings | None]] = {
    "source": _of_source,
    "image": _of_image,
}
