"""Provider: what a person sets for one of the built-in providers: its limits and prices."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specs.placement import UsdPerHour
from specs.scalars import Count, NonEmptyText, PositiveCount, Spec

# The name of a Provider object is one of these; a test holds them to fleetctl/wiring.py.
BUILT_IN = ("daytona", "local", "modal")


class ProviderLimits(Spec):
    """How much may run at the provider, over all objects."""

    max_concurrent: Count | None = Field(
        default=None, description="Sandboxes at the same time; 0 starts none; default: its own."
    )
    creates_per_minute: PositiveCount | None = Field(
        default=None, description="New sandboxes in any 60 seconds; default: no limit."
    )


class Breaker(Spec):
    """What stops new starts before a mistake gets dear. What runs goes on."""

    max_spend_per_hour: UsdPerHour | None = Field(
        default=None,
        description="USD an hour that all live sandboxes together may cost; default: no limit.",
    )


class Prices(Spec):
    """What a sandbox costs here, in place of what the provider itself says."""

    per_hour: UsdPerHour = Field(default=0.0, description="USD an hour of a sandbox; default 0.")
    gpu: Annotated[dict[NonEmptyText, UsdPerHour], Field(max_length=100)] = Field(
        default_factory=dict,
        description="USD an hour of each GPU on top, by name; default: `perHour` is for all of it.",
    )


class ProviderSpec(Spec):
    """Limits and prices of the provider that the object is named after."""

    limits: ProviderLimits = Field(
        default_factory=ProviderLimits, description="How much may run there; default: its own."
    )
    breaker: Breaker = Field(
        default_factory=Breaker, description="What stops new starts; default: nothing."
    )
    prices: Prices | None = Field(
        default=None, description="What you want charged; default: what the provider says."
    )
