"""The sandboxes of one resource that exist: what each executes or executed last, and whether it may
take another task. Kept by history.py as runs begin and end, and read by controllers; the engine
tells it what it learns of a sandbox itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from fleetctl.controllers.model import LIVE_STATES, Run, RunState


@dataclass(frozen=True, slots=True)
class OpenSandbox:
    """A sandbox that exists.

    last: the run that it executes or executed last. A run that is desired in it and has not
    begun makes it busy, no more: it may never begin, and only `last` can tell whether it is open.
    """

    name: str
    provider: str
    template_hash: str
    used: int
    last: Run
    busy: bool
    since_s: float  # when it was desired
    closing: bool = False  # it was asked to end, so it takes no task any more


class Place(NamedTuple):
    """What sandboxes are counted by. stopping: it will be gone without our doing more. queued: what
    it takes of a queue, or empty.
    """

    provider: str
    usd_per_s: float | None
    stopping: bool
    queued: str = ""


class Holding:
    """How many sandboxes there are of each sort, kept as they come and go; the engine reads it for
    its limits. Sorts are few: prices are those of templates."""

    __slots__ = ("_places", "counts")

    def __init__(self) -> None:
        self.counts: Counter[Place] = Counter()  # without zeros
        self._places: dict[str, Place] = {}  # sandbox -> how it was counted

    def set(self, sandbox: str, place: Place | None) -> None:
        """The sandbox is now of this sort; None: it is gone."""
        before = self._places.get(sandbox)
        if before == place:
            return
        if before is not None:
            del self._places[sandbox]
            self.counts[before] -= 1
            if not self.counts[before]:
                del self.counts[before]
        if place is not None:
            self._places[sandbox] = place
            self.counts[place] += 1


class Sandboxes(dict[str, OpenSandbox]):
    """By name. live: the live runs by name, as history.py goes on to keep them. held: how many
    sandboxes there are of each sort.
    """

    __slots__ = ("_live", "held")

    def __init__(self, live: Mapping[str, Run]) -> None:
        super().__init__()
        self._live = live
        self.held = Holding()

    # -- what the engine learns of a sandbox -------------------------------------------------------

    def entered(self, run: Run) -> None:
        """The run is known to have begun in its sandbox."""
        self._set(replace(self[run.sandbox], last=run))

    def closing(self, sandbox: str) -> None:
        """An idle sandbox is being asked to end."""
        self._set(replace(self[sandbox], closing=True))

    def closed(self, sandbox: str) -> None:
        """Confirmed gone."""
        self.pop(sandbox, None)
        self.count(sandbox)

    # -- what history.py tells of runs -------------------------------------------------------------

    def enter(self, run: Run) -> None:
        """An intent is durable to execute the run in its sandbox, which may be a new one."""
        known = self.get(run.sandbox)
        if known is not None:
            self._set(replace(known, used=known.used + 1, busy=True))
            return
        self._set(
            OpenSandbox(
                run.sandbox, run.provider, run.template_hash, 1, run, True, run.created_at_s
            )
        )

    def leave(self, run: Run, *, closing: bool) -> None:
        """The run is over. closing: it was being stopped, and a stop that is still on its way ends
        the sandbox with whatever it runs by then.
        """
        known = self.pop(run.sandbox)
        # One that never began there says nothing of the sandbox by its end.
        last = run if run.sandbox_open else known.last
        if run.sandbox_open or known.last.name != run.name:
            closing = known.closing or closing
            self._set(replace(known, last=last, busy=False, closing=closing))
        else:
            self.count(run.sandbox)

    def replay(self, run: Run, *, used: int, since_s: float) -> None:
        """A row was read back of a run that is live or left its sandbox open."""
        known = self.get(run.sandbox)
        live = run.state in LIVE_STATES
        last, busy = run, live
        if known is not None:
            busy = live or known.busy
            waits = live and run.started_at_s is None
            last = known.last if waits else run
        # An idle one may have been asked to end before; that spec was in memory alone.
        self._set(
            OpenSandbox(
                run.sandbox,
                run.provider,
                run.template_hash,
                used,
                last,
                busy,
                since_s,
                closing=not busy,
            )
        )

    def count(self, name: str) -> None:
        """Whatever changed about it or its live run, count it as what it is now."""
        box = self.get(name)
        if box is None:
            self.held.set(name, None)
            return
        live = self._live.get(box.last.name)
        stopping = box.closing or (live is not None and live.state is RunState.STOPPING)
        self.held.set(name, Place(box.provider, box.last.usd_per_s, stopping, box.last.queued))

    # -- helpers -----------------------------------------------------------------------------------

    def _set(self, box: OpenSandbox) -> None:
        self[box.name] = box
        self.count(box.name)
