"""Settings: how much of what is over stays on this machine, and for how long; and when the state is
backed up. There is one object of it in a store, `default`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from fleetctl.specs.values.cron import Times, times_of, zone_of
from fleetctl.specs.values.hints import with_hint
from fleetctl.specs.values.scalars import (
    Bool,
    Count,
    Duration,
    Name,
    NonEmptyText,
    PositiveCount,
    Size,
    Spec,
)

NAME = "default"


def _is_line(value: str) -> str:
    times_of(value, "UTC")
    return value


def _is_zone(value: str) -> str:
    zone_of(value)
    return value


def _is_directory(value: str) -> str:
    """The controller has no directory of its own from which a path could be meant."""
    protocol, url, rest = value.partition("://")
    if url and "@" in rest.partition("/")[0]:
        hint = "leave it out, and name a Secret in `secret`"
        raise ValueError(with_hint("a URL must not hold a user or a password", hint))
    if not url and not value.startswith("/"):
        raise ValueError(with_hint("a directory must be absolute", "such as `/srv/backups`"))
    if url and not (protocol and rest):
        raise ValueError(with_hint("it is not a URL", "such as `s3://bucket/backups`"))
    return value


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
    runs: Limit = Field(
        default_factory=Limit,
        description="Metrics over steps of what is over; default 512Mi, the last of each stays.",
    )
    logs: Limit = Field(
        default_factory=Limit,
        description="What runs printed that are over; default 30d and 1Gi, the last 10 stay.",
    )
    events: Limit = Field(
        default_factory=Limit,
        description="Events of what is over; default 90d and 256Mi, those of the last 10 stay.",
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
    reuse: Limit = Field(
        default_factory=Limit,
        description="Results that serve equal work again; default 180d and 256Mi.",
    )
    deleted: Limit = Field(
        default_factory=Limit,
        description="What is known of deleted objects: cost, outcomes; default 90d and 512Mi.",
    )


class BackupSettings(Spec):
    """Copies of the state, made by the controller."""

    schedule: Annotated[str, AfterValidator(_is_line)] = Field(
        description='When: five fields of cron, `"0 3 * * *"`, or `@daily` ...'
    )
    time_zone: Annotated[str, AfterValidator(_is_zone)] = Field(
        default="UTC",
        description="Where the hours are those of, such as Europe/Berlin; default UTC.",
    )
    to: Annotated[NonEmptyText, AfterValidator(_is_directory)] = Field(
        description="An absolute directory, or a URL that fsspec reaches: `s3://bucket/backups`."
    )
    keep: PositiveCount = Field(
        default=14, description="So many of this store's backups stay there; default 14."
    )
    secret: Name | None = Field(
        default=None,
        description="Secret of namespace `default` whose variables the upload gets; default none.",
    )
    suspend: Bool = Field(default=False, description="Whether to make none; default false.")

    @property
    def times(self) -> Times:
        return times_of(self.schedule, self.time_zone)


class SettingsSpec(Spec):
    """What holds for the whole store."""

    retention: RetentionSettings = Field(
        default_factory=RetentionSettings,
        description="How much of what is over stays, how long; default as each sort says.",
    )
    backup: BackupSettings | None = Field(
        default=None, description="When and where the state is backed up; default: never."
    )
