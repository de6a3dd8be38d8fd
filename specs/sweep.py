"""Sweep: a search over parameters, declared by an unchanged W&B sweep configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.search.config import Search, SearchMetric
from fleetctl.specs.values.scalars import NonEmptyText, PositiveCount, Spec

__all__ = ["Search", "SearchFile", "SweepSpec"]


METRICS_MAX = 8  # of more, nearly every trial is on the front
_AIM = {"name", "goal"}


class SearchFile(Spec):
    """An unchanged W&B sweep file, read when the manifest is applied."""

    file: NonEmptyText = Field(description="Path, relative to the manifest's directory.")


class SweepSpec(Execution):
    """Trials of one program over points of a search space. A stored one never has `searchFrom`."""

    search: Search = Field(description="The search space and the method.")
    trials: PositiveCount | None = Field(
        default=None, description="Trials in all; default: `run_cap`, or every point of a grid."
    )
    trials_per_worker: PositiveCount = Field(
        default=1, description="Trials that one sandbox runs in turn; default 1."
    )
    backend: Literal["builtin", "wandb"] = Field(
        default="builtin", description="Who draws the points; default builtin."
    )
    template: Template | None = Field(
        default=None, description="What each trial runs; default: the search's own command."
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
        """Before the search is looked at, which wants a `metric` for what goes with one alone."""
        search = value.get("search") if isinstance(value, dict) else None
        if not isinstance(search, dict) or not value.get("metrics"):
            return value
        if search.get("method") == "bayes":
            raise ValueError("a bayes search follows one `metric`; several go with grid or random")
        if search.get("early_terminate") is not None:
            raise ValueError("`early_terminate` compares trials by one `metric`, not by `metrics`")
        if search.get("metric") is not None:
            raise ValueError("`metrics` take the place of `search.metric`; leave one of them out")
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
    def _is_complete(self) -> SweepSpec:
        work = self.template.work if self.template is not None else None
        if work is None and self.search.program is None:
            if self.search.command is None:
                raise ValueError(
                    "a sweep needs work: `python`, `command` or `script` in `template`, "
                    "or `program` in `search`"
                )
            if "${program}" in self.search.command:
                raise ValueError("`command` has `${program}`, so `search` needs `program`")
        if self.search.method in ("random", "bayes") and self.trial_limit is None:
            raise ValueError(
                f"a {self.search.method} search never ends by itself; give `trials`, or `run_cap` "
                "in `search`"
            )
        return self

    @property
    def trial_limit(self) -> int | None:
        """Trials in all; None means every point of the grid."""
        limits = [it for it in (self.trials, self.search.run_cap) if it is not None]
        return min(limits) if limits else None
