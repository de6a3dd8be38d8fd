"""`make soak KILLS=n`: kill -9 the real controller n times and check every promise at the end; then
a training with its nodes and supervisor, and leaders of two operators, 50 times at most.

python -m tests.soak KILLS [SEED]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.soak.killing import live_through
from tests.soak.leaders import lead_through
from tests.soak.training import train_through

KILLS_PER_STORE = 200
SEVERAL_KILLS = 50


def main(words: list[str]) -> int:
    kills = int(words[0]) if words else 1000
    seed = int(words[1]) if len(words) > 1 else int(time.time())
    done = 0
    while done < kills:
        part = min(KILLS_PER_STORE, kills - done)
        if not _kept(live_through, part, seed + done, f"{done + part} kills"):
            return 1
        done += part
    part = min(SEVERAL_KILLS, kills)
    if not _kept(train_through, part, seed, f"{part} kills of a training"):
        return 1
    return 0 if _kept(lead_through, part, seed, f"{part} ends of leaders and outages") else 1


def _kept(live: Callable[..., list[str]], kills: int, seed: int, called: str) -> bool:
    """Returns whether every promise was, in a store of its own."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-soak-") as root:
        findings = live(Path(root), kills=kills, seed=seed)
    print(f"{called}, seed {seed}: {len(findings)} broken promises", flush=True)
    for finding in findings:
        print(f"  {finding}")
    return not findings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
