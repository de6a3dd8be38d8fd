"""TrainingRun: stages in order; a failed stage starts again from its checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from fleetctl.controllers.history.checkpoints import Saves, Steps
from fleetctl.controllers.history.history import History
from fleetctl.controllers.kind import (
    UNITS_KEPT_MAX,
    KindController,
    Unit,
    Verdict,
    limits_of,
    policy_of,
    taken_from,
)
from fleetctl.controllers.model import CheckpointOrder, ProgressOrder, RunState, WandbTrial
from fleetctl.controllers.schedule.early_end import early_verdict
from fleetctl.controllers.status_keys import Status
from fleetctl.controllers.wandb.program import winner_wandb
from fleetctl.specs.content import (
    NO_PINS,
    Pins,
    after,
    content_of,
    given_params,
    template_hash,
)
from fleetctl.specs.trainingrun import STAGE
from fleetctl.specs.values.hashing import params_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.trainingrun import TrainingRunSpec


def templates(spec: TrainingRunSpec) -> list[Template]:
    """Of the stages; each learns from its environment where to save and from where to go on, and
    has the time to save whatever ends it: a timeout and the end of its sandbox, too.
    """
    plain = [spec.template_of(at) for at in range(spec.count())]
    # Python beside the program looks at what it saves, and whether it gets on.
    if spec.checkpoint is not None or spec.progress is not None:
        plain = [it.observed() for it in plain]
    if spec.checkpoint is None:
        return plain
    told = {"FLEETCTL_CHECKPOINT": spec.checkpoint.path, "FLEETCTL_RESUME": spec.checkpoint.resume}
    save_s = spec.checkpoint.signal_before_stop_seconds
    return [
        it.model_copy(
            update={
                "env": {**told, **it.env},
                "termination_grace_period_seconds": max(
                    it.termination_grace_period_seconds, save_s
                ),
            }
        )
        for it in plain
    ]


class TrainingRun(KindController):
    """Unit k is stage k; it starts when stage k-1 has succeeded. maxRestarts counts per stage."""

    in_order = True
    total: int

    def __init__(
        self,
        spec: TrainingRunSpec,
        allocated: Mapping[str, int],  # noqa: ARG002
        pins: Pins = NO_PINS,
    ) -> None:
        self.spec = spec
        checkpoint = spec.checkpoint
        self.policy = policy_of(
            spec, pins, grace_s=checkpoint.signal_before_stop_seconds if checkpoint else 0.0
        )
        limits = limits_of(spec, backoff_limit_per_index=spec.max_restarts)
        self.limits = replace(limits, checkpoints=checkpoint is not None)
        self._templates = templates(spec)
        self.given = given_params(spec.params_from, pins)
        self._hashes = [
            template_hash(one, spec.placement, pins, spec.params_from) for one in self._templates
        ]
        self.contents = self.contents_of(spec, pins)
        self.template_hash = ""
        self._names = [stage.name for stage in spec.stages] or ["main"]
        self.total = len(self._templates)
        self.unit = lru_cache(UNITS_KEPT_MAX)(self._unit)

    @staticmethod
    def contents_of(spec: TrainingRunSpec, pins: Pins) -> tuple[str, ...]:
        """A later stage builds on what the earlier ones leave."""
        owns = (content_of(template, pins, spec.params_from) for template in templates(spec))
        return tuple(accumulate(owns, after))

    def _unit(self, index: int) -> Unit | None:
        if not 0 <= index < self.total:
            return None
        own = {STAGE: self._names[index]}
        params = {**(self.given or {}), **own}
        return Unit(index, params, params_hash(own), self._hashes[index], self.contents[index])

    def template(self, index: int) -> Template:
        return self._templates[index]

    def wandb(self, name: str, index: int) -> WandbTrial | None:  # noqa: ARG002
        return winner_wandb(self.spec.params_from)

    @property
    def repeats(self) -> bool:
        return False

    def next(self, history: History) -> Iterator[Unit]:
        index = len(history.succeeded)
        unit = self.unit(index)
        if unit is not None and index not in history.taken and self.ready(history, index):
            yield unit

    def ready(self, history: History, index: int) -> bool:
        """A stage works on what the earlier ones made."""
        return all(earlier in history.succeeded for earlier in range(index))

    def verdict(self, history: History) -> Verdict | None:
        if history.failed:
            index = next(iter(history.failed))
            run = history.last_failure
            why = f" with {run.reason}" if run is not None and run.index == index else ""
            lost = run is not None and run.index == index and run.state is RunState.LOST
            ended, limit = ("was lost", "maxInfraRetries") if lost else ("failed", "maxRestarts")
            most = self.spec.max_infra_retries if lost else self.spec.max_restarts
            text = f"stage {self._names[index]} {ended}{why}; {limit} is {most}"
            if self.spec.checkpoint is not None:
                text += ", counted since the last new checkpoint"
            return Verdict(False, "StageFailed", text)
        early = early_verdict(self.spec, history, units="stages")
        if early is not None:
            return early
        if len(history.succeeded) == self.total:
            return Verdict(True, "Completed", f"all {self.total} stages succeeded")
        return None

    def summary(self, history: History) -> Status:
        current = len(history.succeeded)
        stage = self._names[current] if current < self.total else ""
        taken = taken_from(self.spec.params_from, self.given)
        return {
            **taken,
            **newest_checkpoint(history.saves),
            "stage": stage,
            "restarts": history.retries,
        }

    @property
    def progress(self) -> ProgressOrder | None:
        asked = self.spec.progress
        return ProgressOrder(asked.timeout_seconds, asked.start_seconds) if asked else None

    def checkpoint(self, history: History, index: int) -> CheckpointOrder | None:
        asked = self.spec.checkpoint
        if asked is None:
            return None
        unit = history.unfinished.get(index)
        steps = unit.steps if unit is not None else Steps()
        # Once an attempt has begun there and gone on, that line is the newest.
        resume = "Latest" if steps.saved and asked.resume.startswith("step:") else asked.resume
        return CheckpointOrder(
            path=asked.path,
            format=asked.format,
            resume=resume,
            verify=asked.verify,
            below=steps.below if resume == "Latest" else None,
            arguments=asked.resume_args if self._templates[index].command is not None else (),
            last=asked.keep.last if asked.keep else None,
            every=asked.keep.every if asked.keep else None,
        )


def newest_checkpoint(saves: Saves) -> Status:
    newest = saves.newest
    if newest is None:
        return {}
    told = {"step": newest.step, "path": newest.path, "at": newest.at_s, "bytes": newest.size}
    every_s = saves.every_s
    often = every_s is None or every_s < 1.0  # as exactly as checkpoints are looked for
    return {"checkpoint": told if often else {**told, "everySeconds": round(every_s or 0.0)}}
