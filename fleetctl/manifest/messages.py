"""What pydantic found wrong, said for a person: where, what is, what would be right.

Called by loader.py for documents that a model refused. Positions come from a walk with marks.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fleetctl.manifest.hints import hints
from fleetctl.manifest.hints.words import (
    HINTS,
    HINTS_BELOW,
    MAPPING_HINTS,
    NOT_YET_FIELDS,
    listed,
    meant,
)
from fleetctl.manifest.plain import resolve
from fleetctl.manifest.problems import Path, path_text, shortened, value_text
from fleetctl.specs.values.hints import parted

FINDINGS_MAX = 1000  # of one block; more than these nobody reads, and each takes half a KiB

# More than these are not listed; a person with a typo needs the near one, not all 25.
FIELDS_LISTED_MAX = 12


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, before it has a line. Its text is `subject` followed by `problem`.

    path: an existing place in the document. at_key: the key is wrong, not its value. row: of a text
    in lines of its own, which of them, from 1.
    """

    path: Path
    subject: Path
    problem: str
    hint: str = ""
    at_key: bool = False
    row: int = 0


def findings(
    error: ValidationError, model: type[BaseModel], data: Any, prefix: Path
) -> Iterator[Finding]:
    """One finding for each thing that is wrong. prefix: where `data` stands in the document."""
    if error.error_count() > FINDINGS_MAX:
        # To list them takes more memory than any manifest may cost.
        message = f" holds {error.error_count():,} mistakes, too many to list"
        yield Finding(prefix, prefix, message, "check that each block has the form that is meant")
        return
    for detail in error.errors(include_url=False):
        path, rest = _split(detail["loc"], data)
        if detail["type"] == "missing":
            yield _missing((*prefix, *path), rest)
        elif detail["type"] == "extra_forbidden":
            yield _unknown(model, path, prefix, detail)
        elif "[key]" in detail["loc"][-1:]:
            yield _key(detail, (*prefix, *path))
        elif not _is_caused_by_its_entries(detail, value := _at(data, path)):
            yield _value(detail, (*prefix, *path), value)


def _split(loc: tuple[int | str, ...], data: Any) -> tuple[Path, Path]:
    """The part of a location that exists in the document, and the rest.

    The rest is a missing field, pydantic's name for a side of a union, or part of a short form.
    """
    for depth, part in enumerate(loc):
        known = isinstance(data, dict) and part in data
        if not known and not (isinstance(data, list) and part in range(len(data))):
            return loc[:depth], loc[depth:]
        data = data[part]
    return loc, ()


def _at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _missing(path: Path, rest: Path) -> Finding:
    return Finding(path, (*path, *rest[:1]), " is missing; it must be given")


def _unknown(model: type[BaseModel], path: Path, prefix: Path, detail: ErrorDetails) -> Finding:
    word, full = str(detail["loc"][-1]), (*prefix, *path)
    if word in NOT_YET_FIELDS:
        return Finding(full, full, " is not supported yet", "remove it", at_key=True)
    here = _model_at(model, path[:-1])
    parent = next((it for it in reversed(full[:-1]) if isinstance(it, str)), "")
    hint = HINTS_BELOW.get((parent, word)) or HINTS.get(word, "")
    hint = hint or (_elsewhere(here, word) if here is not None else "")
    if not hint and meant(word, _field_names(here)) is None:
        hint = _further_out(model, path, prefix)
    hint = hint or suggestion(word, _field_names(here))
    return Finding(full, full, " is an unknown field", hint, at_key=True)


def _elsewhere(model: type[BaseModel], word: str) -> str:
    """A hint for a field that belongs one level further in, such as `gpu` beside `resources`."""
    if meant(word, _field_names(model)) is not None:
        return ""
    for name, info in model.model_fields.items():
        inner = _model_in(info.annotation)
        found = None if inner is None else meant(word, _field_names(inner), similar=False)
        if found is not None:
            return f"did you mean `{info.alias or name}.{found}`?"
    return ""


def _further_out(model: type[BaseModel], path: Path, prefix: Path) -> str:
    """A hint for a field of a block around this one, such as `retries` in a template."""
    for depth in range(len(path) - 2, -1, -1):
        found = meant(str(path[-1]), _field_names(_model_at(model, path[:depth])), similar=False)
        if found is not None:
            outer = path_text((*prefix, *path[:depth]))
            return f"did you mean `{found}` of `{outer}`, beside `{path[depth]}`?"
    return ""


def suggestion(word: str, known: list[str]) -> str:
    """A hint: the name that was meant, or what there is."""
    near = meant(word, known)
    if near is not None:
        return f"did you mean `{near}`?"
    if len(known) <= FIELDS_LISTED_MAX:
        return f"known here: {listed(known)}"
    return "known here: " + ", ".join(f"`{name}`" for name in known[:FIELDS_LISTED_MAX]) + ", ..."


def _field_names(model: type[BaseModel] | None) -> list[str]:
    fields = model.model_fields if model is not None else {}
    return [info.alias or name for name, info in fields.items()]


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model that describes the mapping at `path`."""
    here: type[BaseModel] | None = model
    own = False  # the next part is a key of the author's own
    for part in path:
        if isinstance(part, int) or own:
            own = False
            continue  # entries are found through the annotation of their list or mapping
        if here is None:
            return None
        fields = {info.alias or name: info for name, info in here.model_fields.items()}
        annotation = fields[part].annotation if part in fields else None
        here, own = _model_in(annotation), typing.get_origin(annotation) is dict
    return here


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    for argument in typing.get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _key(detail: ErrorDetails, path: Path) -> Finding:
    return Finding(path, path, f": {_right(detail)}", at_key=True)


def _value(detail: ErrorDetails, path: Path, value: Any) -> Finding:
    right, own = parted(_right(detail))
    hint = own or hints.of_labels(path, value) or hints.of_value(detail["type"], path, value)
    hint = hint or _value_hint(detail, path, value)
    if right.startswith(_WORK) and isinstance(value, dict) and "template" in value:
        path, value = (*path, "template"), value["template"]  # a kind found it, of its template
    if isinstance(value, dict | list) and _is_about_content(detail):
        return Finding(path, path, f": {right}", hint)
    return Finding(path, path, f" is {value_text(value, path)}; {right}", hint)


def _is_about_content(detail: ErrorDetails) -> bool:
    """True when a mapping or list is of the right sort, and something about it is not."""
    return detail["type"] in ("value_error", "parameter", "too_short", "too_long")


def _is_caused_by_its_entries(detail: ErrorDetails, value: Any) -> bool:
    """True when a list is too short only because its wrong entries were not counted."""
    if detail["type"] != "too_short" or not isinstance(value, list | dict):
        return False
    return len(value) >= int(detail["ctx"]["min_length"])


_WORK = "a template needs exactly one of"
_SORTS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "`true` or `false`",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def _right(detail: ErrorDetails) -> str:
    """What would be right, as a clause."""
    sort, context = detail["type"], detail.get("ctx", {})
    if sort in _SORTS:
        return f"it must be {_SORTS[sort]}"
    if sort in _BOUNDS:
        words, key = _BOUNDS[sort]
        return f"it must be {words} {_number(context[key])}"
    if sort == "value_error":
        return str(context["error"])
    if sort in ("literal_error", "enum"):
        return f"it must be {context['expected'].replace(chr(39), '`')}"
    if sort in ("too_short", "string_too_short"):
        return (
            "it must not be empty" if context["min_length"] == 1 else _length("at least", context)
        )
    if sort in ("too_long", "string_too_long"):
        return _length("at most", context)
    if sort == "string_pattern_mismatch":
        return f"it must match {shortened(context['pattern'])}"
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _length(words: str, context: dict[str, Any]) -> str:
    length = context["min_length"] if words == "at least" else context["max_length"]
    return (
        f"it must have {words} {length:,} {'entries' if 'field_type' in context else 'characters'}"
    )


def _number(value: object) -> str:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return f"{value:,.0f}" if whole else str(value)


def _value_hint(detail: ErrorDetails, path: Path, value: Any) -> str:
    match detail["type"]:
        case "string_type" if isinstance(value, bool | int | float):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            masked = "***" in value_text(value, path)
            return "put it into quotes" + ("" if masked else f': `"{text}"`')
        case "int_type" | "float_type" | "bool_type" if isinstance(value, str):
            return "remove the quotes" if _reads_as(detail["type"], value) else ""
        case "tuple_type" | "list_type" if path[-1:] == ("command",):
            return "write a list such as `[python, train.py]`; for shell text use `script`"
        case "tuple_type" | "list_type" if isinstance(value, str):
            return f"write a list: `[{shortened(value)}]`"
        case "model_type" | "model_attributes_type" | "dict_type" if path[-1:]:
            return MAPPING_HINTS.get(_field(path), "")
        case "literal_error" if isinstance(value, str):
            known = _choices(detail)
            begun = [it for it in known if it.lower().startswith(value.strip().lower() or " ")]
            near = begun[0] if len(begun) == 1 else meant(value, known)
            return f"did you mean `{near}`?" if near else ""
    return ""


def _field(path: Path) -> str:
    """The field that a path ends in; of an entry of a list, the list's."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _reads_as(sort: str, text: str) -> bool:
    """Whether the text without its quotes would have been of the right sort."""
    try:
        value = resolve(text)
    except ValueError:
        return False
    if sort == "bool_type":
        return isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (sort == "float_type" and isinstance(value, float))


def _choices(detail: ErrorDetails) -> list[str]:
    return re.findall(r"'([^']*)'", detail.get("ctx", {})["expected"])
