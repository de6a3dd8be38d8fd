"""Budget: the money that all objects with certain labels may cost in a day, a week, a month, or
ever.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.specs.blocks.common import LabelKey, LabelValue
from fleetctl.specs.blocks.notify import BudgetNotices
from fleetctl.specs.blocks.policies import Currency, OnExceeded, Usd, WarnLevels
from fleetctl.specs.values.scalars import Spec


class BudgetSpec(Spec):
    """A cap over many objects, also over those that were deleted since. A run starts only when its
    worst case fits into every Budget that selects its object.
    """

    selector: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="Labels that an object must have, all of them; default: every object.",
    )
    period: Literal["day", "week", "month", "total"] = Field(
        default="month",
        description="When counting starts at 0 again, in UTC; a week begins on Monday; default"
        " month.",
    )
    max_cost: Usd = Field(description="US dollars that the runs of a period may cost.")
    currency: Currency = "USD"
    warn_at: WarnLevels = (80,)
    on_exceeded: OnExceeded = "Suspend"
    notify: BudgetNotices = ()
