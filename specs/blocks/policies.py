"""Rules about failing, retrying and being done, named as in the Kubernetes Job and JobSet, and
about the results that a unit may take instead of running.

Units with equal content keys are equal; see controllers/reuse/content_keys.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from fleetctl.specs.values.quantities import parse_indexes
from fleetctl.specs.values.scalars import (
    Float,
    Int,
    NonEmptyText,
    PositiveCount,
    PositiveDuration,
    Spec,
)


def _check_indexes(value: str) -> str:
    parse_indexes(value)
    return value


IndexSet = Annotated[str, AfterValidator(_check_indexes)]


class Backoff(Spec):
    """Waiting before the next attempt of a unit that failed; doubles by default."""

    initial_s: PositiveDuration = Field(
        default=1.0,
        alias="initial",
        description="Seconds or `5s` before attempt 2; default 1.",
    )
    max_s: PositiveDuration = Field(
        default=300.0,
        alias="max",
        description="Seconds or `5m`, the longest wait; default 300.",
    )
    factor: Float = Field(
        default=2.0,
        ge=1,
        le=100,
        description="Growth per failure; default 2.",
    )

    @model_validator(mode="after")
    def _rises(self) -> Backoff:
        if self.max_s < self.initial_s:
            raise ValueError("`max` must be at least `initial`")
        return self


_USUAL = Backoff()  # made once: each spec has it, and most keep it


class RetryPolicy(Spec):
    """How attempts follow each other. How many there are is `backoffLimitPerIndex`."""

    backoff: Backoff = Field(
        default_factory=_USUAL.model_copy, description="The wait between attempts."
    )


class SuccessRule(Spec):
    """Met when both conditions that are set hold."""

    succeeded_count: PositiveCount | None = Field(
        default=None, description="So many units succeeded; default: no such condition."
    )
    succeeded_indexes: IndexSet | None = Field(
        default=None, description="Units such as `0-2,5` succeeded; default: no such condition."
    )

    @model_validator(mode="after")
    def _require_a_limit(self) -> SuccessRule:
        if self.succeeded_count is None and self.succeeded_indexes is None:
            raise ValueError("a rule needs `succeededCount` or `succeededIndexes`")
        return self


class SuccessPolicy(Spec):
    """A condition under which the whole counts as succeeded although units are left."""

    rules: tuple[SuccessRule, ...] = Field(
        min_length=1,
        max_length=20,
        description="The first rule that is met ends the whole.",
    )


class ExitCodes(Spec):
    """A condition on the exit code of an attempt."""

    operator: Literal["In", "NotIn"] = Field(
        description="Whether the code must be among the values."
    )
    values: tuple[Annotated[Int, Field(ge=0, le=255)], ...] = Field(
        min_length=1,
        max_length=255,
        description="Exit codes from 0 to 255; `In` cannot hold 0.",
    )

    @model_validator(mode="after")
    def _is_about_failures(self) -> ExitCodes:
        if self.operator == "In" and 0 in self.values:
            raise ValueError(
                "`values` cannot hold 0 with `In`: an attempt that exits with 0 succeeded"
            )
        return self


class FailurePolicyRule(Spec):
    """The effect of a failed attempt that matches."""

    name: NonEmptyText | None = Field(
        default=None,
        max_length=63,
        description="Name in messages; default: the rule's position.",
    )
    action: Literal["FailJob", "FailIndex", "Ignore", "Count"] = Field(
        description="FailJob ends all, FailIndex the unit, Ignore retries uncounted, Count retries."
    )
    on_exit_codes: ExitCodes | None = Field(
        default=None, description="Match by exit code; default: any."
    )
    on_reasons: tuple[NonEmptyText, ...] = Field(
        default=(), description="Match by reason such as `OOMKilled` or `Timeout`; default: any."
    )

    @model_validator(mode="after")
    def _matches_something(self) -> FailurePolicyRule:
        if self.on_exit_codes is None and not self.on_reasons:
            raise ValueError("a rule needs `onExitCodes` or `onReasons`")
        return self


class FailurePolicy(Spec):
    """Rules for failed attempts; an attempt that none matches counts against the limits."""

    rules: tuple[FailurePolicyRule, ...] = Field(
        min_length=1,
        max_length=20,
        description="Tried in order; the first that matches decides.",
    )


class SandboxPolicy(Spec):
    """How long a sandbox lives."""

    reuse: PositiveCount | Literal["all"] = Field(
        default=1, description="Tasks that one sandbox runs in turn, or `all`; default 1."
    )

    max_lifetime_seconds: PositiveDuration | None = Field(
        default=None,
        description="Seconds or `6h` after which it gets no further task; default: no limit.",
    )

    @field_validator("reuse", mode="before")
    @classmethod
    def _is_a_count_or_all(cls, value: Any) -> Any:
        # A single message instead of a message for each side of the union.
        if value != "all" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError("it must be a number from 1, or `all`")
        return value


def _parse_usd(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it must be a number of US dollars, such as `25` or `0.5`")
    return float(value)


def _as_levels(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    return value


def _check_rising(value: tuple[int, ...]) -> tuple[int, ...]:
    if any(second <= first for first, second in pairwise(value)):
        raise ValueError("the percentages must rise, each given once")
    return value


# Above it a number is a slip of the pen, and cents are lost in the digits of a float.
USD_MAX = 1e9
Usd = Annotated[float, BeforeValidator(_parse_usd), Field(gt=0, le=USD_MAX)]
WarnLevels = Annotated[
    tuple[Annotated[Int, Field(ge=1, le=100)], ...],
    Field(
        max_length=10,
        description="Percent at which an event warns, as `80` or `[50, 80]`; default 80.",
    ),
    BeforeValidator(_as_levels),
    AfterValidator(_check_rising),
]
Currency = Annotated[Literal["USD"], Field(description="Always `USD`.")]
OnExceeded = Annotated[
    Literal["Suspend", "Cancel", "Warn"],
    Field(
        description="Suspend starts nothing more, Cancel fails the object, Warn only reports it;"
        " default Suspend."
    ),
]


class OwnBudget(Spec):
    """A cap on the cost of one object, over all its runs and changes. A run starts only when its
    worst case still fits.
    """

    max_cost: Usd = Field(description="US dollars that all runs together may cost.")
    currency: Currency = "USD"
    warn_at: WarnLevels = (80,)
    on_exceeded: OnExceeded = "Suspend"


class CachePolicy(Spec):
    """Settles for a unit whose content has succeeded before whether it runs again."""

    policy: Literal["Own", "ReuseSucceeded", "Never"] = Field(
        default="Own",
        description="Own (default), ReuseSucceeded (also others', and work with volumes) or Never.",
    )
