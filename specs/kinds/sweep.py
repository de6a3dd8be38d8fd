"""Sweep: a search over parameters, declared by an unchanged W&B sweep configuration."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.search.config import Search, SearchMetric
from fleetctl.specs.values.scalars import NonEmptyText, PositiveCount, Spec

__all__ = ["AT_WANDB", "Search", "SearchFile", "SweepSpec", "Wandb"]


METRICS_MAX = 8  # of more, nearly every trial is on the front
_AIM = {"name", "goal"}


class SearchFile(Spec):
    """An unchanged W&B sweep file, read when the manifest is applied."""

    file: NonEmptyText = Field(description="Path, relative to the manifest's directory.")


# The search of a sweep that is at W&B already: it is read from there.
AT_WANDB = Search.model_construct(method="custom")
_ADDRESS = re.compile(r"https?://[^/\s@?#]+(/[^\s@?#]*)?")


def _path_part(value: str) -> str:
    if "/" in value or value.split() != [value]:
        raise ValueError("it is one part of a sweep's address `ENTITY/PROJECT/ID`, without `/`")
    return value


def _check_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError("it is an address with `https://` or `http://`, and no name or key in it")
    return value


PathPart = Annotated[NonEmptyText, AfterValidator(_path_part)]
Address = Annotated[NonEmptyText, AfterValidator(_check_address)]


class Wandb(Spec):
    """The sweep at W&B of a `backend: wandb`, and its server."""

    sweep_id: PathPart | None = Field(
        default=None,
        description="ID of an existing sweep; default: one is created from `search`.",
    )
    entity: PathPart | None = Field(
        default=None,
        description="Team or user; default: `search.entity`, `WANDB_ENTITY` of `env`, the key's.",
    )
    project: PathPart | None = Field(
        default=None,
        description="Project; default: `search.project`, then `WANDB_PROJECT` of `env`.",
    )
    base_url: Address | None = Field(
        default=None,
        description="URL of a server of your own; default: `WANDB_BASE_URL` of `env`, then W&B's.",
    )


def _without_default(schema: dict[str, Any]) -> None:
    """Removes the default, which stands for the search at W&B, and is not a search that users could
    write.
    """
    schema.pop("default", None)


class SweepSpec(WorkSpec):
    """Trials of one program over points of a search space. A stored one never has `searchFrom`."""

    search: Search = Field(
        default=AT_WANDB,
        json_schema_extra=_without_default,
        description="Parameters and method; default, with `wandb.sweepId` alone: as it is there.",
    )
    trials: PositiveCount | None = Field(
        default=None, description="Trials in all; default: `run_cap`, or every point of a grid."
    )
    trials_per_worker: PositiveCount = Field(
        default=1, description="Trials that one sandbox runs in turn; default 1."
    )
    backend: Literal["builtin", "wandb"] = Field(
        default="builtin", description="Sampler that draws the points; default builtin."
    )
    wandb: Wandb | None = Field(
        default=None, description="Sweep at W&B, with `backend: wandb`; default: a new one."
    )
    template: Template | None = Field(
        default=None, description="Program of each trial; default: the search's own command."
    )
    metrics: tuple[SearchMetric, ...] | None = Field(
        default=None,
        min_length=2,
        max_length=METRICS_MAX,
        description="Name and goal of several, in place of `search.metric`; default: that one.",
    )

    @model_validator(mode="before")
    @classmethod
    def _has_one_aim(cls, value: Any) -> Any:
        """Refuses `metrics` beside fields that need a single `metric`, before the search is
        checked.
        """
        search = value.get("search") if isinstance(value, dict) else None
        if not isinstance(search, dict) or not value.get("metrics"):
            return value
        if search.get("method") == "bayes":
            raise ValueError("a bayes search follows one `metric`; several go with grid or random")
        if search.get("early_terminate") is not None:
            raise ValueError("`early_terminate` compares trials by one `metric`, not by `metrics`")
        if search.get("metric") is not None:
            raise ValueError("`metrics` replace `search.metric`; leave one of them out")
        return value

    @model_validator(mode="after")
    def _weighs_each_once(self) -> SweepSpec:
        names = [it.name for it in self.metrics or ()]
        if len(set(names)) < len(names):
            raise ValueError("two of `metrics` have the same name")
        extra = sorted({key for it in self.metrics or () for key in it.model_fields_set} - _AIM)
        if extra:
            raise ValueError(f"of several metrics `name` and `goal` count, and not `{extra[0]}`")
        return self

    @model_validator(mode="after")
    def _has_a_search(self) -> SweepSpec:
        if "search" not in self.model_fields_set and not self.attaches:
            raise ValidationError.from_exception_data(
                "SweepSpec",
                [
                    InitErrorDetails(
                        type="missing",
                        loc=("search",),
                        input=None,
                    )
                ],
            )
        return self

    @model_validator(mode="after")
    def _check_backend(self) -> SweepSpec:
        if self.backend == "builtin":
            if self.wandb is not None:
                raise ValueError("`wandb` goes with `backend: wandb` alone")
            return self
        search = self.search
        template = self.template
        for name in ("sampler", "prior_trials"):
            if getattr(search, name) is not None:
                alias = type(search).model_fields[name].alias or name
                raise ValueError(
                    f"`{alias}` goes with `backend: builtin`; here W&B draws the points"
                )
        if self.metrics is not None:
            raise ValueError(
                "`metrics` go with `backend: builtin`; a sweep at W&B has one `metric`"
            )
        if template is not None and (template.python is not None or template.is_function):
            raise ValueError(
                "a run of W&B is a program: `program` in `search`, or `command` or `script` in "
                "`template`"
            )
        return self

    @model_validator(mode="after")
    def _is_complete(self) -> SweepSpec:
        if self.attaches and self.search is AT_WANDB:
            return self
        work = self.template.work if self.template is not None else None
        if work is None and self.search.program is None:
            if self.search.command is None:
                raise ValueError(
                    "a sweep needs work: `python`, `command` or `script` in `template`, "
                    "or `program` in `search`"
                )
            if "${program}" in self.search.command:
                raise ValueError("`command` has `${program}`, so `search` needs `program`")
        endless = self.search.method in ("random", "bayes") and not self.attaches
        if endless and self.trial_limit is None:
            raise ValueError(
                f"a {self.search.method} search never ends by itself; give `trials`, or `run_cap` "
                "in `search`"
            )
        return self

    @property
    def attaches(self) -> bool:
        """Returns True if the sweep attaches to one that is at W&B already."""
        wandb = self.wandb if self.backend == "wandb" else None
        return wandb is not None and wandb.sweep_id is not None

    @property
    def trial_limit(self) -> int | None:
        """Returns the number of trials in all; None means every point of the grid."""
        limits = [it for it in (self.trials, self.search.run_cap) if it is not None]
        if limits:
            return min(limits)
        return None
