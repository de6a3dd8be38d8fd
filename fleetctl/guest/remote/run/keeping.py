"""Keeps the outputs of a run in its sandbox, from where the stream of the run takes them. Made by
attempt.py. What a run does not use is never imported.
"""

from __future__ import annotations

import os

from fleetctl.guest.remote import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn

    from fleetctl.guest.remote.loop import Loop


class Keeping:
    """Keeps what the order's `outputs` name, and reports what nobody keeps."""

    def __init__(
        self,
        loop: Loop,
        order: dict[str, Any],
        runs: int,
        say: Callable[[str], None],
    ) -> None:
        """runs: the open directory of journals; say: writes a line to the log."""
        self._loop = loop
        self._order = order
        self._runs = runs
        self._say = say
        self._since_ns = 0  # when the work began, by the clock of the files
        self._summary: dict[str, Any] = {}

    def begin(self) -> None:
        """Notes when the work begins. Raises OSError."""
        from fleetctl.guest.outputs.walk import file_clock_ns

        mark = f"{place.FILES}/began"
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # What a source brought along is older, and is not what the run writes.
        self._since_ns = file_clock_ns(mark, past=bool(self._order["source"]))

    def keep(self, ending: str, then: Callable[[], None]) -> None:
        """Keeps the outputs of work that has ended, then calls `then`. ending: why we ended it, or
        "".
        """
        if not self._order.get("outputs") and self._is_untouched():
            then()
            return
        from fleetctl.guest.outputs.keeping import KEPT_ENDINGS, TooMuchNow, count_left

        if ending not in KEPT_ENDINGS or not self._since_ns or self._order.get("rank"):
            then()
        elif not self._order.get("outputs"):
            self._summary = {"left": count_left(self._top(), self._since_ns)}
            then()
        else:
            try:
                self._summary = self._keep(quick=True)
            except TooMuchNow:
                self._keep_beside(then)
                return
            except OSError as error:
                self._summary = {"failure": str(error)}
            then()

    def _is_untouched(self) -> bool:
        """Returns whether the work left nothing in a directory that goes with the sandbox: the one
        in which most work begins is empty, or the next task finds it as it is.
        """
        at_usual = not self._order["source"] and not self._order["workdir"]
        return self._order["reusable"] or (at_usual and not os.listdir(place.WORK))

    def judge(self, ended: dict[str, Any]) -> bool:
        """Adds to the end record what was kept; returns whether a success became a failure."""
        if not self._summary:
            return False
        from fleetctl.guest.outputs.keeping import judge_outputs

        before = ended["ok"]
        judge_outputs(self._summary, ended, self._say)
        return bool(before and not ended["ok"])

    @property
    def remarks(self) -> list[str]:
        return list(self._summary.get("remarks") or ())

    def _top(self) -> str:
        return os.path.realpath(place.start_directory(self._order))

    def _keep(self, *, quick: bool) -> dict[str, Any]:
        from fleetctl.guest.outputs.keeping import KeepLimits, OutputKeeper
        from fleetctl.guest.outputs.selection import OutputPatterns

        order = self._order["outputs"]
        limits = KeepLimits(order)
        patterns = OutputPatterns(order["patterns"])
        keeper = OutputKeeper(
            limits,
            patterns,
            self._top(),
            self._since_ns,
            quick=quick,
        )
        return keeper.keep(self._runs, self._order["run"], blobs=False)

    def _keep_beside(self, then: Callable[[], None]) -> None:
        """Keeps more than can be kept at once, in a process of its own."""
        from fleetctl.guest.remote.process.child import Leader

        def work() -> NoReturn:
            # A new process has none of the supervisor's descriptors.
            self._runs = os.open(place.RUNS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._keep(quick=False)
            os._exit(0)

        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            leader = Leader(self._loop, work, null)
        except OSError as error:
            self._summary = {"failure": str(error)}
            then()
            return
        finally:
            os.close(null)

        def ended() -> None:
            leader.hang_up()
            self._take_report()
            then()

        leader.ended = ended

    def _take_report(self) -> None:
        from fleetctl.guest.outputs.pack import read_index

        try:
            index = read_index(place.outputs_path(self._order["run"]))
        except (OSError, ValueError) as error:
            self._summary = {"failure": f"the process that keeps them ended early ({error})"}
            return
        self._summary = {**index, "count": len(index.pop("files"))}
