"""Records metrics that one attempt prints or writes, as `metrics` of its template defines, while it
runs. Called by the run's supervisor, beside the reader of wandb's files.
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
        """One format of metrics in programs. what: its source, for messages."""

        what: str

        def begin(self, problems: Problems) -> None: ...
        def rows(self, problems: Problems, *, whole: bool) -> Iterator[Row]: ...


class Followed:
    def __init__(
        self,
        asked: Mapping[str, Any],
        start: str,
        say: Callable[[str], None],
    ) -> None:
        """asked: `from`, with its `regex` or `path`, and `metric`, whose every value is recorded;
        start: the directory that the program begins in; say: writes a line to its log.
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
        """Takes some of the program's output."""
        if self._printed is not None:
            self._printed.hear(data)

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        """Records metrics that are new since the last look, or all that remain; returns whether
        there were any.
        """
        news = False
        for step, at_s, values in self._form.rows(self._problems, whole=whole):
            self._any = True
            picked = self._sample.pick(step, at_s, values)
            news = journal.metric(step or 0, picked, at_s) or news
        for step, at_s, values in self._sample.rest() if whole else ():
            news = journal.metric(step or 0, values, at_s) or news
        for text in self._problems.news():
            self._say(text)
            news = journal.remark(text) or news
        for text in self._problems.totals() if whole else ():
            self._say(text)
        return news

    def conclude(
        self,
        line: str,
        ended: dict[str, Any],
        journal: Journal,
    ) -> str:
        """Returns the journal's result line unchanged. Reports missing or omitted metrics."""
        remarks = []
        if self._sample.at_capacity:
            remarks.append(f"it reported more than {NAMES_MAX} names, or too long ones")
        if ended["ok"] and not self._any:
            remarks.append(f"no metric was found: there was nothing to read in {self._form.what}")
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
