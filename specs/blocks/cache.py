"""Whether a unit that has succeeded before runs again: `cache` of BatchJob, Sweep and TrainingRun.

What makes two units equal is in controllers/reuse/cache.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.specs.values.scalars import Spec


class CachePolicy(Spec):
    """What becomes of a unit whose content has succeeded before, in this object or another."""

    policy: Literal["ReuseSucceeded", "Never"] = Field(
        description="ReuseSucceeded, which also reuses work with volumes once it is stated,"
        " or Never.",
    )
