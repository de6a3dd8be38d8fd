"""Stores results of an object that are the parameters of another one's tasks: the results taken, as
a note, and if they fit. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.guest.task.parameters import name_variable, one_variable
from fleetctl.specs.blocks.depends import FromResults
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.scalars import COUNT_MAX, parameter_name

UNFIT = "ResultsUnfit"  # reason of an object that ended for want of usable results

Params = Mapping[str, object]

_OF_TYPE: Mapping[str, Callable[[object], bool]] = {
    "string": lambda it: isinstance(it, str),
    "number": lambda it: isinstance(it, int | float) and not isinstance(it, bool),
    "integer": lambda it: isinstance(it, int) and not isinstance(it, bool),
    "boolean": lambda it: isinstance(it, bool),
    "object": lambda it: isinstance(it, dict),
    "array": lambda it: isinstance(it, list),
    "null": lambda it: it is None,
}


@dataclass(frozen=True, slots=True)
class ResultParameters:
    """Results taken as tasks. params: the parameters of each task, by ascending index. uid,
    generation: identity of the source object, and generation of its spec. said: the field's value
    when the results were taken. stale: the results must be taken again, so no further task begins
    with them.
    """

    params: Mapping[int, Params]
    uid: str
    generation: int
    said: str
    stale: bool = False

    def text(self) -> str:
        return canonical_json(
            {
                "rows": [[index, it] for index, it in self.params.items()],
                "uid": self.uid,
                "generation": self.generation,
                "said": self.said,
                "stale": self.stale,
            }
        )


def rows_in(text: str) -> ResultParameters | None:
    """Parses the rows of a note; None where no results were taken yet."""
    if not text:
        return None
    found = json.loads(text)
    params = {int(index): params for index, params in found["rows"]}
    return ResultParameters(
        params,
        found["uid"],
        found["generation"],
        found["said"],
        found["stale"],
    )


def format_request(given: FromResults) -> str:
    """Returns the field as one text, to compare it with another."""
    return canonical_json(given.model_dump(mode="json", exclude_defaults=True))


def check_results(
    given: FromResults,
    key: str,
    found: Iterable[tuple[int, str | None]],
) -> Mapping[int, Params] | MissingInput:
    """Returns the chosen results as parameters: (index, JSON text or None) of each, ascending. key:
    of the object that has the results.
    """
    rows: dict[int, Params] = {}
    for index, text in found:
        value: Any = json.loads(text) if text is not None else None
        if wrong := _explain_unfit_value(given, value):
            hint = (
                f"`fleetctl results {key}` shows them; choose with `tasks.fromResults.where`, or"
                " fix what made them, and apply this again"
            )
            text = f"the result of task {index} of {key} {wrong}"
            return MissingInput(text, for_good=True, reason=UNFIT, hint=hint)
        rows[index] = value
        if len(rows) > COUNT_MAX:
            text = f"{key} has more than {COUNT_MAX:,} results"
            hint = "choose with `tasks.fromResults.where`"
            return MissingInput(text, for_good=True, reason=UNFIT, hint=hint)
    return rows


def _explain_unfit_value(given: FromResults, value: object) -> str:
    """Returns why a result cannot be parameters, as the rest of a sentence; or an empty text."""
    if value is None:
        return "is missing: it submitted none"
    if not isinstance(value, dict):
        return "is not an object, so it has no names for parameters"
    for name in value:
        try:
            parameter_name(name)
        except ValueError as error:
            return f"has a field that cannot be a parameter: {error}"
    one, other = one_variable(value)
    if one:
        return f"has `{one}` and `{other}`, which are one variable, `{name_variable(one)}`"
    for name, kind in given.types.items():
        if name not in value:
            return f"has no `{name}`"
        if not _OF_TYPE[kind](value[name]):
            return f"has `{name}` {json.dumps(value[name])[:80]}, which is not of type `{kind}`"
    return ""
