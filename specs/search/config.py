"""A W&B sweep configuration, verbatim: the whole schema, with `early_terminate`, also what is not
supported yet.

Snake_case is W&B's own spelling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_snake
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from fleetctl.specs.search.distributions import DISTRIBUTIONS
from fleetctl.specs.search.parameters import ParameterProblem, find_problems
from fleetctl.specs.values.scalars import (
    Bool,
    Count,
    Float,
    Name,
    NonEmptyText,
    PositiveCount,
    Spec,
    Text,
)

BANDS_MAX = 100  # of `min_iter`; the last is beyond what any program reports

_WORD = {"type": ["string", "number", "boolean"]}


class WandbSpec(Spec):
    """W&B's own spelling: snake_case, outside as well as inside."""

    model_config = ConfigDict(alias_generator=None)


class EarlyTerminate(WandbSpec):
    """Stops trials that do badly: Hyperband, by `min_iter` or by `max_iter` and `s`."""

    type: Literal["hyperband"] = Field(description="`hyperband`, the only one there is.")
    min_iter: PositiveCount | None = Field(
        default=None, description="Values of the metric before a trial is first compared."
    )
    max_iter: PositiveCount | None = Field(
        default=None, description="Values of the metric that a whole trial reports."
    )
    s: PositiveCount | None = Field(
        default=None, description="How many times it is compared, with `max_iter`."
    )
    eta: Float = Field(
        default=3.0,
        gt=1,
        description="One in `eta` trials goes on; default 3.",
    )
    strict: Bool = Field(
        default=True,
        description="Compare the value of that moment; false: the best so far. Default true.",
    )

    @model_validator(mode="after")
    def _knows_its_bands(self) -> EarlyTerminate:
        if self.max_iter is not None and self.s is None:
            raise ValueError("`max_iter` needs `s`, how many times a trial is compared")
        if self.min_iter is None and self.max_iter is None:
            raise ValueError("it needs `min_iter`, or `max_iter` and `s`")
        if not self.bands:
            raise ValueError(
                f"no trial would be compared: `max_iter` {self.max_iter} divided by `eta` "
                f"{self.eta:g} is less than one value"
            )
        return self

    @property
    def bands(self) -> tuple[int, ...]:
        """Returns the numbers of reports after which a trial is looked at, ascending; `max_iter`
        wins. Found by repeated division and multiplication, whose rounding is that of the library.
        """
        if self.max_iter is not None:
            return tuple(reversed(list(self._downwards(self.max_iter, self.s or 0))))
        return tuple(self._upwards(self.min_iter or 1))

    def _downwards(self, most: int, looks: int) -> Iterator[int]:
        band = float(most)
        for _ in range(looks):
            band /= self.eta
            if band < 1:
                return
            yield int(band)

    def _upwards(self, least: int) -> Iterator[int]:
        band = float(least)
        for _ in range(BANDS_MAX):
            if math.isinf(band):
                return
            yield int(band)
            band *= self.eta


def _as_whole(value: Any) -> Any:
    """Converts 3.0 to a whole number, as JSON Schema, by which W&B checks, does."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _as_text(value: Any) -> Any:
    """Makes texts of numbers and booleans, by Python's `str`, as W&B's agent does."""
    if isinstance(value, bool | int | float):
        return str(value)
    return value


WholeCount = Annotated[PositiveCount, BeforeValidator(_as_whole)]
Word = Annotated[Text, BeforeValidator(_as_text), WithJsonSchema(_WORD)]


class WandbController(WandbSpec):
    """Launcher of the search at W&B; carries no meaning here."""

    type: Literal["local", "cloud"] = Field(description="`local` or `cloud`.")


class SearchMetric(WandbSpec):
    """The metric that the search optimises, by the name that the program reports."""

    name: NonEmptyText = Field(description="Name in `report(...)`; it may hold slashes.")
    goal: Literal["minimize", "maximize"] = Field(
        default="minimize", description="Which way is better; default minimize."
    )
    target: Float | None = Field(
        default=None, description="No new trials once one is this good; default: none."
    )
    impute: Literal["latest", "best", "worst"] = Field(
        default="worst", description="Value of a failed trial in bayes; default worst."
    )
    impute_while_running: Literal["latest", "best", "worst", "false"] | Literal[False] = Field(
        default="false", description="Value of a running trial in bayes; default false."
    )


class PriorTrials(Spec):
    """Trials of another search, from which a bayes search begins."""

    from_sweep: Name = Field(
        description="A Sweep of the same namespace with the same metric; it is waited for."
    )


class Sampler(Spec):
    """Suggests the points of a bayes search in place of the Gaussian process."""

    name: Literal["tpe"] = Field(
        description="`tpe`: optuna's Tree-structured Parzen Estimator (`fleetctl[optuna]`)."
    )
    startup_trials: Count = Field(
        default=10, description="Trials with a value before it suggests; default 10."
    )
    candidates: PositiveCount = Field(
        default=24, description="Points that it weighs for each suggestion; default 24."
    )
    multivariate: Bool = Field(
        default=True, description="Whether parameters are looked at together; default true."
    )


class WandbScheduler(WandbSpec):
    """An optimiser from elsewhere, for method `custom`."""

    engine: Literal["optuna", "ax", "wandb"] | None = Field(default=None, description="Which one.")
    source: NonEmptyText | None = Field(default=None, description="Where its program is.")
    optimizer: JsonValue = Field(default=None, description="Settings of the optimiser.")
    search_space: JsonValue = Field(default=None, description="Its parameters, in its own form.")


def _parameters_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a `parameters` block, from the same table that the block is
    checked by.
    """
    shapes: list[dict[str, Any]] = [
        {
            "type": "object",
            "properties": {
                "parameters": {
                    "type": "object",
                    "minProperties": 1,
                    "description": "Parameters in a group of their own.",
                }
            },
            "required": ["parameters"],
            "additionalProperties": False,
        }
    ]
    for it in DISTRIBUTIONS.values():
        if it.instead:
            continue
        keys: dict[str, Any] = {"distribution": {"const": it.name}}
        for key in it.needs:
            keys[key] = _KEY_SCHEMAS.get(key, {"type": "integer" if it.integer else "number"})
        for key, default in it.defaults.items():
            keys[key] = {"type": "number", "default": default}
        keys = {key: {**schema, "description": _KEY_WORDS[key]} for key, schema in keys.items()}
        shapes.append(
            {
                "type": "object",
                "properties": keys,
                "required": list(it.needs) or ["distribution"],
                "additionalProperties": False,
            }
        )
    return {"type": "object", "minProperties": 1, "additionalProperties": {"anyOf": shapes}}


_KEY_WORDS = {
    "distribution": "How values are drawn; default: what the other keys mean, such as categorical"
    " for `values`, uniform for `min` and `max`.",
    "value": "The one value of a constant.",
    "values": "The values to choose from, of any sort.",
    "probabilities": "How often each of the values is drawn; they add up to 1.",
    "min": "The least value.",
    "max": "The greatest value.",
    "q": "Values are multiples of this.",
    "mu": "The mean; of a log distribution, of the logarithm.",
    "sigma": "The standard deviation; of a log distribution, of the logarithm.",
    "a": "The first shape of a beta distribution.",
    "b": "The second shape of a beta distribution.",
}
_KEY_SCHEMAS: dict[str, Any] = {
    "value": {},
    "values": {"type": "array", "minItems": 1},
    "probabilities": {"type": "array", "items": {"type": "number", "minimum": 0}},
}


def _raise_problems(
    title: str,
    found: Sequence[ParameterProblem],
    value: Any,
) -> None:
    """Reports each problem at its own path, as a model's own fields would."""
    if not found:
        return
    raise ValidationError.from_exception_data(
        title,
        [
            InitErrorDetails(
                type=PydanticCustomError(
                    "parameter", "{message}", {"message": it.message, "hint": it.hint}
                ),
                loc=it.path,
                input=_input_at(value, it.path),
            )
            for it in found
        ],
    )


def _input_at(value: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        if not isinstance(value, dict | list):
            break
        value = value.get(key) if isinstance(value, dict) else value[int(key)]
    return value


def _checked_parameters(value: Any) -> Any:
    _raise_problems("parameters", list(find_problems(value, grid=False)), value)
    return value


Parameters = Annotated[
    dict[str, JsonValue],
    BeforeValidator(_checked_parameters),
    WithJsonSchema(_parameters_schema()),
]


class Search(WandbSpec):
    """A W&B sweep configuration, verbatim."""

    method: Literal["grid", "random", "bayes", "custom"] = Field(
        description="`grid` tries all points, `random` draws them, `bayes` learns from trials."
    )
    parameters: Parameters | None = Field(
        default=None, description="Name to values, bounds, distribution or nested parameters."
    )
    metric: SearchMetric | None = Field(
        default=None, description="The metric to optimise; default: none."
    )
    metrics: tuple[SearchMetric, ...] | None = Field(
        default=None,
        min_length=2,
        description="Several metrics, for method `custom` alone.",
    )
    run_cap: WholeCount | None = Field(
        default=None, description="Trials in all; default: no limit."
    )
    early_terminate: EarlyTerminate | None = Field(
        default=None, description="When to stop a bad trial; default: never."
    )
    command: tuple[Word, ...] | None = Field(
        default=None,
        min_length=1,
        description="Arguments and macros; default `${env} ${interpreter} ${program} ${args}`.",
    )
    program: NonEmptyText | None = Field(
        default=None, description="The text in place of `${program}`."
    )
    name: Text | None = Field(default=None, description="For people; carries no meaning here.")
    description: Text | None = Field(
        default=None, description="For people; carries no meaning here."
    )
    project: Text | None = Field(
        default=None, description="W&B project; `WANDB_PROJECT` of the trials."
    )
    entity: Text | None = Field(
        default=None, description="W&B entity; `WANDB_ENTITY` of the trials."
    )
    api_version: Text | None = Field(
        default=None,
        alias="apiVersion",
        description="W&B's own; carries no meaning here.",
    )
    kind: Literal["sweep"] | None = Field(default=None, description="W&B's own; `sweep`.")
    controller: WandbController | None = Field(
        default=None, description="Launcher of W&B; carries no meaning here."
    )
    job: NonEmptyText | None = Field(default=None, description="A W&B Launch job.")
    image_uri: NonEmptyText | None = Field(default=None, description="A W&B Launch image.")
    scheduler: WandbScheduler | None = Field(
        default=None, description="An optimiser from elsewhere."
    )
    prior_trials: PriorTrials | None = Field(
        default=None,
        alias="priorTrials",
        description="fleetctl's own, of bayes: the search learns from another Sweep's trials.",
    )
    sampler: Sampler | None = Field(
        default=None,
        description="fleetctl's own, of bayes: what suggests trials; default: a Gaussian process.",
    )

    @model_validator(mode="after")
    def _fits_its_method(self) -> Search:
        space = self.scheduler is not None and self.scheduler.search_space is not None
        if self.parameters is None and not space:
            raise ValueError("a search needs `parameters`")
        if self.metrics is not None and self.method != "custom":
            raise ValueError("`metrics` goes with method `custom` alone; use `metric`")
        if self.method == "bayes" and self.metric is None:
            raise ValueError("method `bayes` needs a `metric`")
        for name in ("priorTrials", "sampler") if self.method != "bayes" else ():
            if getattr(self, to_snake(name)) is not None:
                raise ValueError(f"`{name}` goes with method `bayes` alone")
        if self.early_terminate is not None and self.metric is None:
            raise ValueError("`early_terminate` needs a `metric` to compare trials by")
        if self.method == "grid" and self.parameters is not None:
            found = [
                replace(it, path=("parameters", *it.path))
                for it in find_problems(self.parameters, grid=True)
            ]
            _raise_problems("search", found, {"parameters": self.parameters})
        return self
