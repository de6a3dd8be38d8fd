"""The fields that kinds share: names and labels, where work may run, and the fields of every
running kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.blocks.depends import DEPENDENCIES_MAX, Dependencies
from fleetctl.specs.blocks.notify import WorkNotices
from fleetctl.specs.blocks.placement import PlacementCandidate, PlacementSpec, Priority, rank_of
from fleetctl.specs.blocks.policies import (
    Backoff,
    CachePolicy,
    FailurePolicy,
    FailurePolicyRule,
    OwnBudget,
    RetryPolicy,
    SandboxPolicy,
    SuccessPolicy,
    SuccessRule,
)
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import PROMPT_PROVIDER
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.specs.values.scalars import (
    EXACT_INT_MAX,
    Bool,
    Count,
    Duration,
    Name,
    PositiveDuration,
    Spec,
    Text,
)

__all__ = [
    "Backoff",
    "FailurePolicy",
    "FailurePolicyRule",
    "Metadata",
    "OwnBudget",
    "ParamsFrom",
    "PlacementCandidate",
    "PlacementSpec",
    "RetryPolicy",
    "SandboxPolicy",
    "SuccessPolicy",
    "SuccessRule",
    "WorkPart",
    "WorkSpec",
    "work_in",
]

ANNOTATIONS_BYTES_MAX = 256 * 1024  # the limit that Kubernetes has

_LABEL_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_FORM = (
    "at most 63 letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit"
)


def _label_key(value: str) -> str:
    prefix, slash, word = value.rpartition("/")
    if not _LABEL_WORD.fullmatch(word) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
        raise ValueError(f"a label's name must be {_LABEL_FORM}, perhaps after `a.domain/`")
    return value


def _label_value(value: str) -> str:
    if value and not _LABEL_WORD.fullmatch(value):
        raise ValueError(f"a label's value must be empty, or {_LABEL_FORM}")
    return value


def _check_annotations(value: dict[str, str]) -> dict[str, str]:
    if sum(len(key) + len(text) for key, text in value.items()) > ANNOTATIONS_BYTES_MAX:
        raise ValueError("all annotations together must be at most 256 KiB")
    return value


LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]


class Metadata(Spec):
    """Name, namespace, labels and annotations of an object."""

    name: Name = Field(description="Unique among the resources of its kind and namespace.")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="For selecting with `-l`; default none."
    )
    annotations: Annotated[dict[LabelKey, Text], AfterValidator(_check_annotations)] = Field(
        default_factory=dict,
        description="Notes for people and programs; selectors do not read them. Default none.",
    )
    namespace: Name = Field(
        default=DEFAULT_NAMESPACE,
        description="Keeps names of different teams apart; default: that of `-n`, or `default`.",
    )


class ParamsFrom(Spec):
    """Parameters that another object finds out: the work waits until they are known."""

    sweep: Name = Field(description="A Sweep of the same namespace; it must have a `metric`.")
    best: Literal[True] = Field(
        default=True,
        description="Parameters of the sweep's best trial, once it is finished; always true.",
    )


# Fields of a GangTemplate that a manifest has beside its template.
BESIDE_TEMPLATE = ("nodes", "ray", "rdma", "groups")


@dataclass(frozen=True, slots=True)
class WorkPart:
    """The template and placement of some units of an object: kinds whose units differ have several.

    path: path of the part in the spec; own: the template's fields that stand there, where the
    others stand in `template`.
    """

    path: tuple[str | int, ...]
    template: Template
    placement: PlacementSpec
    own: tuple[str, ...] = ()

    def at(self, field: str) -> tuple[str | int, ...]:
        """The path in a manifest of a field of its template, by the model's name for it."""
        if field in self.own:
            return ("spec", *self.path, field)
        if field in BESIDE_TEMPLATE:
            return ("spec", field)
        return ("spec", "template", field)

    @property
    def placement_at(self) -> tuple[str | int, ...]:
        """The path in a manifest of its placement."""
        return ("spec", *(self.path if "placement" in self.own else ()), "placement")


def work_in(spec: Any) -> Any:
    """Returns the spec of the work: the spec itself, or that of the objects which it makes."""
    return getattr(spec, "makes", spec)


class WorkSpec(Spec):
    """The fields that BatchJob, Sweep and TrainingRun share, named and meant as in batch/v1 Job."""

    parallelism: Count | None = Field(
        default=None, description="Runs at the same time; 0 pauses; default: the provider's."
    )
    suspend: Bool = Field(
        default=False, description="Whether to stop the runs and start none; default false."
    )
    active_deadline_seconds: PositiveDuration | None = Field(
        default=None, description="Seconds or `2h` for the whole, then it fails; default: no limit."
    )
    ttl_seconds_after_finished: Duration | None = Field(
        default=None,
        description="Seconds or `7d` after its end until its work directories are deleted;"
        " default: never.",
    )
    backoff_limit_per_index: Count = Field(
        default=0, description="Failures of one unit that are retried; default 0."
    )
    backoff_limit: Count | None = Field(
        default=None,
        description="Failures of all units together that are retried; default: no limit.",
    )
    max_infra_retries: Count = Field(
        default=5,
        description="Attempts of a unit that may be lost, and lives of sandboxes without progress;"
        " default 5.",
    )
    max_failed_indexes: Count | None = Field(
        default=None, description="Failed units above which the whole fails; default: run them all."
    )
    retry: RetryPolicy = Field(
        default_factory=RetryPolicy, description="The wait between attempts."
    )
    seed: Annotated[
        int,
        Field(
            strict=True,
            ge=0,
            le=EXACT_INT_MAX,
        ),
    ] = Field(default=0, description="Fixes everything random, such as drawn points; default 0.")
    placement: PlacementSpec = Field(
        default_factory=PlacementSpec, description="Where the work may run; default `local`."
    )
    rollout: Literal["Replace", "FinishRunning"] = Field(
        default="Replace",
        description="Effect of a changed template or a lower parallelism on live runs; default"
        " Replace.",
    )
    on_change: Literal["Rerun", "Keep"] = Field(
        default="Rerun",
        description="Whether finished units run again whose program, image or source changed;"
        " default Rerun.",
    )
    queue: Name | None = Field(
        default=None, description="The Queue that its runs wait in; default: none, they start."
    )
    priority: Priority = Field(
        default=0,
        description="A number, or low (-1000), normal or high (1000): the higher goes first in its"
        " queue; default 0.",
    )
    success_policy: SuccessPolicy | None = Field(
        default=None, description="When the whole succeeds early; default: when all units did."
    )
    failure_policy: FailurePolicy | None = Field(
        default=None, description="How failures are treated; default: each counts."
    )
    sandbox: SandboxPolicy = Field(
        default_factory=SandboxPolicy, description="How many tasks a sandbox runs; default one."
    )
    budget: OwnBudget | None = Field(
        default=None, description="Most that all its runs may cost; default: no limit of its own."
    )
    cache: CachePolicy | None = Field(
        default=None,
        description="Which results are reused instead of running; default: its own.",
    )
    depends_on: Dependencies = Field(
        default=(),
        max_length=DEPENDENCIES_MAX,
        description="Objects that must end before its first unit begins; default none.",
    )
    on_dependency_failed: Literal["Fail", "Skip"] | None = Field(
        default=None,
        description="Fail or Skip it when a dependency ends otherwise; default Fail, but Skip where"
        " one had to fail.",
    )

    notify: WorkNotices = ()

    @model_validator(mode="before")
    @classmethod
    def _asks_prompts_at_their_endpoint(cls, value: Any) -> Any:
        """Sets the one provider of a prompt, which users need not name."""
        template = value.get("template") if isinstance(value, dict) else None
        asks = template.get("prompt") if isinstance(template, dict) else None
        if asks is None or "placement" in value:
            return value
        return {**value, "placement": {"provider": PROMPT_PROVIDER}}

    @model_validator(mode="after")
    def _has_a_queue_to_go_first_in(self) -> WorkSpec:
        if self.rank and self.queue is None:
            raise ValueError("`priority` orders the work of a queue: write `queue: NAME` as well")
        return self

    @property
    def rank(self) -> int:
        """Its priority as a number."""
        return rank_of(self.priority)

    def parts(self) -> Iterator[WorkPart]:
        """Yields the parts of the work; a sweep may have its command in `search` alone."""
        template = getattr(self, "template", None) or Template(command=("true",))
        yield WorkPart(("template",), template, self.placement)

    def providers(self) -> tuple[str, ...]:
        """Returns the names of all providers where any part may run, in the order of
        the manifest.
        """
        names = (it.provider for part in self.parts() for it in part.placement.candidates)
        return tuple(dict.fromkeys(names))
