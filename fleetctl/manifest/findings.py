"""Turns pydantic's errors into findings for users: where, the value, the fix.

Called by loader.py for documents that a model refused. Positions come from a walk with marks.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.hints import value_hints
from fleetctl.manifest.hints.synonyms import (
    HINTS,
    HINTS_BELOW,
    MAPPING_HINTS,
    NOT_YET_FIELDS,
    guess_name,
    join_names,
)
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.manifest.problems import path_text, shorten_text, value_text
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.scalars import Spec

FINDINGS_MAX = 1000  # per block; no user reads more than these, and each takes half a KiB

# More than these are not listed; a user with a typo needs the near one, not all 25.
FIELDS_LISTED_MAX = 12


def list_findings(
    error: ValidationError,
    model: type[BaseModel],
    data: Any,
    prefix: Path,
) -> Iterator[Finding]:
    """One finding for each thing that is wrong. prefix: where `data` stands in the document."""
    if error.error_count() > FINDINGS_MAX:
        # To list them takes more memory than any manifest may cost.
        message = f" holds {error.error_count():,} mistakes, too many to list"
        yield Finding(prefix, message, "check that each block has the form that is meant")
        return
    for detail in error.errors(include_url=False):
        path, rest = _split_location(detail["loc"], data)
        if detail["type"] == "missing":
            yield _report_missing((*prefix, *path), rest)
        elif detail["type"] == "extra_forbidden":
            yield _report_unknown(model, data, path, prefix, detail)
        elif "[key]" in detail["loc"][-1:]:
            yield _report_key(detail, (*prefix, *path))
        elif not _is_caused_by_its_entries(detail, value := _value_at(data, path)):
            yield _report_value(detail, (*prefix, *path), value)


def _split_location(loc: tuple[int | str, ...], data: Any) -> tuple[Path, Path]:
    """The part of a location that exists in the document, and the rest.

    The rest is a missing field, pydantic's name for a side of a union, or part of a short form.
    """
    for depth, part in enumerate(loc):
        known = isinstance(data, dict) and part in data
        if not known and not (isinstance(data, list) and part in range(len(data))):
            return loc[:depth], loc[depth:]
        data = data[part]
    return loc, ()


def _value_at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _report_missing(path: Path, rest: Path) -> Finding:
    return Finding(path, " is missing; it must be given", about=(*path, *rest[:1]))


def _report_unknown(
    model: type[BaseModel],
    data: Any,
    path: Path,
    prefix: Path,
    detail: ErrorDetails,
) -> Finding:
    word = str(detail["loc"][-1])
    full = (*prefix, *path)
    if word in NOT_YET_FIELDS:
        hint = HINTS.get(word, "remove it")
        return Finding(full, " is not supported yet", hint, at_key=True)
    here = _model_at(model, path[:-1])
    unfit = _unfit_below(model, data, path[:-1])
    known = [it for it in _field_names(here) if (it,) not in unfit]
    parent = next((it for it in reversed(full[:-1]) if isinstance(it, str)), "")
    hint = HINTS_BELOW.get((parent, word), "")
    if not hint and issubclass(model, WorkSpec):
        hint = HINTS.get(word, "")  # work has no such field; another kind may
    # The very name in another block counts more than a similar one in this block.
    if not hint and guess_name(word, known, similar=False) is None:
        hint = _hint_deeper(here, word, unfit) if here is not None else ""
        hint = hint or _suggest_outer_field(model, path, prefix)
    if not hint and len(path) == 1:
        hint = _of_other_kinds(model, word)
    hint = hint or HINTS.get(word, "") or suggest_name(word, known)
    return Finding(full, " is an unknown field", hint, at_key=True)


def _unfit_below(model: type[BaseModel], data: Any, path: Path) -> frozenset[Path]:
    """Returns the fields below a path that the values of its block rule out, by paths from it."""
    unfit: set[Path] = set()
    for depth in range(len(path) + 1):
        block = _model_at(model, path[:depth])
        here = _value_at(data, path[:depth])
        if block is not None and issubclass(block, Spec) and isinstance(here, dict):
            rest = path[depth:]
            unfit |= {it[len(rest) :] for it in block.unfit_fields(here) if it[: len(rest)] == rest}
    return frozenset(unfit)


def _hint_deeper(
    model: type[BaseModel],
    word: str,
    unfit: Collection[Path] = (),
) -> str:
    """A hint for a field that belongs one level further in, such as `gpu` beside `resources`."""
    if guess_name(word, _field_names(model), similar=False) is not None:
        return ""
    for name, info in model.model_fields.items():
        inner = _model_in(info.annotation)
        written = info.alias or name
        if inner is None or (written,) in unfit:
            continue
        known = [it for it in _field_names(inner) if (written, it) not in unfit]
        found = guess_name(word, known, similar=False)
        if found is not None:
            entry = "[0]" if typing.get_origin(info.annotation) is tuple else ""
            return f"did you mean `{written}{entry}.{found}`?"
    template = model.model_fields.get("template")
    inner = _model_in(template.annotation) if template is not None else None
    hint = _hint_deeper(inner, word) if inner is not None else ""
    return hint.replace("`", "`template.", 1)


def _of_other_kinds(model: type[BaseModel], word: str) -> str:
    """A hint for a field that only other kinds of work have, such as `nodes` of a BatchJob."""
    if not issubclass(model, WorkSpec) or guess_name(word, _field_names(model)) is not None:
        return ""
    having = [it.name for it in KINDS.values() if it.runs and word in _field_names(it.spec)]
    if having:
        return f"`kind: {having[0]}` has it"
    return ""


def _suggest_outer_field(
    model: type[BaseModel],
    path: Path,
    prefix: Path,
) -> str:
    """A hint for a field of a block around this one, such as `retries` in a template."""
    for depth in range(len(path) - 2, -1, -1):
        found = guess_name(
            str(path[-1]), _field_names(_model_at(model, path[:depth])), similar=False
        )
        if found is not None:
            outer = path_text((*prefix, *path[:depth]))
            return f"did you mean `{found}` of `{outer}`, beside `{path[depth]}`?"
    return ""


def suggest_name(word: str, known: list[str]) -> str:
    """Returns a hint: the name that was meant, or the known names."""
    near = guess_name(word, known)
    if near is not None:
        return f"did you mean `{near}`?"
    if len(known) <= FIELDS_LISTED_MAX:
        return f"known here: {join_names(known)}"
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
        here = _model_in(annotation)
        own = typing.get_origin(annotation) is dict
    return here


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            return annotation
        return None
    for argument in typing.get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _report_key(detail: ErrorDetails, path: Path) -> Finding:
    return Finding(path, f": {_describe_right(detail)}", at_key=True)


def _report_value(
    detail: ErrorDetails,
    path: Path,
    value: Any,
) -> Finding:
    right = _describe_right(detail)
    context = detail.get("ctx", {})
    hint = (
        context.get("hint")
        or getattr(context.get("error"), "hint", "")
        or value_hints.of_labels(path, value)
        or value_hints.of_value(detail["type"], path, value)
    )
    hint = hint or _value_hint(detail, path, value)
    if right.startswith(_WORK) and isinstance(value, dict) and "template" in value:
        path, value = (*path, "template"), value["template"]  # a kind found it, of its template
    if isinstance(value, dict | list) and _is_about_content(detail):
        return Finding(path, f": {right}", hint)
    return Finding(path, f" is {value_text(value, path)}; {right}", hint)


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


def _describe_right(detail: ErrorDetails) -> str:
    """Describes the right value, as a clause."""
    sort = detail["type"]
    context = detail.get("ctx", {})
    if sort in _SORTS:
        return f"it must be {_SORTS[sort]}"
    if sort in _BOUNDS:
        words, key = _BOUNDS[sort]
        return f"it must be {words} {_format_number(context[key])}"
    if sort == "value_error":
        return str(context["error"])
    if sort in ("literal_error", "enum"):
        return f"it must be {context['expected'].replace(chr(39), '`')}"
    if sort in ("too_short", "string_too_short"):
        if context["min_length"] == 1:
            return "it must not be empty"
        return _describe_length("at least", context)
    if sort in ("too_long", "string_too_long"):
        return _describe_length("at most", context)
    if sort == "string_pattern_mismatch":
        return f"it must match {shorten_text(context['pattern'])}"
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _describe_length(words: str, context: dict[str, Any]) -> str:
    length = context["min_length"] if words == "at least" else context["max_length"]
    return (
        f"it must have {words} {length:,} {'entries' if 'field_type' in context else 'characters'}"
    )


def _format_number(value: object) -> str:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if whole:
        return f"{value:,.0f}"
    return str(value)


def _value_hint(
    detail: ErrorDetails,
    path: Path,
    value: Any,
) -> str:
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
            return f"write a list: `[{shorten_text(value)}]`"
        case "model_type" | "model_attributes_type" | "dict_type" if path[-1:]:
            return MAPPING_HINTS.get(_last_field(path), "")
        case "literal_error" if isinstance(value, str):
            known = _list_choices(detail)
            begun = [it for it in known if it.lower().startswith(value.strip().lower() or " ")]
            near = begun[0] if len(begun) == 1 else guess_name(value, known)
            return f"did you mean `{near}`?" if near else ""
    return ""


def _last_field(path: Path) -> str:
    """The field that a path ends in; of an entry of a list, the list's."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _reads_as(sort: str, text: str) -> bool:
    """Returns True if the text without its quotes would have been of the right sort."""
    try:
        value = resolve_scalar(text)
    except ValueError:
        return False
    if sort == "bool_type":
        return isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (sort == "float_type" and isinstance(value, float))


def _list_choices(detail: ErrorDetails) -> list[str]:
    return re.findall(r"'([^']*)'", detail.get("ctx", {})["expected"])
