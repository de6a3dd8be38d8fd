"""A trainer whose weights are the same to the last digit however often it was killed: the part of
each rank is a function of its rank, the step and the weights. Standard library and the helper that
comes with a checkpoint alone.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

FIRST = (0.25, 0.5, 0.75)
SAVE_STEPS = 5


def part(rank: int, step: int, weights: list[float]) -> list[float]:
    return [math.sin(step * (rank + 1) + n) * (1.0 + it) for n, it in enumerate(weights)]


def updated(weights: list[float], parts: list[list[float]]) -> list[float]:
    """parts: of all ranks, by rank; the order of a sum decides its last digit."""
    return [it - 0.01 * sum(one[at] for one in parts) for at, it in enumerate(weights)]


def undisturbed(steps: int, world: int) -> list[float]:
    weights = list(FIRST)
    for step in range(1, steps + 1):
        weights = updated(weights, [part(rank, step, weights) for rank in range(world)])
    return weights


class Peers:
    """Rank 0 gathers what each rank hands in, and hands all of it to all."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank = rank
        at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            with socket.create_server(at) as server:
                joined = [server.accept()[0].makefile("rw") for _ in range(world - 1)]
            # They come in any order, and say who they are.
            self._lines = [line for _, line in sorted((int(it.readline()), it) for it in joined)]
        else:
            self._lines = [_connected(at).makefile("rw")]
            self._say(self._lines[0], rank)

    def gathered(self, own: list[float]) -> list[list[float]]:
        if self._rank == 0:
            whole = [own, *map(self._heard, self._lines)]
            for line in self._lines:
                self._say(line, whole)
            return whole
        self._say(self._lines[0], own)
        heard: list[list[float]] = self._heard(self._lines[0])
        return heard

    def _heard(self, line: Any) -> Any:
        text = line.readline()
        if not text:
            sys.exit("a peer is gone")
        return json.loads(text)

    def _say(self, line: Any, value: Any) -> None:
        line.write(json.dumps(value) + "\n")
        line.flush()


def _connected(at: tuple[str, int]) -> socket.socket:
    while True:
        try:
            return socket.create_connection(at)
        except ConnectionRefusedError:
            time.sleep(0.01)


def main() -> None:
    import fleetctl_checkpoint as checkpoint  # type: ignore[import-not-found]

    rank, world, steps = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "STEPS"))
    step, weights = 0, list(FIRST)
    if found := checkpoint.latest():
        step, weights = json.loads((found / "state.json").read_text())
    peers = Peers(rank, world)
    while step < steps:
        step += 1
        weights = updated(weights, peers.gathered(part(rank, step, weights)))
        time.sleep(float(os.environ["PAUSE"]))
        if rank == 0 and step % SAVE_STEPS == 0:
            with checkpoint.saving(step) as directory:
                (directory / "state.json").write_text(json.dumps([step, weights]))
    if rank == 0:
        Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps({"weights": weights}))


if __name__ == "__main__":
    main()
