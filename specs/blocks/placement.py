"""Where work may run, and when it runs over to the next place."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.scalars import Duration, Float, Name, Spec

CANDIDATES_MAX = 20

SpillReason = Literal["NoCapacity", "QuotaExceeded", "RateLimited", "ProviderDegraded"]
SPILL_REASONS: tuple[SpillReason, ...] = (
    "NoCapacity",
    "QuotaExceeded",
    "RateLimited",
    "ProviderDegraded",
)

UsdPerHour = Annotated[Float, Field(ge=0)]


class Candidate(Spec):
    """One place where work may run."""

    provider: Name = Field(description="Name of a provider, such as `local`.")
    max_price_per_hour: UsdPerHour | None = Field(
        default=None,
        description="USD that a sandbox may cost here at most; default: the placement's.",
    )


class SpillOver(Spec):
    """When a start that waits at one place goes to another. What has begun is never moved."""

    after_seconds: Duration = Field(
        default=30.0, description="Seconds or `1m` that a start waits before it moves; default 30."
    )
    on: tuple[SpillReason, ...] = Field(
        default=SPILL_REASONS,
        description="Answers of a provider that count as waiting for room; default: all.",
    )


class Placement(Spec):
    """Where work may run: one of `provider`, `ordered` and `anyOf`."""

    provider: Name | None = Field(default=None, description="The only place; default `local`.")
    ordered: tuple[Candidate, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=CANDIDATES_MAX,
        description="Places to fill, best first.",
    )
    any_of: tuple[Candidate, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=CANDIDATES_MAX,
        description="Places to fill, cheapest first.",
    )
    max_price_per_hour: UsdPerHour | None = Field(
        default=None,
        description="USD that a sandbox may cost at most, for all places; default: no limit.",
    )
    spill_over: SpillOver = Field(
        default_factory=SpillOver, description="When work runs over to the next place."
    )

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The places in the order to try them; never empty."""
        return (
            self.ordered or self.any_of or (Candidate(provider=self.provider or DEFAULT_PROVIDER),)
        )

    @model_validator(mode="after")
    def _says_one_thing(self) -> Placement:
        if sum(it is not None for it in (self.provider, self.ordered, self.any_of)) > 1:
            raise ValueError("a placement needs exactly one of `provider`, `ordered` and `anyOf`")
        names = [candidate.provider for candidate in self.candidates]
        if len(set(names)) < len(names):
            raise ValueError("a placement names each provider once")
        return self
