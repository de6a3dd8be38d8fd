"""Selects the results that a unit may take instead of running: `cache` of BatchJob, Sweep and
TrainingRun.

Units with equal content keys are equal; see controllers/reuse/content_keys.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.specs.values.scalars import Spec


class CachePolicy(Spec):
    """Settles for a unit whose content has succeeded before whether it runs again."""

    policy: Literal["Own", "ReuseSucceeded", "Never"] = Field(
        default="Own",
        description="Own (default), ReuseSucceeded (also others', and work with volumes) or Never.",
    )
