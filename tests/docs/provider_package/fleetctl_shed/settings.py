"""The block `shed` of a Provider's spec."""

from __future__ import annotations

from pydantic import Field

from fleetctl.providers import NonEmptyText, Spec


class ShedSettings(Spec):
    """Where the shed is, and what its tasks cost."""

    root: NonEmptyText = Field(description="The directory that all tasks of the shed are in.")
    usd_per_hour: float = Field(default=0.0, ge=0, description="USD an hour of a task; default 0.")
