"""`make soak KILLS=n`: kill -9 the real controller n times and check every promise at the end.

python -m tests.soak KILLS [SEED]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.soak.killing import live_through

KILLS_PER_STORE = 200


def main(words: list[str]) -> int:
    kills = int(words[0]) if words else 1000
    seed = int(words[1]) if len(words) > 1 else int(time.time())
    done = 0
    while done < kills:
        part = min(KILLS_PER_STORE, kills - done)
        with tempfile.TemporaryDirectory(prefix="fleetctl-soak-") as root:
            findings = live_through(Path(root), kills=part, seed=seed + done)
        done += part
        print(
            f"{done} kills, seed {seed + done - part}: {len(findings)} broken promises", flush=True
        )
        for finding in findings:
            print(f"  {finding}")
        if findings:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
