"""Chooses the values to record, where a program reports more than a reader needs: a training that
logs each of 100,000 batches, in a thousand trials.

Called by wandb/trial.py for each row. Omitted values stay in the program's own files.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    Values = dict[str, float]

# Values of each metric, before every second is left out, then three of four, and so on: more points
# than a plot has columns.
KEPT_BEFORE_MAX = 1000
NAMES_MAX = 1000  # of an attempt; a row with all names is still one line of a journal
NAME_CHARACTERS_MAX = 256


class Sample:
    """Chooses values by metric. whole: the metric of which every value counts, or ""."""

    def __init__(self, whole: str) -> None:
        self.at_capacity = False  # some names are not recorded
        self._whole = whole
        self._names: dict[str, list[int]] = {}  # [seen, interval, recorded values]
        self._left: dict[str, tuple[Optional[int], Optional[float], float]] = {}

    def pick(
        self,
        step: Optional[int],
        at_s: Optional[float],
        values: Values,
    ) -> Values:
        """Returns the values of a row to record."""
        picked: Values = {}
        for name, value in values.items():
            if name != self._whole and not self._knows(name):
                self.at_capacity = True
            elif name == self._whole or self._takes(name):
                picked[name] = value
                self._left.pop(name, None)
            else:
                self._left[name] = (step, at_s, value)
        return picked

    def rest(self) -> list[tuple[Optional[int], Optional[float], Values]]:
        """Returns the last value of each metric where it was left out, to record at the end."""
        rows = [(step, at_s, {name: value}) for name, (step, at_s, value) in self._left.items()]
        self._left.clear()
        return rows

    def _knows(self, name: str) -> bool:
        if name in self._names:
            return True
        if len(self._names) >= NAMES_MAX or len(name) > NAME_CHARACTERS_MAX:
            return False
        self._names[name] = [0, 1, 0]
        return True

    def _takes(self, name: str) -> bool:
        state = self._names[name]
        state[0] += 1
        if (state[0] - 1) % state[1]:
            return False
        state[2] += 1
        if state[2] >= KEPT_BEFORE_MAX:
            state[1], state[2] = state[1] * 2, 0
        return True
