"""Makes the spans of an apply's trace: of the apply, of each object, and of each attempt with its
wait, its calls of providers and its program.

An attempt's span is made in the transaction that records its end, and sent once that is durable.
All ids are derived from the object, the run and the moment, so a controller that goes on with the
work of another one goes on with its trace, and no span has two ids. A trace of the caller is passed
on to programs without a collector, too.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from fleetctl.common.telemetry import (
    CLOSE_S,
    TRACEPARENT,
    AttributeValue,
    SpanRecord,
    SpanSink,
    TraceContext,
    derive_span_id,
    derive_trace_id,
    is_sampled,
    make_trace_context,
    parse_traceparent,
)
from fleetctl.controllers.model import LIVE_STATES, Run, RunState
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.engine.shared.part import EnginePart, PartWiring, ProviderCall
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.annotations import TRACES, find_trace

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import ResourceWork, Track

ATTEMPT, QUEUE, RUN, APPLY = "attempt", "queue", "run", "fleetctl apply"
RECORDED = "result recorded"
CHANGED = "Changed"  # the phase of an object that goes on in another trace
OBJECTS_NAMED_MAX = 20
# Failed units whose last end is remembered, for the wait of the next attempt.
ENDS_KEPT_MAX = 100_000
_FAILED = (RunState.FAILED, RunState.LOST, RunState.REFUSED)


class Telemetry(SpanSink, Protocol):
    """The sink of a controller. problem: a sentence where it was requested and exports nothing."""

    problem: str

    @property
    def exports(self) -> bool:
        """Returns whether spans are sent at all."""
        ...

    def close(self, within_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class ApplyTrace:
    """The span of a request that changes objects. parent_id: the caller's span; None: the caller's
    own context is passed on, as nothing is exported here."""

    context: TraceContext
    parent_id: str | None
    began_at_s: float


class RunTraces(EnginePart):
    """sink: None = no span is made, and a caller's trace is passed on as it is."""

    def __init__(self, state: EngineState, *, sink: Telemetry | None) -> None:
        self._state = state
        self._sink = sink if sink is not None and sink.exports else None
        self.problem = sink.problem if sink is not None else ""
        self.exports = self._sink is not None
        self.rests = not self.exports  # until a caller's trace has to be passed on
        self._ends: dict[tuple[str, int], tuple[float, str]] = {}  # end and span of a failure

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, sink=wiring.services.traces)

    # -- the apply ---------------------------------------------------------------------------------

    def begin_apply(self, traceparent: str, now_s: float) -> ApplyTrace | None:
        """Returns the span of a request. traceparent: the caller's, or empty. None: there is no
        trace."""
        parent = parse_traceparent(traceparent)
        if self._sink is not None:
            context = make_trace_context(parent, os.environ)
            return ApplyTrace(context, "" if parent is None else parent.span_id, now_s)
        if parent is None:
            return None
        self.rests = False
        return ApplyTrace(parent, None, now_s)

    def record_apply(
        self,
        trace: ApplyTrace | None,
        verb: str,
        changed: Sequence[tuple[Resource | None, Resource]],
    ) -> None:
        """Sends the span of a request, once its changes are stored. changed: objects before and
        after; a span whose object goes on in another trace ends here."""
        if self._sink is None or trace is None or not trace.context.sampled:
            return
        names = [after.key for _, after in changed[:OBJECTS_NAMED_MAX]]
        span = SpanRecord(
            f"fleetctl {verb}",
            trace.context.trace_id,
            trace.context.span_id,
            trace.parent_id or "",
            trace.began_at_s,
            self._state.clock.now_s(),
            {"fleetctl.objects.changed": len(changed), "fleetctl.objects": names},
            kind="SERVER",
        )
        self._sink.add([span])
        for before, _ in changed:
            if before is not None and _has_begun(before):
                status = {**json.loads(before.status), "phase": CHANGED, "reason": CHANGED}
                self._end_object(before, status)
        self._sink.release(committed=True)

    # -- runs --------------------------------------------------------------------------------------

    def list_variables(self, work: ResourceWork, run: Run) -> Mapping[str, str]:
        """Returns the trace for the program, unless its object sets one itself."""
        template = work.controller.template(run.index)
        traceparent = "" if TRACEPARENT in template.env else self.traceparent_of(work.resource, run)
        return {TRACEPARENT: traceparent} if traceparent else {}

    def traceparent_of(self, resource: Resource, run: Run) -> str:
        """Returns the traceparent of a run's own spans; empty without a trace."""
        if self._sink is not None:
            return self._find_run_span(resource, run).header
        found = find_trace(resource.annotations, run.created_at_s)
        return "" if found is None else found[1]

    def locate(self, keys: Mapping[str, object]) -> TraceContext | None:
        """Returns the span that a log record is about. keys: such as `run` or `uid`."""
        name = str(keys.get("run") or keys.get("key") or "")
        uid = self._state.owner_of.get(name) or str(keys.get("uid") or "")
        track = self._state.tracks.get(uid)
        if track is None or not KINDS[track.resource.kind].runs:
            return None
        run = track.work.history.live.get(name) if track.work is not None else None
        if run is not None:
            return self._find_run_span(track.resource, run)
        return self._find_object_span(track.resource, self._state.clock.now_s()).context

    def call_ended(self, call: ProviderCall) -> None:
        track = self._state.tracks.get(call.uid)
        if self._sink is None or track is None or track.work is None:
            return
        run = track.work.history.live.get(call.run)
        if run is None:
            return  # of an idle sandbox, whose runs have all ended
        context = self._find_run_span(track.resource, run)
        if not context.sampled:
            return
        span = SpanRecord(
            call.what,
            context.trace_id,
            derive_span_id(context.span_id, call.what, call.began_at_s),
            context.span_id,
            call.began_at_s,
            call.ended_at_s,
            {"fleetctl.provider": call.provider, "fleetctl.run": call.run},
            kind="CLIENT",
            problem=call.problem,
        )
        self._sink.add([span])

    def run_ended(
        self,
        work: ResourceWork,
        run: Run,
        result: str | None,
    ) -> None:
        if self._sink is None:
            return
        parent = self._find_object_span(work.resource, run.created_at_s)
        context = self._find_run_span(work.resource, run)
        unit = run.uid, run.index
        before = self._ends.pop(unit, None)
        if run.state in _FAILED and run.ended_at_s is not None:
            self._ends[unit] = run.ended_at_s, context.span_id
            if len(self._ends) > ENDS_KEPT_MAX:
                del self._ends[next(iter(self._ends))]
        if not context.sampled:
            return
        since_s = parent.since_s if run.attempt == 1 else run.created_at_s
        if before is not None:
            since_s = before[0]
        span = self._make_attempt(work.resource, run, parent.context, since_s, result)
        if before is not None:
            span = replace(span, link_id=before[1])
        self._sink.hold([span, *_list_phases(span, run)])

    def _make_attempt(
        self,
        resource: Resource,
        run: Run,
        parent: TraceContext,
        since_s: float,
        result: str | None,
    ) -> SpanRecord:
        now_s = self._state.clock.now_s()
        ended_at_s = now_s if run.ended_at_s is None else run.ended_at_s
        failed = run.state in _FAILED
        return SpanRecord(
            ATTEMPT,
            parent.trace_id,
            derive_span_id(parent.trace_id, run.name),
            parent.span_id,
            min(since_s, run.created_at_s),
            ended_at_s,
            _describe_run(resource, run, result),
            problem=(run.reason or run.state.value) if failed else "",
            events=[(RECORDED, now_s)] if result is not None else (),
            confirms=run.name,
        )

    # -- objects -----------------------------------------------------------------------------------

    def status_written(
        self,
        track: Track,
        before: Mapping[str, object],
        after: Mapping[str, object],
    ) -> None:
        was = before.get("phase") in TERMINAL_PHASES
        if self._sink is not None and after.get("phase") in TERMINAL_PHASES and not was:
            self._end_object(track.resource, after)

    def dropped(self, track: Track) -> None:
        if self._sink is not None and track.status.get("phase") not in TERMINAL_PHASES:
            status = {**track.status, "phase": "Deleted", "reason": "Deleted"}
            self._end_object(track.resource, status)

    def _end_object(self, resource: Resource, status: Mapping[str, object]) -> None:
        if not KINDS[resource.kind].runs:
            return
        now_s = self._state.clock.now_s()
        found = self._find_object_span(resource, now_s)
        if self._sink is None or not found.context.sampled:
            return
        ended_at_s = status.get("completionTime")
        reason = str(status.get("reason") or "")
        span = SpanRecord(
            resource.kind,
            found.context.trace_id,
            found.context.span_id,
            found.parent_id,
            found.since_s,
            ended_at_s if isinstance(ended_at_s, int | float) else now_s,
            {
                **_describe_object(resource),
                "fleetctl.phase": str(status.get("phase")),
                "fleetctl.reason": reason,
                **_pick_numbers(status, ("succeeded", "failed", "retries", "infraFailures")),
            },
            problem=reason if status.get("phase") == "Failed" else "",
            confirms=resource.uid,
        )
        self._sink.hold([span])

    # -- ids ---------------------------------------------------------------------------------------

    def _find_object_span(self, resource: Resource, at_s: float) -> ObjectSpan:
        found = find_trace(resource.annotations, at_s)
        parent = None if found is None else parse_traceparent(found[1])
        if found is None or parent is None:
            # Made by a Schedule, a Source or an operator: the object itself is the root.
            trace_id = derive_trace_id(self._state.store.store_id, resource.uid)
            sampled = is_sampled(trace_id, None, os.environ)
            context = TraceContext(trace_id, derive_span_id(trace_id, resource.uid), sampled)
            return ObjectSpan(context, "", resource.created_at_s)
        span_id = derive_span_id(parent.trace_id, parent.span_id, resource.uid)
        context = TraceContext(parent.trace_id, span_id, parent.sampled)
        return ObjectSpan(context, parent.span_id, found[0])

    def _find_run_span(self, resource: Resource, run: Run) -> TraceContext:
        parent = self._find_object_span(resource, run.created_at_s).context
        span_id = derive_span_id(parent.trace_id, run.name)
        return TraceContext(parent.trace_id, span_id, parent.sampled)

    # -- the tick ----------------------------------------------------------------------------------

    def load(self) -> None:
        tracks = self._state.tracks.values()
        passes_on = any(TRACES in track.resource.annotations for track in tracks)
        self.rests = not (self.exports or passes_on)
        if self._sink is not None:
            self._sink.recover(self._is_stored)

    def committed(self) -> None:
        if self._sink is not None:
            self._sink.release(committed=True)

    def forget(self) -> None:
        if self._sink is not None:
            self._sink.release(committed=False)

    def _is_stored(self, span: SpanRecord) -> bool:
        """Returns whether the end that a span is of was committed, before a kill."""
        uid = str(span.attributes.get("fleetctl.uid") or "")
        resource = self._state.store.resources.of(uid)
        if resource is None:
            return True  # the object is gone, with all its runs
        if span.confirms == uid:
            phase = span.attributes.get("fleetctl.phase")
            return phase == CHANGED or f'"phase":"{phase}"' in resource.status
        runs = (run for run, _ in self._state.store.runs.of(uid) if run.name == span.confirms)
        return any(run.state not in LIVE_STATES for run in runs)

    async def close(self) -> None:
        if self._sink is not None:
            await asyncio.to_thread(self._sink.close, CLOSE_S)


@dataclass(frozen=True, slots=True)
class ObjectSpan:
    """The span of an object in one of its traces. since_s: since when it has that trace."""

    context: TraceContext
    parent_id: str
    since_s: float


def _has_begun(resource: Resource) -> bool:
    """Returns whether an object has work under way, in a trace of its own."""
    phase = json.loads(resource.status or "{}").get("phase")
    return KINDS[resource.kind].runs and bool(phase) and phase not in TERMINAL_PHASES


def _list_phases(span: SpanRecord, run: Run) -> Iterator[SpanRecord]:
    """Yields the spans below an attempt: its wait for a start, and its program."""
    phases = [(QUEUE, span.began_at_s, run.created_at_s)]
    if run.started_at_s is not None:
        phases.append((RUN, run.started_at_s, span.ended_at_s))
    for name, began_at_s, ended_at_s in phases:
        yield SpanRecord(
            name,
            span.trace_id,
            derive_span_id(span.span_id, name),
            span.span_id,
            began_at_s,
            ended_at_s,
            {name: span.attributes[name] for name in ("fleetctl.uid", "fleetctl.run")},
            problem=span.problem if name == RUN else "",
            confirms=span.confirms,
        )


def _describe_object(resource: Resource) -> dict[str, AttributeValue]:
    return {
        "fleetctl.object": resource.key,
        "fleetctl.kind": resource.kind,
        "fleetctl.namespace": resource.namespace,
        "fleetctl.uid": resource.uid,
    }


def _describe_run(
    resource: Resource,
    run: Run,
    result: str | None,
) -> dict[str, AttributeValue]:
    """Returns the attributes of an attempt: names and numbers, and no text of a program."""
    known: dict[str, AttributeValue | None] = {
        "fleetctl.exit_code": run.exit_code,
        "fleetctl.cost_usd": run.cost_usd,
        "fleetctl.resumed_step": run.resumed_step,
        "fleetctl.result_bytes": None if result is None else len(result.encode()),
    }
    return {
        **_describe_object(resource),
        "fleetctl.run": run.name,
        "fleetctl.unit": KINDS[resource.kind].unit,
        "fleetctl.index": run.index,
        "fleetctl.attempt": run.attempt,
        "fleetctl.provider": run.provider,
        "fleetctl.state": run.state.value,
        "fleetctl.reason": run.reason,
        **{name: value for name, value in known.items() if value is not None},
    }


def _pick_numbers(status: Mapping[str, object], names: Sequence[str]) -> dict[str, AttributeValue]:
    found = {name: status.get(name) for name in names}
    return {f"fleetctl.{name}": it for name, it in found.items() if isinstance(it, int)}
