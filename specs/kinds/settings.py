"""Settings: how much of what is over stays on this machine, and for how long; and when the state is
backed up. There is one object of it in a store, `default`.
"""

from __future__ import annotations

from pydantic import Field

from fleetctl.specs.values.scalars import Count, Duration, Size, Spec

NAME = "default"


class Limit(Spec):
    """What stays of one sort of thing. What is in use, or is needed, stays whatever is said."""

    max_age: Duration | None = Field(
        default=None, description="Seconds or `30d` since its last use; default as told above."
    )
    max_size: Size | None = Field(
        default=None,
        description="Bytes or `2Gi` of all of it, the oldest go first; default as told above.",
    )
    keep_last: Count | None = Field(
        default=None, description="So many of the newest stay, old or large; default as told above."
    )


class RetentionSettings(Spec):
    """Limits of each sort. A field that is left out has the default of its sort."""

    objects: Limit = Field(
        default_factory=Limit,
        description="Objects that are over, deleted as by `delete`; default: all stay.",
    )
    logs: Limit = Field(
        default_factory=Limit,
        description="What runs printed that are over; default 30d and 1Gi, the last 10 stay.",
    )
    work_directories: Limit = Field(
        default_factory=Limit,
        description="What tasks left on this machine's disk; default 14d and 2Gi, the last stays.",
    )
    environments: Limit = Field(
        default_factory=Limit,
        description="Python environments of images; default 60d and 4Gi, the last 2 stay.",
    )
    sources: Limit = Field(
        default_factory=Limit,
        description="Copies of `source.path`; default 180d and 512Mi, the last stays.",
    )
    repositories: Limit = Field(
        default_factory=Limit,
        description="Checkouts of `source.git`; default 30d and 512Mi, the last stays.",
    )
    deleted: Limit = Field(
        default_factory=Limit,
        description="What is known of deleted objects: cost, outcomes; default 90d and 512Mi.",
    )


class SettingsSpec(Spec):
    """What holds for the whole store."""

    retention: RetentionSettings = Field(
        default_factory=RetentionSettings,
        description="How much of what is over stays, how long; default as each sort says.",
    )
