"""What a pass knows of a resource: its row, its history, and which units succeeded before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Conflict
from fleetctl.controllers.model import Resource, RunState
from fleetctl.controllers.trials.prior import awaited, circle, taken_trials, waits_in_a_circle
from fleetctl.controllers.trials.winner import SWEEP, Lacking, params_text, winner_of
from fleetctl.specs.blocks.common import ParamsFrom
from fleetctl.specs.content import TREE
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.tracking.annotations import PARAMS, PRIOR, REVISION, waits_for
from fleetctl.tracking.load import load, work_of
from fleetctl.tracking.result_cache import contents_of, lookup
from fleetctl.tracking.taken import needs_command, notes_of
from fleetctl.tracking.track import Track, Work, track_of

if TYPE_CHECKING:
    from fleetctl.engine.shared.state import State


def taken_from(track: Track) -> tuple[str, str]:
    """(the sweep that gives it something, the annotation that this goes to), of an object that is
    read; ("", "") where none does.
    """
    wanted: ParamsFrom | None = getattr(track.spec, "params_from", None)
    if wanted is not None:
        return wanted.sweep, PARAMS
    prior = track.spec.search.prior_trials if isinstance(track.spec, SweepSpec) else None
    return (prior.from_sweep, PRIOR) if prior is not None else ("", "")


# What is noted, by annotation, and an event about it: its reason, its sentence.
Told = tuple[dict[str, str], str, str]


def _winner(track: Track, sweep: Resource | None, name: str) -> Told | Lacking:
    found = winner_of(sweep, name, needs_command=needs_command(track.spec))
    if isinstance(found, Lacking):
        return found
    message = f"{params_text(found.params)} of the best trial of sweep/{name}"
    return notes_of(found), "ParametersTaken", message


class Reading:
    """Rows that a spec wrote since, and what is read of them. look: observes a run soon."""

    def __init__(self, state: State, *, look: Callable[[str], None]) -> None:
        self._state, self._look = state, look
        self.changed_rows: dict[str, Resource] = {}  # rows that a spec wrote since they were read

    def read(self, track: Track) -> Work | None:
        """Parse its spec and rebuild its history from the rows. Raises when it cannot be read."""
        work = load(track, self._state.store.runs)
        if work is not None:
            self._state.dependents.hold(work.resource)
            self._own(work)
            self._look_up(work)
        return work

    def settle(self, work: Work) -> tuple[Work, Lacking | None]:
        """Of work that takes something from a sweep: take it once it is known, for good until it is
        applied again. (the work from then on, what is lacking else)
        """
        track = work.track
        name, note = taken_from(track)
        if not name or note in track.resource.annotations:
            return work, None
        resource, resources = track.resource, self._state.store.resources
        sweep = resources.get(SWEEP, name, resource.namespace)
        taking = _winner if note == PARAMS else self._prior
        found = taking(track, sweep, name)
        if isinstance(found, Lacking):
            return work, found
        notes, reason, message = found
        again = replace(resource, annotations={**resource.annotations, **notes})
        try:
            track.resource = resources.put(again, expected_version=resource.version)
        except Conflict:
            # A spec was written in between; the next tick takes it in.
            self._state.queue.add(resource.uid)
            return work, Lacking("its spec has just changed")
        self._state.say(resource.uid, reason, message)
        return self.read(track) or work, None

    def _prior(self, track: Track, sweep: Resource | None, name: str) -> Told | Lacking:
        """The trials of another sweep, by which the search of this one is warmed."""
        assert isinstance(track.spec, SweepSpec) and track.spec.search.metric is not None
        store, search, own = self._state.store, track.spec.search, track.resource
        assert search.metric is not None

        def next_of(text: str) -> str:
            return waits_for(store.resources.get(SWEEP, text, own.namespace))

        if names := circle(own.name, next_of):
            return waits_in_a_circle(names)
        lacking = awaited(sweep, name, search.metric.name)
        if lacking is not None or sweep is None:
            return lacking or Lacking("")
        other = work_of(sweep, store.runs)
        assert isinstance(other.track.spec, SweepSpec)
        found = taken_trials(other.controller, other.track.spec.search, other.history, search)
        return {PRIOR: found.text()}, "TrialsTaken", found.told(name, search.metric.name)

    def _look_up(self, work: Work) -> None:
        """Which of its units have succeeded before, elsewhere or here; asked once a reading."""
        contents = contents_of(self._state.store, work, revision=self._pinned(work))
        if contents is not None and not work.track.over:
            work.cached, work.uncached = lookup(contents, work.history)

    def _pinned(self, work: Work) -> str | None:
        """The commit that its runs have got of `source.git`; None where they have none, or work at
        different ones.
        """
        first = work.controller.unit(work.controller.first)
        if first is None:
            return None
        template = work.controller.content(first.index)
        if template.source is None or template.source.git is None:
            return None
        if work.resource.annotations.get(REVISION, "").startswith(TREE):
            return None  # that of the apply counts, whichever commit had it
        uid, providers = work.resource.uid, self._state.providers
        commits = {
            providers[name].revision(uid, template, first.template_hash)
            for name in work.controller.candidates
            if name in providers
        }
        known = commits - {""}
        return known.pop() if len(known) == 1 else None

    def fresh(self, kind: str) -> list[str]:
        """The uids of this kind that a spec wrote; their tracks have the newest rows by now."""
        uids = [uid for uid, row in self.changed_rows.items() if row.kind == kind]
        for uid in uids:
            self.fresh_track(uid)
        return uids

    def fresh_track(self, uid: str) -> Track | None:
        """The track with the newest row; rebuilt when the spec changed, dropped when the row is
        gone. One that sleeps is read back.
        """
        state = self._state
        track = state.tracks.get(uid)
        row = self.changed_rows.pop(uid, None)
        if row is None and track is None:
            row = state.store.resources.of(uid)
        if row is None:
            return track
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

    def _own(self, work: Work) -> None:
        for run in work.history.live.values():
            self._state.owner_of[run.name] = work.resource.uid
            if run.state is not RunState.STARTING:
                self._look(run.name)
        for box in work.history.sandboxes.values():
            self._state.owner_of[box.last.name] = work.resource.uid
