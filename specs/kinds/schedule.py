"""Schedule: makes an object of a running kind at the times of a line of cron.

Fields are named and meant as in Kubernetes' batch/v1 CronJob.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from fleetctl.specs.blocks.common import ANNOTATIONS_BYTES_MAX, LabelKey, LabelValue, WorkSpec
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.cron import CronSchedule, times_of, zone_of
from fleetctl.specs.values.scalars import Bool, Count, PositiveDuration, Spec, Text

# `-` and minutes since the epoch come after it, and names have at most 63 characters.
NAME_CHARS_MAX = 52
RUNNING = tuple(kind.name for kind in KINDS.values() if kind.runs)


def _is_small(value: dict[str, str]) -> dict[str, str]:
    if sum(len(key) + len(text) for key, text in value.items()) > ANNOTATIONS_BYTES_MAX:
        raise ValueError("all annotations together must be at most 256 KiB")
    return value


def _is_running(value: str) -> str:
    if value not in RUNNING:
        raise ValueError(f"it must be a kind that does work: {', '.join(RUNNING)}")
    return value


def _is_line(value: str) -> str:
    times_of(value, "UTC")
    return value


def _is_zone(value: str) -> str:
    zone_of(value)
    return value


class ScheduledMetadata(Spec):
    """Labels and annotations of the objects that are made; their names come from the schedule."""

    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Labels of each object that is made; default none."
    )
    annotations: Annotated[dict[LabelKey, Text], AfterValidator(_is_small)] = Field(
        default_factory=dict, description="Notes on each object that is made; default none."
    )


class ScheduledTemplate(Spec):
    """A manifest without a name: what is made each time."""

    kind: Annotated[str, AfterValidator(_is_running)] = Field(
        description="A kind that does work, such as BatchJob, Sweep or TrainingRun."
    )
    metadata: ScheduledMetadata = Field(
        default_factory=ScheduledMetadata, description="Labels and annotations; default none."
    )
    spec: dict[str, JsonValue] = Field(
        description="The spec of that kind, checked as its own; see `explain job.spec`."
    )

    @model_validator(mode="after")
    def _holds_such_a_spec(self) -> ScheduledTemplate:
        try:
            _ = self.work
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in ("spec", *first["loc"]))
            raise ValueError(f"`{where}`: {first['msg']}") from error
        return self

    @cached_property
    def work(self) -> WorkSpec:
        """The spec by its model. Raises pydantic's ValidationError."""
        found = KINDS[self.kind].spec.model_validate(self.spec, by_alias=True, by_name=False)
        assert isinstance(found, WorkSpec)
        return found


class ScheduleSpec(Spec):
    """Each time makes one object of the template."""

    schedule: Annotated[str, AfterValidator(_is_line)] = Field(
        description='When: five fields of cron, `"0 3 * * *"`, or `@hourly`, `@daily` ...'
    )
    time_zone: Annotated[str, AfterValidator(_is_zone)] = Field(
        default="UTC",
        description="Time zone of the hours, such as Europe/Berlin; default UTC.",
    )
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = Field(
        default="Allow",
        description="While the one before still runs: start beside it, wait for its end, or stop"
        " it first; default Allow.",
    )
    starting_deadline_seconds: PositiveDuration | None = Field(
        default=None,
        description="Seconds or `2h` by which a start may be late; default: any time.",
    )
    successful_jobs_history_limit: Count = Field(
        default=3, description="Number of succeeded objects that are kept; default 3."
    )
    failed_jobs_history_limit: Count = Field(
        default=1, description="Number of failed objects that are kept; default 1."
    )
    suspend: Bool = Field(
        default=False, description="Whether to start nothing; what runs goes on; default false."
    )
    template: ScheduledTemplate = Field(description="The object that is made each time.")

    @property
    def times(self) -> CronSchedule:
        return times_of(self.schedule, self.time_zone)

    @property
    def makes(self) -> WorkSpec:
        """The spec of each object that it makes."""
        return self.template.work
