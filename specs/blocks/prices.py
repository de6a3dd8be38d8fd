"""Prices of sandboxes at a provider, as users write them: the `prices` of a Provider object.

Read by providers/prices/own_prices.py, which makes one price of the block. All in USD an hour.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.blocks.placement import UsdPerHour
from fleetctl.specs.values.scalars import NonEmptyText, Spec

RATES_MAX = 100
# As Kubernetes takes them: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_PART}")


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
