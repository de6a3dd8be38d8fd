"""Continues parts of the campaign side by side:
`python -m tests.campaign [PART ...] [--processes N] [--minutes M]`.

Exits with code 0 when all wanted trials ran and no finding is open, 1 with open findings, 75 when
trials are left.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from tests.campaign.parts import PARTS, Part
from tests.campaign.pieces import Running, play
from tests.campaign.progress import Progress, find_product_commit, load_progress, save_progress

FINDINGS_MAX = 5  # open ones, after which a part plays no further piece
WHOLE, FOUND, UNFINISHED = 0, 1, 75
PROCESSES = "pieces at once, beside those of kills, which wait most of their time"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="only these; default all")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help=PROCESSES)
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - PARTS.keys():
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, _stop)
    rows = [Row(part, load_progress(part.name)) for part in choose_parts(arguments.parts)]
    go_on(rows, until_s=time.monotonic() + 60 * arguments.minutes, workers=arguments.processes)
    for row in rows:
        print(f"{row.part.name}: {row.progress.describe_count(row.part)}")
        for finding in row.progress.open:
            print(f"  {finding.text}")
    if any(row.progress.open for row in rows):
        return FOUND
    return WHOLE if all(row.is_whole() for row in rows) else UNFINISHED


def choose_parts(names: Sequence[str]) -> list[Part]:
    return [part for part in PARTS.values() if not names or part.name in names]


@dataclass(slots=True)
class Row:
    """A part and its progress. cpu_s: of the pieces of this run."""

    part: Part
    progress: Progress
    cpu_s: float = 0.0

    def is_whole(self) -> bool:
        return self.progress.done >= self.part.wanted

    def wants_more(self, running: int) -> bool:
        """running: pieces that play now."""
        enough = self.progress.done + running * self.part.piece >= self.part.wanted
        free = not self.part.beside or running < self.part.beside
        return free and not enough and len(self.progress.open) < FINDINGS_MAX


def go_on(rows: Sequence[Row], *, until_s: float, workers: int) -> None:
    """Plays pieces until nothing is wanted or the time is over; every one is saved as it ends."""
    commit = find_product_commit()
    by_name = {row.part.name: row for row in rows}

    def choose(running: Sequence[Running]) -> tuple[Part, int] | None:
        """The part with the fewest pieces at work, then with the least CPU, is next."""
        at_work = Counter(one.part.name for one in running)
        computing = sum(not one.part.beside for one in running)
        wanting = [
            row
            for row in rows
            if (row.part.beside or computing < workers) and row.wants_more(at_work[row.part.name])
        ]
        if not wanting or time.monotonic() >= until_s:
            return None
        row = min(wanting, key=lambda it: (at_work[it.part.name], it.cpu_s))
        mine = {one.number for one in running if one.part is row.part}
        number = row.progress.begin_piece(mine)
        save_progress(row.progress)
        return row.part, number

    for piece in play(choose):
        row = by_name[piece.part]
        row.cpu_s += piece.cpu_s
        row.progress.add(piece, commit)
        save_progress(row.progress)
        print(
            f"{piece.part}: {row.progress.done:,} of {row.part.wanted:,} {row.part.unit}",
            flush=True,
        )


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
