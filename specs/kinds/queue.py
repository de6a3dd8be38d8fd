"""Queue: how much many objects may run at once together, and their order.

Fields are named and meant as in Kueue's ClusterQueue if it has the same.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.values.hints import WrongValueError
from fleetctl.specs.values.scalars import Bool, Name, PositiveDuration, Spec

QUOTAS_MAX = 64  # users read the whole list
RESOURCES = ("sandboxes", "cpus", "gpus", "usdPerHour")
# As `resources` of a template and other tools have them.
_NEAR = {"cpu": "cpus", "gpu": "gpus", "sandbox": "sandboxes", "usd": "usdPerHour"}
_SORT = re.compile(r"gpu/[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

Amount = Annotated[float, Field(ge=0, le=1e9)]


def _is_resource(value: str) -> str:
    if value not in RESOURCES and not _SORT.fullmatch(value):
        known = ", ".join(f"`{it}`" for it in RESOURCES)
        message = f"it must be {known} or a sort of GPU such as `gpu/A100`"
        near = _NEAR.get(value.lower())
        raise WrongValueError(message, f"did you mean `{near}`?" if near else "")
    return value


class QueueQuota(Spec):
    """How much of one thing all runs of the queue may take together. What no quota names is not
    limited.
    """

    resource: Annotated[str, AfterValidator(_is_resource)] = Field(
        default="sandboxes",
        description="`sandboxes`, `cpus`, `gpus` of any sort, `gpu/A100` of one, or `usdPerHour`;"
        " default sandboxes.",
    )
    provider: Name | None = Field(
        default=None, description="Runs at this provider alone; default: wherever it runs."
    )
    nominal: Amount = Field(description="Amount that is always this queue's.")
    borrowing_limit: Amount | None = Field(
        default=None,
        description="Amount to borrow of what its `cohort` leaves unused; default: all of that.",
    )
    lending_limit: Amount | None = Field(
        default=None,
        description="Amount of `nominal` that queues of the `cohort` may borrow; default: all.",
    )


class QueuePreemption(Spec):
    """The runs that the queue may stop for waiting work. Stopped work has its grace time for a
    checkpoint, goes back to its queue, and no attempt of it is used up.
    """

    within_queue: Literal["Never", "LowerPriority"] = Field(
        default="Never",
        description="Whether work of a lower priority in this queue makes room; default Never.",
    )
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = Field(
        default="Never",
        description="Whether queues that borrow give back what is this queue's own; default Never.",
    )


class FairShare(Spec):
    """Namespaces take turns: the one with the smallest share of the quota goes first."""

    weights: dict[Name, Annotated[float, Field(gt=0, le=1e6)]] = Field(
        default_factory=dict, description="Shares of namespaces; default: 1 each."
    )


class QueueSpec(Spec):
    """Work with `queue:` starts as far as these quotas allow, in an order that everybody sees."""

    quotas: tuple[QueueQuota, ...] = Field(
        min_length=1,
        max_length=QUOTAS_MAX,
        description="Amounts that the queue may use.",
    )
    strategy: Literal["StrictFIFO", "BestEffortFIFO"] = Field(
        default="BestEffortFIFO",
        description="Whether what fits may overtake what does not yet; default BestEffortFIFO.",
    )
    overtake_seconds: PositiveDuration = Field(
        default=600.0,
        description="Seconds or `1h` that an object may be overtaken for, then none starts before"
        " it; default 10m.",
    )
    cohort: Name | None = Field(
        default=None, description="Queues with the same one lend to each other; default none."
    )
    preemption: QueuePreemption = Field(
        default_factory=QueuePreemption,
        description="Runs that it may stop to make room; default none.",
    )
    fair_share: FairShare | None = Field(
        default=None, description="Turns of namespaces; default: by priority and time alone."
    )
    suspend: Bool = Field(
        default=False, description="Whether to start nothing; what runs goes on; default false."
    )

    @model_validator(mode="after")
    def _lends_within_a_cohort(self) -> QueueSpec:
        seen = set()
        for quota in self.quotas:
            if (quota.resource, quota.provider) in seen:
                raise ValueError(f"`{quota.resource}` has two quotas; give one for each provider")
            seen.add((quota.resource, quota.provider))
            limits = (quota.borrowing_limit, quota.lending_limit)
            if self.cohort is None and any(it is not None for it in limits):
                raise ValueError("without a `cohort` nothing is borrowed or lent")
            if quota.lending_limit is not None and quota.lending_limit > quota.nominal:
                raise ValueError("`lendingLimit` must not be above `nominal`")
        return self
