"""Loads a resource for a pass: its row, its history, and which units succeeded before."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Conflict
from fleetctl.controllers.model import Resource, RunState
from fleetctl.controllers.trials.prior import (
    choose_warm_trials,
    explain_awaited,
    find_circle,
    waits_in_a_circle,
)
from fleetctl.controllers.trials.winner import SWEEP, MissingInput, params_text, winner_of
from fleetctl.engine.shared.due_queue import key_of
from fleetctl.specs.blocks.common import ParamsFrom
from fleetctl.specs.content import TREE
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.tracking.annotations import (
    PARAMS,
    PRIOR,
    REVISION,
    needs_command,
    notes_of,
    waits_for,
)
from fleetctl.tracking.load import load_work, work_of
from fleetctl.tracking.result_cache import contents_of, find_cached
from fleetctl.tracking.track import ResourceWork, Track, track_of

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState


def find_params_source(track: Track) -> tuple[str, str]:
    """Returns (the sweep that gives it parameters, the annotation that stores them) for a loaded
    object; ("", "") without such a sweep.
    """
    wanted: ParamsFrom | None = getattr(track.spec, "params_from", None)
    if wanted is not None:
        return wanted.sweep, PARAMS
    prior = track.spec.search.prior_trials if isinstance(track.spec, SweepSpec) else None
    if prior is not None:
        return (prior.from_sweep, PRIOR)
    return ("", "")


# Annotations to store, and an event about them: its reason, its sentence.
Told = tuple[dict[str, str], str, str]


def _take_winner(
    track: Track,
    sweep: Resource | None,
    name: str,
) -> Told | MissingInput:
    found = winner_of(sweep, name, needs_command=needs_command(track.spec))
    if isinstance(found, MissingInput):
        return found
    message = f"{params_text(found.params)} of the best trial of sweep/{name}"
    return notes_of(found), "ParametersTaken", message


class WorkLoader:
    """Reads rows that a spec wrote since, and derived data. look: observes a run soon."""

    def __init__(self, state: EngineState, *, look: Callable[[str], None]) -> None:
        self._state = state
        self._look = look

    def read(self, track: Track) -> ResourceWork | None:
        """Parses its spec and rebuilds its history from the rows. Raises when it cannot be read."""
        work = load_work(track, self._state.store.runs)
        if work is not None:
            self._state.dependents.hold(work.resource)
            self._own(work)
            self._look_up(work)
        return work

    def settle(self, work: ResourceWork) -> tuple[ResourceWork, MissingInput | None]:
        """Takes parameters from a sweep once they are known, for good until the object is applied
        again. Returns (the work from then on, the missing input else)
        """
        track = work.track
        name, note = find_params_source(track)
        if not name or note in track.resource.annotations:
            return work, None
        resource = track.resource
        resources = self._state.store.resources
        sweep = resources.get(SWEEP, name, resource.namespace)
        taking = _take_winner if note == PARAMS else self._prior
        found = taking(track, sweep, name)
        if isinstance(found, MissingInput):
            return work, found
        notes, reason, message = found
        again = replace(resource, annotations={**resource.annotations, **notes})
        try:
            track.resource = resources.put(again, expected_version=resource.version)
        except Conflict:
            # A spec was written in between; the next tick takes it in.
            self._state.queue.add(resource.uid)
            return work, MissingInput("its spec has just changed")
        self._state.say(resource.uid, reason, message)
        return self.read(track) or work, None

    def _prior(
        self,
        track: Track,
        sweep: Resource | None,
        name: str,
    ) -> Told | MissingInput:
        """Returns the trials of another sweep, by which the search of this one is warmed."""
        assert isinstance(track.spec, SweepSpec) and track.spec.search.metric is not None
        store = self._state.store
        search = track.spec.search
        own = track.resource
        assert search.metric is not None

        def next_of(text: str) -> str:
            return waits_for(store.resources.get(SWEEP, text, own.namespace))

        if names := find_circle(own.name, next_of):
            return waits_in_a_circle(names)
        lacking = explain_awaited(sweep, name, search.metric.name)
        if lacking is not None or sweep is None:
            return lacking or MissingInput("")
        other = work_of(sweep, store.runs)
        assert isinstance(other.track.spec, SweepSpec)
        found = choose_warm_trials(other.controller, other.track.spec.search, other.history, search)
        return {PRIOR: found.text()}, "TrialsTaken", found.describe(name, search.metric.name)

    def _look_up(self, work: ResourceWork) -> None:
        """Looks up which of its units have succeeded before, elsewhere or here; once a reading."""
        contents = contents_of(self._state.store, work, revision=self._pinned(work))
        if contents is not None and not work.track.over:
            work.cached, work.uncached = find_cached(contents, work.history)

    def _pinned(self, work: ResourceWork) -> str | None:
        """Returns the commit of `source.git` in use by its runs; None where they have none, or
        differ.
        """
        first = work.controller.unit(work.controller.first)
        if first is None:
            return None
        template = work.controller.content(first.index)
        if template.source is None or template.source.git is None:
            return None
        if work.resource.annotations.get(REVISION, "").startswith(TREE):
            return None  # the apply's revision counts, from any commit
        uid = work.resource.uid
        providers = self._state.providers
        commits = {
            providers[name].revision(uid, template, first.template_hash)
            for name in work.controller.candidates
            if name in providers
        }
        known = commits - {""}
        if len(known) == 1:
            return known.pop()
        return None

    def fresh(self, kinds: Container[str]) -> list[Resource]:
        """Returns the rows of these kinds that were written since; their tracks have them now."""
        rows = [row for row in self._state.changed_rows.values() if row.kind in kinds]
        for row in rows:
            self.fresh_track(row.uid)
        return rows

    def fresh_track(self, uid: str) -> Track | None:
        """Returns the track with the newest row; rebuilt when the spec changed, dropped when the
        row is gone. One that sleeps is read back.
        """
        state = self._state
        track = state.tracks.get(uid)
        row = state.changed_rows.pop(uid, None)
        if row is None and track is None:
            row = state.store.resources.of(uid)
        if row is None:
            return track
        if row.status and (track is None or track.resource.name != row.name):
            # It may have another name than before, and be what others have waited for.
            for other in state.dependents.of(key_of(row)):
                state.queue.add(other)
        if track is None:
            track = state.tracks.hold(track_of(row))
        elif row.generation != track.resource.generation:
            track.resource = row
            track.outdate()
            # The new generation's runs leave something again; a volume may have to be elsewhere.
            track.asset.freed, track.asset.ready = False, False
            track.forget_places()
        else:
            track.resource = row
            if row.deleted_at_s is not None and track.work is None:
                track.spec = None
        return track

    def _own(self, work: ResourceWork) -> None:
        for run in work.history.live.values():
            self._state.owner_of[run.name] = work.resource.uid
            if run.state is not RunState.STARTING:
                self._look(run.name)
        for box in work.history.sandboxes.values():
            self._state.owner_of[box.last.name] = work.resource.uid
