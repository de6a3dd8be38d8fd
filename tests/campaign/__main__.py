"""Continues a part of the campaign: `python -m tests.campaign PART [--wanted N] [--minutes M]`.

Exits with code 0 when all wanted trials ran without a finding, 1 with findings, 75 when trials are
left.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.campaign.parts import PARTS, Part
from tests.campaign.pieces import play
from tests.campaign.progress import Progress, load_progress, save_progress

FINDINGS_MAX = 5
WHOLE, FOUND, UNFINISHED = 0, 1, 75


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--wanted", type=int, help="how many in all; each part has its own default")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    part = PARTS[arguments.part]
    wanted = arguments.wanted or part.wanted
    progress = load_progress(part.name)
    go_on(part, progress, wanted, until_s=time.monotonic() + 60 * arguments.minutes,
          workers=arguments.workers)  # fmt: skip
    for finding in progress.findings:
        print(f"  {finding}")
    print(
        f"{part.name}: {progress.done:,} of {wanted:,} {part.unit}; "
        f"{len(progress.findings)} findings; {progress.seconds:,.0f} s, {progress.cpu_s:,.0f} s CPU"
    )
    if progress.findings:
        return FOUND
    return WHOLE if progress.done >= wanted else UNFINISHED


def go_on(part: Part, progress: Progress, wanted: int, *, until_s: float, workers: int) -> None:
    """Plays piece after piece; a piece that a stop interrupts is played again."""

    def is_wanted(begun: int) -> bool:
        enough = (begun - progress.pieces) * part.piece + progress.done >= wanted
        return not enough and time.monotonic() < until_s and len(progress.findings) < FINDINGS_MAX

    began_s = time.monotonic()
    for piece in play(part, progress.pieces, is_wanted, workers=min(workers, part.workers_max)):
        now_s = time.monotonic()
        progress.add(piece, seconds=now_s - began_s)
        began_s = now_s
        save_progress(progress)
        print(f"{part.name}: {progress.done:,} of {wanted:,} {part.unit}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
