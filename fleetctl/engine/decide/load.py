"""What a pass knows of a resource: its row, its history, and which units succeeded before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import Conflict
from fleetctl.controllers.model import Resource, RunState
from fleetctl.controllers.trials.winner import SWEEP, Lacking, params_text, winner_of
from fleetctl.specs.blocks.common import ParamsFrom
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.tracking.annotations import PARAMS
from fleetctl.tracking.load import load
from fleetctl.tracking.result_cache import contents_of, lookup
from fleetctl.tracking.track import Track, Work, track_of

if TYPE_CHECKING:
    from fleetctl.engine.state import State


def params_from(track: Track) -> ParamsFrom | None:
    """Where its parameters come from, of an object that is read."""
    found: ParamsFrom | None = getattr(track.spec, "params_from", None)
    return found


class Reading:
    """Rows that a wish wrote since, and what is read of them. look: observes a run soon."""

    def __init__(self, state: State, *, look: Callable[[str], None]) -> None:
        self._state, self._look = state, look
        self.wished: dict[str, Resource] = {}  # rows that a wish wrote since they were read

    def read(self, track: Track) -> Work | None:
        """Parse its spec and rebuild its history from the rows. Raises when it cannot be read."""
        work = load(track, self._state.store.runs)
        if work is not None:
            self._own(work)
            self._look_up(work)
        return work

    def settle(self, work: Work) -> tuple[Work, Lacking | None]:
        """Of work that takes its parameters from a sweep: take them once they are known, for good
        until it is applied again. (the work from then on, what is lacking else)
        """
        track = work.track
        wanted = params_from(track)
        if wanted is None or work.controller.given is not None:
            return work, None
        resource, resources = track.resource, self._state.store.resources
        found = winner_of(resources.get(SWEEP, wanted.sweep, resource.namespace), wanted.sweep)
        if isinstance(found, Lacking):
            return work, found
        notes = {**resource.annotations, PARAMS: canonical_json(dict(found))}
        again = replace(resource, annotations=notes)
        try:
            track.resource = resources.put(again, expected_version=resource.version)
        except Conflict:
            # A wish was written in between; the next turn takes it in.
            self._state.queue.add(resource.uid)
            return work, Lacking("its spec has just changed")
        said = f"{params_text(found)} of the best trial of sweep/{wanted.sweep}"
        self._state.say(resource.uid, "ParametersTaken", said)
        return self.read(track) or work, None

    def _look_up(self, work: Work) -> None:
        """Which of its units have succeeded before, elsewhere or here; asked once a reading."""
        contents = contents_of(self._state.store, work, revision=self._pinned(work))
        if contents is not None and not work.track.over:
            work.cached, work.uncached = lookup(contents, work.history)

    def _pinned(self, work: Work) -> str | None:
        """The commit that its runs have got of `source.git`; None where they have none, or work at
        different ones.
        """
        first = work.controller.unit(0)
        if first is None:
            return None
        template = work.controller.content(first.index)
        if template.source is None or template.source.git is None:
            return None
        uid, providers = work.resource.uid, self._state.providers
        places = [it.provider for it in work.controller.policy.placement.candidates]
        told = {
            providers[name].revision(uid, template, first.template_hash)
            for name in places
            if name in providers
        }
        known = told - {""}
        return known.pop() if len(known) == 1 else None

    def fresh(self, kind: str) -> list[str]:
        """The uids of this kind that a wish wrote; their tracks have the newest rows by now."""
        uids = [uid for uid, row in self.wished.items() if row.kind == kind]
        for uid in uids:
            self.fresh_track(uid)
        return uids

    def fresh_track(self, uid: str) -> Track | None:
        """The track with the newest row; rebuilt when the spec changed, dropped when the row is
        gone. One that sleeps is read back.
        """
        state = self._state
        track = state.tracks.get(uid)
        row = self.wished.pop(uid, None)
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
