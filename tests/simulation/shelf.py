"""Trainings that save: what lies on a unit's volume, as the guest's own recognisers see it, and
what really was completed. Between two attempts the real choice of the guest decides; what an
attempt saves is a function of the time that it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.controllers.model import CheckpointOrder, SavedCheckpoint
from fleetctl.guest.checkpoints.disk import DIRECTORY
from fleetctl.guest.checkpoints.formats import ASIDE, BACK, MARKER, format_of
from fleetctl.guest.checkpoints.prepare import choose_checkpoint
from fleetctl.providers.contract.base import RunRequest

PATH = "/ckpt/run"
STEP = 10  # between two checkpoints
# Whole checkpoints of another program, whose names are like those that are saved here.
FOREIGN = {f"step-{step:08d}/weights.bin": b"whole" for step in (15, 1_000_000)}


@dataclass(slots=True)
class Shelf:
    """The directory of one unit: its files by path, the steps whose files were all written, and
    what was being written when an attempt ended.
    """

    files: dict[str, bytes] = field(default_factory=lambda: dict(FOREIGN))
    whole: set[int] = field(default_factory=set)
    writing: set[str] = field(default_factory=set)

    def begin(self, order: CheckpointOrder) -> int | None:
        """The step that an attempt goes on from; what misleads is gone then."""
        kind = format_of(self, order.format)
        if kind is None or order.resume == "None":
            return None
        found = kind.find(self)
        choice = choose_checkpoint(found, None, order.below, anew=order.anew, writing=self.writing)
        for one in (*choice.back, *choice.aside):
            self._move(one.name, f"{BACK if one.complete else ASIDE}{one.name}")
        self.writing.clear()
        return choice.resumed.step if choice.resumed is not None else None

    def save(self, step: int, *, whole: bool) -> None:
        """whole: else a kill came before the marker."""
        name = f"step-{step:08d}"
        self._remove(name)
        self.files[f"{name}/model"] = b"weights"
        if whole:
            self.files[f"{name}/{MARKER}"] = b'{"files": {"model": [7, null]}}'
            self.whole.add(step)
        else:
            self.writing.add(name)

    def _move(self, name: str, target: str) -> None:
        self.files = {
            f"{target}/{path[len(name) + 1 :]}" if path.startswith(f"{name}/") else path: it
            for path, it in self.files.items()
        }

    def _remove(self, name: str) -> None:
        self.files = {
            path: it for path, it in self.files.items() if not path.startswith(f"{name}/")
        }

    # What the guest asks of a directory; see fleetctl/guest/checkpoints/disk.py.

    def names(self, below: str = "") -> dict[str, int]:
        begin = f"{below}/" if below else ""
        found: dict[str, int] = {}
        for path, data in self.files.items():
            if path.startswith(begin):
                name, slash, _ = path[len(begin) :].partition("/")
                found[name] = DIRECTORY if slash else len(data)
        return found

    def size(self, name: str) -> int:
        return len(self.files[name]) if name in self.files else DIRECTORY

    def text(self, name: str) -> bytes | None:
        return self.files.get(name)

    def head(self, name: str, most: int) -> bytes:
        return self.files.get(name, b"")[:most]

    def tail(self, name: str, most: int) -> bytes:
        return self.files.get(name, b"")[-most:]

    def sha256(self, name: str) -> str:
        raise NotImplementedError("no marker here has one")


@dataclass(frozen=True, slots=True)
class Saving:
    """What one attempt does: it began at `resumed` and saves so many checkpoints, evenly spread."""

    resumed: int | None
    sound: bool  # that checkpoint had been completed
    count: int

    def saved(
        self, begun_at_s: float, seconds: float, until_s: float
    ) -> tuple[SavedCheckpoint, ...]:
        gap_s = seconds / (self.count + 1)
        every = [(number + 1, begun_at_s + gap_s * (number + 1)) for number in range(self.count)]
        first = self.resumed or 0
        return tuple(
            SavedCheckpoint(
                first + number * STEP, f"{PATH}/step-{first + number * STEP:08d}", at_s, 38
            )
            for number, at_s in every
            if at_s <= until_s
        )


NOTHING = Saving(None, sound=True, count=0)


def saving_of(shelf: Shelf, order: RunRequest) -> Saving:
    """To be asked when the work begins."""
    if order.checkpoint is None:
        return NOTHING
    resumed = shelf.begin(order.checkpoint)
    count = int(order.template.env.get("saves", "0"))
    return Saving(resumed, resumed is None or resumed in shelf.whole, count)
