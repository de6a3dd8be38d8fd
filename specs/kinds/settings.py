"""Settings: how much of the finished work stays on this machine, and for how long; and when the
state is backed up. A store has one Settings object, `default`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fleetctl.specs.values.cron import CronSchedule, times_of, zone_of
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


class RetentionBudget(Spec):
    """How much of a group stays. Items in use, or needed, stay whatever the limits are."""

    max_age: Duration | None = Field(
        default=None, description="Seconds or `30d` since its last use; default: that of its sort."
    )
    max_size: Size | None = Field(
        default=None,
        description="Bytes or `2Gi` of all together, the oldest go first; default: that of each"
        " sort.",
    )


class RetentionLimit(RetentionBudget):
    """The limits of one sort, an old form."""

    keep_last: Count | None = Field(
        default=None, description="Old form: the number of newest that always stay."
    )


# The sorts of each group, as fields of the old form, which are still read.
FINISHED_WORK = ("runs", "logs", "outputs", "work_directories", "deleted")
CACHES = ("environments", "sources", "repositories", "reuse")


def _old(group: str) -> Any:
    return Field(default_factory=RetentionLimit, description=f"Old form: {group}.")


class RetentionSettings(Spec):
    """Limits of three groups. A field that is left out has the default of each of its sorts."""

    finished_work: RetentionBudget = Field(
        default_factory=RetentionBudget,
        description="Logs, metrics, outputs, work directories of finished work; records of deleted"
        " objects.",
    )
    caches: RetentionBudget = Field(
        default_factory=RetentionBudget,
        description="Environments, copies of sources and inputs, repositories, results for equal"
        " work.",
    )
    events: RetentionLimit = Field(
        default_factory=RetentionLimit,
        description="Events of finished objects; default 90d and 256Mi.",
    )
    objects: RetentionLimit = _old("finished objects; give each `ttlSecondsAfterFinished`")
    runs: RetentionLimit = _old("metrics, of `finishedWork`")
    logs: RetentionLimit = _old("of `finishedWork`")
    outputs: RetentionLimit = _old("of `finishedWork`")
    work_directories: RetentionLimit = _old("of `finishedWork`")
    environments: RetentionLimit = _old("of `caches`")
    sources: RetentionLimit = _old("of `caches`")
    repositories: RetentionLimit = _old("of `caches`")
    reuse: RetentionLimit = _old("results for equal work, of `caches`")
    deleted: RetentionLimit = _old("records of deleted objects, of `finishedWork`")


class BackupSettings(Spec):
    """Copies of the state, made by the controller."""

    schedule: Annotated[str, AfterValidator(_is_line)] = Field(
        description='When: five fields of cron, `"0 3 * * *"`, or `@daily` ...'
    )
    time_zone: Annotated[str, AfterValidator(_is_zone)] = Field(
        default="UTC",
        description="Time zone of the hours, such as Europe/Berlin; default UTC.",
    )
    to: Annotated[NonEmptyText, AfterValidator(_is_directory)] = Field(
        description="An absolute directory, or a URL that fsspec reaches: `s3://bucket/backups`."
    )
    keep: PositiveCount = Field(
        default=14, description="Number of this store's backups that stay there; default 14."
    )
    secret: Name | None = Field(
        default=None,
        description="Secret of namespace `default` whose variables the upload gets; default none.",
    )
    suspend: Bool = Field(default=False, description="Whether to make none; default false.")

    @property
    def times(self) -> CronSchedule:
        return times_of(self.schedule, self.time_zone)


class SettingsSpec(Spec):
    """Settings of the whole store: how much of the past stays, and backups."""

    retention: RetentionSettings = Field(
        default_factory=RetentionSettings,
        description="How much finished work stays, and how long; default: see each sort.",
    )
    backup: BackupSettings | None = Field(
        default=None, description="When and where the state is backed up; default: never."
    )
