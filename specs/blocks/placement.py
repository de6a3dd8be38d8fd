"""The providers where work may run, the condition to run over to the next, the prices of their
sandboxes, and the order in a queue.

Prices are in USD an hour; fleetctl/providers/prices/price_table.py makes one price of `prices`. A
priority is a number, or a name for one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.scalars import (
    OLD_NAME,
    Duration,
    Float,
    Name,
    NonEmptyText,
    Spec,
    WhenSpec,
)

CANDIDATES_MAX = 20

SpillReason = Literal["NoCapacity", "QuotaExceeded", "RateLimited", "ProviderDegraded"]
SPILL_REASONS: tuple[SpillReason, ...] = (
    "NoCapacity",
    "QuotaExceeded",
    "RateLimited",
    "ProviderDegraded",
)

UsdPerHour = Annotated[Float, Field(ge=0)]

RATES_MAX = 100
# As Kubernetes takes them: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_PART}")

PRIORITY_MAX = 1_000_000_000  # as of a Kubernetes PriorityClass

PRIORITIES = {"low": -1000, "normal": 0, "high": 1000}

Priority = (
    Annotated[
        int,
        Field(
            strict=True,
            ge=-PRIORITY_MAX,
            le=PRIORITY_MAX,
        ),
    ]
    | Literal["low", "normal", "high"]
)


class PlacementCandidate(Spec):
    """A provider where work may run."""

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
    def _require_one_form(self) -> PlacementSpec:
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


def _check_label(value: str) -> str:
    if not _KEY.fullmatch(value):
        raise ValueError("it must be a label of nodes such as `karpenter.sh/capacity-type`")
    return value


def _label_value(value: str) -> str:
    if not re.fullmatch(_PART, value):
        raise ValueError("it must be a label's value: at most 63 letters, digits, `-`, `_` and `.`")
    return value


NodeLabel = Annotated[str, AfterValidator(_check_label)]
NodeLabelValue = Annotated[str, AfterValidator(_label_value)]


class MachinePrices(Spec):
    """The price of a sandbox on one sort of machine."""

    per_hour: UsdPerHour = Field(default=0.0, description="USD an hour of a sandbox; default 0.")
    gpu: Annotated[dict[NonEmptyText, UsdPerHour], Field(max_length=RATES_MAX)] = Field(
        default_factory=dict,
        description="USD an hour of each GPU on top, by name; default: `perHour` is for all of it.",
    )
    cpu: UsdPerHour = Field(default=0.0, description="USD an hour of each core on top; default 0.")
    memory: UsdPerHour = Field(
        default=0.0, description="USD an hour of each GiB of memory on top; default 0."
    )

    @property
    def say_anything(self) -> bool:
        return bool(self.per_hour or self.gpu or self.cpu or self.memory)


class Prices(MachinePrices):
    """Prices of sandboxes, in place of the provider's own."""

    node_label: NodeLabel | None = Field(
        default=None, description="Kubernetes: the label of nodes that `nodes` refers to."
    )
    nodes: Annotated[dict[NodeLabelValue, MachinePrices], Field(max_length=RATES_MAX)] = Field(
        default_factory=dict,
        description="Kubernetes: prices by the label's value; other nodes have the prices beside.",
    )

    @model_validator(mode="after")
    def _both_or_neither(self) -> Prices:
        if (self.node_label is None) != (not self.nodes):
            raise ValueError("`nodeLabel` and `nodes` need each other")
        return self


def rank_of(priority: int | str) -> int:
    """Returns the number of a priority; the higher goes first."""
    if isinstance(priority, str):
        return PRIORITIES[priority]
    return priority
