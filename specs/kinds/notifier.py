"""Notifier: receivers of notices of the objects of a namespace, beside their own `notify`."""

from __future__ import annotations

from pydantic import Field

from fleetctl.specs.blocks.common import LabelKey, LabelValue
from fleetctl.specs.blocks.notify import SINKS_MAX, Notify
from fleetctl.specs.values.scalars import Spec


class NotifierSpec(Spec):
    """`notify` for all objects of its namespace that have certain labels, those to come too."""

    selector: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="Labels that an object must have, all of them; default: every object.",
    )
    notify: tuple[Notify, ...] = Field(
        min_length=1,
        max_length=SINKS_MAX,
        description="Recipients of notices, each with its events.",
    )
