"""The providers where work may run, and the condition to run over to the next provider."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fleetctl.specs.blocks.renamed import OLD_NAME, WhenSpec
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


class PlacementCandidate(Spec):
    """One place where work may run."""

    provider: Name = Field(description="Name of a provider, such as `local`.")
    max_price_per_hour: UsdPerHour | None = Field(
        default=None,
        description="USD that a sandbox may cost there at most; default: the placement's.",
    )


class SpillOver(WhenSpec):
    """When a start that waits at one provider moves to another. Work that has begun never moves."""

    after_seconds: Duration = Field(
        default=30.0, description="Seconds or `1m` that a start waits before it moves; default 30."
    )
    when: tuple[SpillReason, ...] | None = Field(
        default=None,
        description="Reasons of a provider that count as waiting for room; default: all.",
    )
    on: tuple[SpillReason, ...] | None = Field(default=None, description=OLD_NAME)

    @property
    def reasons(self) -> tuple[SpillReason, ...]:
        found = self.named_when
        if found is None:
            return SPILL_REASONS
        return found


class PlacementSpec(Spec):
    """Where work may run: one of `provider`, `ordered` and `anyOf`."""

    provider: Name | None = Field(default=None, description="The only provider; default `local`.")
    ordered: tuple[PlacementCandidate, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=CANDIDATES_MAX,
        description="Providers to fill, best first.",
    )
    any_of: tuple[PlacementCandidate, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=CANDIDATES_MAX,
        description="Providers to fill, cheapest first.",
    )
    max_price_per_hour: UsdPerHour | None = Field(
        default=None,
        description="USD that a sandbox may cost at most, at any provider; default: no limit.",
    )
    spill_over: SpillOver = Field(
        default_factory=SpillOver, description="When work moves on to the next provider."
    )

    @property
    def candidates(self) -> tuple[PlacementCandidate, ...]:
        """Returns the providers in the order to try them; never empty."""
        return self.ordered or self.any_of or _single_candidate(self.provider or DEFAULT_PROVIDER)

    @model_validator(mode="after")
    def _says_one_thing(self) -> PlacementSpec:
        if sum(it is not None for it in (self.provider, self.ordered, self.any_of)) > 1:
            raise ValueError("a placement needs exactly one of `provider`, `ordered` and `anyOf`")
        names = [candidate.provider for candidate in self.candidates]
        if len(set(names)) < len(names):
            raise ValueError("a placement names each provider once")
        return self


# Read several times in each pass, and frozen.
@lru_cache(maxsize=256)
def _single_candidate(provider: str) -> tuple[PlacementCandidate]:
    return (PlacementCandidate(provider=provider),)
