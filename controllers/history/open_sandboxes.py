"""The sandboxes of a resource that exist: the run that each executes or executed last, and whether
it may take another task. Kept by history.py as runs begin and end, and read by controllers; the
engine reports what it learns about a sandbox itself.
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

    last: the run that it executes or executed last. A run that is desired in it and has not begun
    only makes it busy: it may never begin, and only `last` can show if it is open.
    """

    name: str
    provider: str
    template_hash: str
    used: int
    last: Run
    busy: bool
    since_s: float  # when it was desired
    closing: bool = False  # it was asked to end, so it takes no more tasks


class SandboxCountKey(NamedTuple):
    """The key by which sandboxes are counted. stopping: it ends without further action of ours.
    queued: its usage of a queue, or empty.
    """

    provider: str
    usd_per_s: float | None
    stopping: bool
    queued: str = ""


class SandboxCounts:
    """Counts the sandboxes of each sort, as they come and go; the engine applies its limits to the
    counts. Sorts are few: one for each price of a template.
    """

    __slots__ = ("_places", "counts")

    def __init__(self) -> None:
        self.counts: Counter[SandboxCountKey] = Counter()  # without zeros
        self._places: dict[str, SandboxCountKey] = {}  # sandbox -> how it was counted

    def set(self, sandbox: str, place: SandboxCountKey | None) -> None:
        """Sets the sort of a sandbox; None: the sandbox is gone."""
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


class OpenSandboxes(dict[str, OpenSandbox]):
    """The sandboxes by name. live: the live runs by name, as history.py goes on to keep them. held:
    how many sandboxes there are of each sort.
    """

    __slots__ = ("_live", "held")

    def __init__(self, live: Mapping[str, Run]) -> None:
        super().__init__()
        self._live = live
        self.held = SandboxCounts()

    # -- what the engine learns of a sandbox -------------------------------------------------------

    def set_last_run(self, run: Run) -> None:
        """Records that the run has begun in its sandbox."""
        self._set(replace(self[run.sandbox], last=run))

    def closing(self, sandbox: str) -> None:
        """Marks an idle sandbox as asked to end."""
        self._set(replace(self[sandbox], closing=True))

    def closed(self, sandbox: str) -> None:
        """Removes a sandbox that is confirmed gone."""
        self.pop(sandbox, None)
        self.count(sandbox)

    # -- events from history.py about runs ---------------------------------------------------------

    def enter(self, run: Run) -> None:
        """Records the durable intent to execute the run in its sandbox, which may be a new one."""
        known = self.get(run.sandbox)
        if known is not None:
            self._set(replace(known, used=known.used + 1, busy=True))
            return
        self._set(
            OpenSandbox(
                run.sandbox,
                run.provider,
                run.template_hash,
                1,
                run,
                True,
                run.created_at_s,
            )
        )

    def leave(self, run: Run, *, closing: bool) -> None:
        """Records that the run has ended. closing: it was being stopped, and a stop that is still
        under way ends the sandbox with any run that it has by then.
        """
        known = self.pop(run.sandbox)
        # A run that never began there proves nothing about the sandbox by its end.
        last = run if run.sandbox_open else known.last
        if run.sandbox_open or known.last.name != run.name:
            closing = known.closing or closing
            self._set(
                replace(
                    known,
                    last=last,
                    busy=False,
                    closing=closing,
                )
            )
        else:
            self.count(run.sandbox)

    def replay(
        self,
        run: Run,
        *,
        used: int,
        since_s: float,
    ) -> None:
        """Takes a row that was read back, of a run that is live or left its sandbox open."""
        known = self.get(run.sandbox)
        live = run.state in LIVE_STATES
        last = run
        busy = live
        if known is not None:
            busy = live or known.busy
            waits = live and run.started_at_s is None
            last = known.last if waits else run
        # An idle one may have been asked to end before; that request was in memory alone.
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
        """Counts a sandbox again after it or its live run changed."""
        box = self.get(name)
        if box is None:
            self.held.set(name, None)
            return
        live = self._live.get(box.last.name)
        stopping = box.closing or (live is not None and live.state is RunState.STOPPING)
        self.held.set(
            name, SandboxCountKey(box.provider, box.last.usd_per_s, stopping, box.last.queued)
        )

    # -- helpers -----------------------------------------------------------------------------------

    def _set(self, box: OpenSandbox) -> None:
        self[box.name] = box
        self.count(box.name)
