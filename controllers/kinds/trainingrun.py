"""TrainingRun: stages in order; a failed stage starts again from its checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from fleetctl.controllers.history.checkpoints import CheckpointSteps, NewestCheckpoints
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.retry_limits import FailureAction, FailureRule
from fleetctl.controllers.model import CheckpointOrder, ProgressOrder, Run, RunState, WandbTrial
from fleetctl.controllers.planning.kind_controller import (
    UNITS_KEPT_MAX,
    KeepRunning,
    KindController,
    ObjectVerdict,
    StopNow,
    Unit,
    as_desired,
    describe_params_source,
    limits_of,
    placement_of,
    policy_of,
)
from fleetctl.controllers.planning.placement import Placement
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.controllers.schedule.end import find_early_verdict
from fleetctl.controllers.status_keys import Status
from fleetctl.controllers.trials.winner import with_arguments, with_sweeps_command
from fleetctl.controllers.wandb import winner_wandb
from fleetctl.specs.blocks.nodes import ONE, NodeRange, nodes_of
from fleetctl.specs.content import (
    NO_PINS,
    Pins,
    chain_content,
    content_of,
    read_given_params,
    template_hash,
)
from fleetctl.specs.kinds.trainingrun import STAGE
from fleetctl.specs.values.hashing import params_hash, short_hash

if TYPE_CHECKING:
    from fleetctl.specs.blocks.checkpoint import Checkpoint
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.kinds.trainingrun import TrainingRunSpec

NO_CHECKPOINT = "NoCheckpoint"
STEPS_SHOWN_MAX = 5
# Another attempt does not create the checkpoint that `checkpoint.resume` names.
_GIVEN_UP = FailureRule("", FailureAction.FAIL_INDEX, reasons=frozenset({NO_CHECKPOINT}))
_WITHOUT_CHECKPOINT = "name a step that is there in `checkpoint.resume`, or `Latest`, and apply"


def build_templates(spec: TrainingRunSpec) -> list[Template]:
    """Builds the templates of the stages or groups."""
    plain = [spec.template_of(at) for at in range(spec.count())]
    # Only primary groups save, and show whether the run gets on; a server does neither.
    saves = [it.name in spec.primaries for it in spec.groups] or [True] * len(plain)
    return [
        _prepare_saving(spec, it) if does else it for it, does in zip(plain, saves, strict=True)
    ]


def _prepare_saving(spec: TrainingRunSpec, template: Template) -> Template:
    """Returns the template of a program that reads from its environment where to save and from
    where to go on, and has the time to save however it ends: a timeout and the end of its sandbox,
    too.
    """
    # Python beside the program looks at what it saves, and whether it gets on.
    if spec.checkpoint is not None or spec.progress is not None:
        template = template.observed()
    if spec.checkpoint is None:
        return template
    fields = {
        "FLEETCTL_CHECKPOINT": spec.checkpoint.path,
        "FLEETCTL_RESUME": spec.checkpoint.resume,
    }
    save_s = spec.checkpoint.signal_before_stop_seconds
    grace_s = max(template.termination_grace_period_seconds, save_s)
    update = {"env": {**fields, **template.env}, "termination_grace_period_seconds": grace_s}
    return template.model_copy(update=update)


@dataclass(frozen=True, slots=True)
class _Stage:
    """own: its content, independent of earlier stages."""

    index: int
    name: str
    template: Template
    placement: Placement
    template_hash: str
    own: str
    resume_args: tuple[str, ...] | None


class TrainingRunController(KindController):
    """Decides for a TrainingRun. A stage's identity is its name: it keeps the index under which it
    first ran, at any position in the list. It starts when all before it have succeeded. maxRestarts
    counts per stage.

    allocated: params hash -> index of the stages that have runs already.
    """

    in_order = True
    reason_failed = "StageFailed"
    keeps_indexes = True
    total: int

    def __init__(
        self,
        spec: TrainingRunSpec,
        allocated: Mapping[str, int],
        pins: Pins = NO_PINS,
    ) -> None:
        template = with_sweeps_command(spec.template, spec.params_from, pins)
        self.spec = spec = spec.model_copy(update={"template": template})
        checkpoint = spec.checkpoint
        self.policy = policy_of(
            spec, pins, grace_s=checkpoint.signal_before_stop_seconds if checkpoint else 0.0
        )
        if any(it.nodes is not None for it in spec.named_parts) or spec.nodes != ONE:
            self.policy = replace(self.policy, reuse=1)  # nodes go with their attempt
        limits = limits_of(spec, backoff_limit_per_index=spec.max_restarts)
        rules = (_GIVEN_UP, *limits.rules)
        self.limits = replace(limits, rules=rules, checkpoints=checkpoint is not None)
        self.given = read_given_params(spec.params_from, pins)
        self.template_hash = ""
        self._stages = {it.index: it for it in _list_stages(spec, allocated, pins)}
        self._placements = {it.template_hash: it.placement for it in self._stages.values()}
        self._made: dict[int, Run] = {}  # the newest attempt of each wanted stage
        self._begun_at_s: dict[tuple[int, str], float] = {}  # of the first success of a content
        self._dropped: set[str] = set()  # contents of what stages left that are no longer wanted
        self.total = len(self._stages)
        self.unit = lru_cache(UNITS_KEPT_MAX)(self._unit)
        self.contents = self._contents()

    @staticmethod
    def contents_of(spec: TrainingRunSpec, pins: Pins) -> tuple[str, ...]:
        """Returns the contents of the stages: a later stage builds on the earlier ones."""
        template = with_sweeps_command(spec.template, spec.params_from, pins)
        spec = spec.model_copy(update={"template": template})
        owns = (content_of(template, pins, spec.params_from) for template in build_templates(spec))
        return tuple(accumulate(owns, chain_content))

    def recall(self, run: Run) -> None:
        """Records a row that was read back. A base that was removed since a stage built on it
        counts as present: the stages on top are not run again for that.
        """
        stage = self._stages.get(run.index)
        if stage is not None and run.params_hash == _hash_stage(stage.name):
            self._made[run.index] = run
            if run.state is RunState.SUCCEEDED:
                # Uses when the run was desired: only that time comes from the same clock for all
                # runs.
                self._begun_at_s.setdefault((run.index, run.content), run.created_at_s)
        elif run.state is RunState.SUCCEEDED and not run.put_aside:
            self._dropped.add(run.content)
        if self._dropped:
            self.contents = self._contents()
            self.unit = lru_cache(UNITS_KEPT_MAX)(self._unit)

    def _contents(self) -> tuple[str, ...]:
        """Returns the contents by index; empty for an index without a stage. A result on top of a
        removed stage counts where all stages that now precede it existed already.
        """
        found: dict[int, str] = {}
        before = ""
        there_at_s = 0.0
        for stage in self._stages.values():
            before = chain_content(before, stage.own)
            made = self._made.get(stage.index)
            if made is not None and made.created_at_s >= there_at_s:
                on_dropped = (chain_content(it, stage.own) for it in self._dropped)
                before = made.content if made.content in on_dropped else before
            found[stage.index] = before
            there_at_s = max(there_at_s, self._begun_at_s.get((stage.index, before), inf))
        return tuple(found.get(index, "") for index in range(max(found) + 1))

    def _unit(self, index: int) -> Unit | None:
        stage = self._stages.get(index)
        if stage is None:
            return None
        params = {**(self.given or {}), STAGE: stage.name}
        identity = _hash_stage(stage.name)
        content = self.contents[index]
        return Unit(
            index,
            params,
            identity,
            stage.template_hash,
            content,
        )

    def template(self, index: int) -> Template:
        template = self._stages[index].template
        if self.spec.params_from is None:
            return template
        return with_arguments(template, self.given or {})

    def content(self, index: int) -> Template:
        return self._stages[index].template

    def template_now(self, history: History, index: int) -> Template:
        template = self.template(index)
        nodes = nodes_of(template)
        count = self._nodes_now(history, index)
        if count == nodes.max:
            return template
        return template.model_copy(update={"nodes": NodeRange(min=nodes.min, max=count)})

    def can_shrink(self, history: History, index: int) -> bool:
        return self._nodes_now(history, index) > nodes_of(self.template(index)).min

    def _nodes_now(self, history: History, index: int) -> int:
        """Returns the nodes to request: half as many each time that the present number did not come
        in time.
        """
        nodes = nodes_of(self.template(index))
        unit = history.unfinished.get(index)
        return max(nodes.min, nodes.max >> (unit.shrunk if unit is not None else 0))

    def indexes(self) -> Iterator[int]:
        return iter(self._stages)

    @property
    def first(self) -> int:
        return next(iter(self._stages))

    def called(self, index: int) -> str:
        stage = self._stages.get(index)
        return f"stage {stage.name if stage is not None else index}"

    def placement(self, template_hash: str) -> Placement:
        return self._placements.get(template_hash, self.policy.placement)

    @property
    def candidates(self) -> tuple[str, ...]:
        return self.spec.providers()

    def wandb(self, name: str, index: int) -> WandbTrial | None:
        return winner_wandb(self.spec.params_from, self._stages[index].template)

    @property
    def repeats(self) -> bool:
        return False

    def next(self, history: History) -> Iterator[Unit]:
        index = self._present(history)
        if index is None or index in history.taken or not self.ready(history, index):
            return
        unit = self.unit(index)
        if unit is not None:
            yield unit

    def ready(self, history: History, index: int) -> bool:
        """Returns true if a stage may start. It works on the results of the earlier ones, and
        alone: also where a later one was let end that an inserted one comes before.
        """
        return self._present(history) == index and not history.live

    def keep(self, history: History, run: Run) -> KeepRunning | StopNow:
        decision = as_desired(self, run)
        present = self._present(history)
        if isinstance(decision, StopNow) or present is None or present == run.index:
            return decision
        if self.policy.rollout is not Rollout.REPLACE:
            return decision
        why = f"stage {self._stages[present].name} runs first, and it builds on that"
        return StopNow("Superseded", why)

    def _present(self, history: History) -> int | None:
        """Returns the current stage: the first that has not succeeded; None after the last."""
        return next((it for it in self._stages if it not in history.succeeded), None)

    def _explain_removed(self, history: History) -> str:
        """Returns why no attempt can go on from the requested step; empty where one may.

        A mirror has all checkpoints that were ever copied to it, and one that an attempt of this
        spec began from existed.
        """
        asked = self.spec.checkpoint
        present = self._present(history)
        if asked is None or asked.keep is None or asked.mirror or present is None or history.live:
            return ""
        unit = history.unfinished.get(present)
        if not asked.resume.startswith("step:") or (
            unit is not None and unit.steps.best is not None
        ):
            return ""
        last = asked.keep.last
        every = asked.keep.every
        step = int(asked.resume.removeprefix("step:"))
        if step not in history.saves.removed(last=last, every=every):
            return ""
        found = history.saves.there(last=last, every=every)
        there = ", ".join(map(str, found[-STEPS_SHOWN_MAX:]))
        return f"`keep` has removed the checkpoint of step {step}; there are those of {there}"

    def verdict(self, history: History) -> ObjectVerdict | None:
        if removed := self._explain_removed(history):
            text = f"{self.called(self._present(history) or 0)} cannot begin: {removed}"
            return ObjectVerdict(False, "StageFailed", text, hint=_WITHOUT_CHECKPOINT)
        if history.failed:
            return self._explain_failed(history)
        early = find_early_verdict(self.spec, history, units="stages")
        if early is not None:
            return early
        if len(history.succeeded) == self.total:
            return ObjectVerdict(
                True, "Completed", f"{self.total} of {self.total} stages succeeded"
            )
        return None

    def _explain_failed(self, history: History) -> ObjectVerdict:
        """Returns the end with the first unit that has failed for good."""
        index = next(iter(history.failed))
        run = history.last_failure
        if run is not None and run.index == index and run.reason == NO_CHECKPOINT:
            text = f"{self.called(index)} cannot begin: {run.message}"
            return ObjectVerdict(False, self.reason_failed, text, hint=_WITHOUT_CHECKPOINT)
        why = f" with {run.reason}" if run is not None and run.index == index else ""
        lost = run is not None and run.index == index and run.state is RunState.LOST
        ended, limit = ("was lost", "maxInfraRetries") if lost else ("failed", "maxRestarts")
        most = self.spec.max_infra_retries if lost else self.spec.max_restarts
        text = f"{self.called(index)} {ended}{why}; {limit} is {most}"
        if self.spec.checkpoint is not None:
            text += ", counted since the last new checkpoint"
        return ObjectVerdict(False, self.reason_failed, text)

    def summary(self, history: History) -> Status:
        present = self._present(history)
        stage = self._stages[present].name if present is not None else ""
        taken = describe_params_source(self.spec.params_from, self.given)
        return {
            **taken,
            **newest_checkpoint(history.saves),
            "stage": stage,
            "restarts": history.retries,
        }

    def progress(self, index: int) -> ProgressOrder | None:
        asked = self.spec.progress
        if asked:
            return ProgressOrder(asked.timeout_seconds, asked.start_seconds)
        return None

    def checkpoint(self, history: History, index: int) -> CheckpointOrder | None:
        asked = self.spec.checkpoint
        if asked is None:
            return None
        unit = history.unfinished.get(index)
        steps = unit.steps if unit is not None else CheckpointSteps()
        # Once an attempt has begun there and gone on, that line is the newest.
        resume = "Latest" if steps.saved and asked.resume.startswith("step:") else asked.resume
        below = steps.below
        anew = steps.redone and not steps.saved and resume == "Latest"
        if anew:
            below = 0 if steps.origin is None else steps.origin + 1
        return CheckpointOrder(
            path=asked.path,
            format=asked.format,
            resume=resume,
            verify=asked.verify,
            below=below if resume == "Latest" else None,
            anew=anew,
            arguments=self._resume_arguments(asked, history, index),
            last=asked.keep.last if asked.keep else None,
            every=asked.keep.every if asked.keep else None,
            mirror=asked.mirror or "",
        )

    def _resume_arguments(
        self,
        asked: Checkpoint,
        history: History,
        index: int,
    ) -> tuple[str, ...]:
        """Returns the resume arguments for its command. A stage that sets none has those of the
        run, unless the directory is known to hold other stages' checkpoints alone: a stage that
        prepares data takes none.
        """
        stage = self._stages[index]
        if stage.template.command is None:
            return ()
        if stage.resume_args is not None:
            return stage.resume_args
        saved_by = history.saved_by & self._stages.keys()
        if not saved_by or index in saved_by:
            return asked.resume_args
        return ()


def newest_checkpoint(saves: NewestCheckpoints) -> Status:
    newest = saves.newest
    if newest is None:
        return {}
    fields = {"step": newest.step, "path": newest.path, "at": newest.at_s, "bytes": newest.size}
    every_s = saves.every_s
    often = every_s is None or every_s < 1.0  # as exactly as checkpoints are looked for
    return {"checkpoint": fields if often else {**fields, "everySeconds": round(every_s or 0.0)}}


def _hash_stage(name: str) -> str:
    """Returns the hash that distinguishes the stage from the others."""
    return params_hash({STAGE: name})


def _list_stages(
    spec: TrainingRunSpec,
    allocated: Mapping[str, int],
    pins: Pins,
) -> Iterator[_Stage]:
    """Yields stages in order; one that has no runs yet gets an unused index."""
    names = [part.name for part in spec.named_parts] or ["main"]
    # Each group knows the ports of all: another port replaces every group. Their numbers of nodes
    # are left out, or a group could not be resized alone.
    ports = [f"{it.name}:{it.port}" for it in spec.groups if it.port is not None]
    known: dict[str, int] = {}
    for name in names:
        index = allocated.get(_hash_stage(name))
        if index is not None and index not in known.values():
            known[name] = index
    free = max(allocated.values(), default=-1) + 1
    for at, (name, template) in enumerate(zip(names, build_templates(spec), strict=True)):
        index = known.get(name)
        if index is None:
            index = free
            free = free + 1
        placement = spec.placement_of(at)
        yield _Stage(
            index=index,
            name=name,
            template=template,
            placement=placement_of(placement),
            template_hash=chain_content(
                short_hash(ports) if ports else "",
                template_hash(template, placement, pins, spec.params_from),
            ),
            own=content_of(template, pins, spec.params_from),
            resume_args=spec.named_parts[at].resume_args if spec.named_parts else None,
        )
