"""What a simulated provider answers when it is asked for one run by id."""

from __future__ import annotations

import json
from zlib import crc32

from fleetctl.controllers.model import (
    Alive,
    CheckpointReport,
    Ended,
    Gone,
    Metric,
    Node,
    Observation,
    SavedCheckpoint,
)
from fleetctl.providers.contract.base import RunRef
from fleetctl.specs.values.hashing import canonical_json
from tests.simulation import gpus, nodes
from tests.simulation.models import Model
from tests.simulation.world import Work, World

STARTED_BYTES = 50
METRIC_BYTES = 100
ENDED_BYTES = 70
LOSSES = 997


def observe_run(model: Model, world: World, ref: RunRef) -> Observation | None:
    """The answer now. Where look-ups are not strong it may be as old as the visibility bound.

    None of a sandbox that waits to begin: there is no run yet, and it is not gone.
    """
    work = world.works.get(ref.run)
    box = world.by_sandbox.get(ref.run)
    if work is None and box is not None and box.alive and not box.begun:
        return None
    if work is None or work.order.uid != ref.uid:
        return Gone(ref.run, world.now_s)
    if not model.contract.strong_get and _behind(model, world, since_s=work.asked_at_s):
        return Gone(ref.run, world.now_s)
    piece = _piece(world, work, ref)
    if piece is not None:
        return piece
    if work.ended_at_s is None or (
        not model.contract.strong_get and _behind(model, world, since_s=work.ended_at_s)
    ):
        return _alive(world, work, ref)
    if work.end is None:
        return Gone(ref.run, world.now_s)
    return _ended(work, ref)


def _piece(world: World, work: Work, ref: RunRef) -> Alive | None:
    """Returns the first new events if the journal is read in pieces. An end that is written behind
    this piece belongs to the next look.
    """
    seen = max(0, (ref.journal_offset - STARTED_BYTES) // METRIC_BYTES)
    fresh = len(_told(work, at_s=world.now_s)) - seen
    taken = world.piece_of(fresh)
    if taken is None:
        return None
    offset = STARTED_BYTES + METRIC_BYTES * (seen + taken)
    metrics, checkpoints = _news(work, ref, at_s=world.now_s, most=taken)
    return Alive(
        ref.run,
        work.box.handle,
        work.begun_at_s,
        offset,
        metrics,
        gpus=_gpus(work, ref),
        nodes=_nodes(work, ref),
        checkpoints=checkpoints,
        more=True,
    )


def journal_bytes(work: Work, *, at_s: float) -> int:
    """Length of the run's journal at a time; complete when the work has ended."""
    length = STARTED_BYTES + METRIC_BYTES * len(_told(work, at_s=at_s))
    return length + (ENDED_BYTES if work.ended_at_s is not None and work.end is not None else 0)


def metrics_of(work: Work, *, at_s: float) -> tuple[Metric, ...]:
    """What the work had reported by then: evenly spread over its planned duration."""
    until_s = min(at_s, work.ended_at_s if work.ended_at_s is not None else at_s)
    step_s = min(work.seconds, 1_000.0) / (work.metrics + 1)
    due = [work.begun_at_s + step_s * (seq + 1) for seq in range(work.metrics)]
    return tuple(
        Metric(seq, seq, "loss", metric_value(work, seq), at)
        for seq, at in enumerate(due)
        if at <= until_s
    )


def _told(work: Work, *, at_s: float) -> list[Metric | SavedCheckpoint]:
    """Events in the order of their coming, each as long as any other."""
    until_s = min(at_s, work.ended_at_s if work.ended_at_s is not None else at_s)
    saved = work.saving.saved(work.begun_at_s, work.seconds, until_s)
    return sorted([*metrics_of(work, at_s=at_s), *saved], key=lambda one: one.at_s)


def metric_value(work: Work, seq: int) -> float:
    return (loss_of(work) + 1.0) / (seq + 1)


def loss_of(work: Work) -> float:
    """Told by the parameters; work without any is told apart by its index. Its template may shift
    it.
    """
    params = work.order.params
    told = crc32(canonical_json(dict(params)).encode()) % LOSSES if params else work.order.index
    return float(told) + float(work.order.template.env.get("shift", 0))


def result_of(work: Work) -> str:
    """A function of parameters and template, so that any successful attempt gives the same."""
    value = {"params": dict(work.order.params), "loss": loss_of(work)}
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _behind(model: Model, world: World, *, since_s: float) -> bool:
    """True when the answer is older than what happened at `since_s`."""
    return world.now_s - since_s < model.contract.visibility_bound_s and world.rng.random() < 0.5


def _news(
    work: Work, ref: RunRef, *, at_s: float, most: int | None = None
) -> tuple[tuple[Metric, ...], CheckpointReport]:
    seen = max(0, (ref.journal_offset - STARTED_BYTES) // METRIC_BYTES)
    fresh = _told(work, at_s=at_s)[seen:][:most]
    saved = tuple(one for one in fresh if isinstance(one, SavedCheckpoint))
    resumed = work.saving.resumed if ref.journal_offset == 0 else None
    return tuple(one for one in fresh if isinstance(one, Metric)), CheckpointReport(saved, resumed)


def _alive(world: World, work: Work, ref: RunRef) -> Alive:
    # A look that is behind may show the journal as it was, but never shorter than what was read
    # before.
    at_s = world.now_s
    length = STARTED_BYTES + METRIC_BYTES * len(_told(work, at_s=at_s))
    metrics, checkpoints = _news(work, ref, at_s=at_s)
    return Alive(
        ref.run,
        work.box.handle,
        work.begun_at_s,
        max(length, ref.journal_offset),
        metrics,
        gpus=_gpus(work, ref),
        nodes=_nodes(work, ref),
        checkpoints=checkpoints,
    )


def _gpus(work: Work, ref: RunRef) -> tuple[str, ...]:
    """They are in the first line of the journal."""
    return gpus.told(work.order) if ref.journal_offset == 0 else ()


def _nodes(work: Work, ref: RunRef) -> tuple[Node, ...]:
    """So are they."""
    return nodes.told(work.order) if ref.journal_offset == 0 else ()


def _ended(work: Work, ref: RunRef) -> Ended:
    assert work.end is not None and work.ended_at_s is not None
    at_s = work.ended_at_s
    metrics, checkpoints = _news(work, ref, at_s=at_s)
    return Ended(
        run=ref.run,
        handle=work.box.handle,
        started_at_s=work.begun_at_s,
        ended_at_s=at_s,
        ok=work.end.ok,
        infrastructure=work.end.infrastructure,
        reason=work.end.reason,
        message="" if work.end.ok else f"ended with {work.end.reason}",
        exit_code=work.end.exit_code,
        journal_offset=journal_bytes(work, at_s=at_s),
        metrics=metrics,
        checkpoints=checkpoints,
        result=result_of(work) if work.end.ok else None,
        sandbox_open=work.box.alive,
        gpus=_gpus(work, ref),
        nodes=_nodes(work, ref),
    )
