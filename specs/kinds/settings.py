"""Settings of a store: how long finished work stays on the controller's machine, at which size, and
when the state is backed up. A store has one Settings object, `default`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fleetctl.specs.values.cron import CronSchedule, times_of, zone_of
from fleetctl.specs.values.hints import WrongValueError
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


def _check_schedule(value: str) -> str:
    times_of(value, "UTC")
    return value


def _check_zone(value: str) -> str:
    zone_of(value)
    return value


def _check_destination(value: str) -> str:
    """Checks the target of backups: an absolute directory, or a URL without a password. A relative
    path is refused, for the controller has no directory of the user's.
    """
    protocol, url, rest = value.partition("://")
    if url and "@" in rest.partition("/")[0]:
        hint = "leave it out, and name a Secret in `secret`"
        raise WrongValueError("a URL must not hold a user or a password", hint)
    if not url and not value.startswith("/"):
        raise WrongValueError("a directory must be absolute", "such as `/srv/backups`")
    if url and not (protocol and rest):
        raise WrongValueError("it is not a URL", "such as `s3://bucket/backups`")
    return value


class RetentionBudget(Spec):
    """The limits of a group of stored items. Items that are in use or needed stay in any case."""

    max_age: Duration | None = Field(
        default=None,
        description="Age since the last use, in seconds or as `30d`; default: that of each item's"
        " type.",
    )
    max_size: Size | None = Field(
        default=None,
        description="Size of all together, in bytes or as `2Gi`, the oldest go first; default: that"
        " of each type.",
    )


class RetentionLimit(RetentionBudget):
    """The limits of one type of stored items. Old form, still read: see RetentionBudget."""

    keep_last: Count | None = Field(
        default=None, description="Old form: number of the newest items that always stay."
    )


# The types of each group, as fields of the old form, which are still read.
FINISHED_WORK = ("runs", "logs", "outputs", "work_directories", "deleted")
CACHES = ("environments", "sources", "repositories", "reuse")


def _old_field(meaning: str) -> Any:
    return Field(default_factory=RetentionLimit, description=f"Old form: {meaning}.")


class RetentionSettings(Spec):
    """The limits of three groups of stored items. Without a limit each type has its own default."""

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
    objects: RetentionLimit = _old_field("finished objects; give each `ttlSecondsAfterFinished`")
    runs: RetentionLimit = _old_field("metrics; now part of `finishedWork`")
    logs: RetentionLimit = _old_field("logs; now part of `finishedWork`")
    outputs: RetentionLimit = _old_field("outputs; now part of `finishedWork`")
    work_directories: RetentionLimit = _old_field("work directories; now part of `finishedWork`")
    environments: RetentionLimit = _old_field("environments; now part of `caches`")
    sources: RetentionLimit = _old_field("copies of sources; now part of `caches`")
    repositories: RetentionLimit = _old_field("repositories; now part of `caches`")
    reuse: RetentionLimit = _old_field("results for equal work; now part of `caches`")
    deleted: RetentionLimit = _old_field("records of deleted objects; now part of `finishedWork`")


class BackupSettings(Spec):
    """Copies of the state that the controller makes."""

    schedule: Annotated[str, AfterValidator(_check_schedule)] = Field(
        description='Times of backups: five fields of cron, `"0 3 * * *"`, or `@daily` ...'
    )
    time_zone: Annotated[str, AfterValidator(_check_zone)] = Field(
        default="UTC",
        description="Time zone of the hours, such as Europe/Berlin; default UTC.",
    )
    to: Annotated[NonEmptyText, AfterValidator(_check_destination)] = Field(
        description="An absolute directory, or a URL that fsspec reaches: `s3://bucket/backups`."
    )
    keep: PositiveCount = Field(
        default=14, description="Number of this store's backups that stay there; default 14."
    )
    secret: Name | None = Field(
        default=None,
        description="Secret of namespace `default` whose variables the upload gets; default none.",
    )
    suspend: Bool = Field(default=False, description="Whether backups are paused; default false.")

    @property
    def times(self) -> CronSchedule:
        return times_of(self.schedule, self.time_zone)


class SettingsSpec(Spec):
    """Settings of the whole store: how much finished work stays, and backups."""

    retention: RetentionSettings = Field(
        default_factory=RetentionSettings,
        description="How much finished work stays, and how long; default: see each field.",
    )
    backup: BackupSettings | None = Field(
        default=None, description="When and where the state is backed up; default: not at all."
    )
