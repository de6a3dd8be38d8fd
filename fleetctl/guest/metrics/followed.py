"""Records the metrics that an attempt prints or writes while it runs, as its template's `metrics`
block defines them. Called by the run's supervisor, beside the reader of wandb's files.
"""

from __future__ import annotations

from fleetctl.guest.metrics.events import EventFiles
from fleetctl.guest.metrics.files import JsonLines, Problems
from fleetctl.guest.metrics.printed import Printed
from fleetctl.guest.metrics.thinning import NAMES_MAX, Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Optional, Protocol

    from fleetctl.guest.journal.record import Journal
    from fleetctl.guest.metrics.files import Row

    class Form(Protocol):
        """A format in which programs report metrics. source: where they are read, for messages."""

        source: str

        def begin(self, problems: Problems) -> None: ...
        def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]: ...


class Followed:
    def __init__(
        self,
        asked: Mapping[str, Any],
        start: str,
        say: Callable[[str], None],
    ) -> None:
        """asked: the `metrics` block: `from`, with its `regex` or `path`, and `metric`, whose every
        value is recorded. start: the directory that the program begins in. say: writes a line to
        the run's log.
        """
        self._printed: Optional[Printed] = None
        self._form = self._form_of(asked, start)
        self._problems = Problems()
        self._sample = Sample(asked["metric"])
        self._say = say
        self._any = False

    def begin(self) -> None:
        """Begins; called where the run is followed, before its program starts."""
        self._form.begin(self._problems)

    def hear(self, data: bytes) -> None:
        """Searches a piece of the program's output for metrics."""
        if self._printed is not None:
            self._printed.hear(data)

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        """Records the metrics that are new since the last look; returns whether there were any.
        whole: the run has ended, so a last line without an end counts too.
        """
        any_new = False
        for step, at_s, values in self._form.rows(self._problems, whole=whole):
            self._any = True
            picked = self._sample.pick(step, at_s, values)
            any_new = journal.metric(step or 0, picked, at_s) or any_new
        for step, at_s, values in self._sample.rest() if whole else ():
            any_new = journal.metric(step or 0, values, at_s) or any_new
        for text in self._problems.take_new():
            self._say(text)
            any_new = journal.remark(text) or any_new
        for text in self._problems.totals() if whole else ():
            self._say(text)
        return any_new

    def conclude(
        self,
        line: str,
        ended: dict[str, Any],
        journal: Journal,
    ) -> str:
        """Adds remarks on missing or omitted metrics to the journal. Returns its result line,
        `line`, unchanged.
        """
        remarks = []
        if self._sample.at_capacity:
            remarks.append(f"it reported more than {NAMES_MAX} names, or too long ones")
        if ended["ok"] and not self._any:
            remarks.append(f"no metric was found: there was nothing to read in {self._form.source}")
        for text in remarks:
            journal.remark(text)
        return line

    def _form_of(self, asked: Mapping[str, Any], start: str) -> Form:
        if asked["from"] == "stdout":
            self._printed = Printed(asked["regex"])
            return self._printed
        if asked["from"] == "tensorboard":
            return EventFiles(start, asked["path"])
        return JsonLines(start, asked["path"])
