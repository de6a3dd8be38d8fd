"""How fast the guest reads what wandb writes: rows of three numbers as wandb 0.31 records them."""

from __future__ import annotations

import random
import time

from fleetctl.guest.journal.results import METRICS_READ_BYTES_MAX
from fleetctl.guest.wandb.file import WandbFile
from tests.bench.harness import Figure
from tests.unit.guest.wandb_writer import blocks, field, header, history, summary

ROWS = 100_000
ROUNDS = 5
NAMES = ("train/loss", "val/accuracy", "lr")


def reading() -> list[Figure]:
    data = _file()
    spent_s = min(_read(data) for _ in range(ROUNDS))
    speed = len(data) / 1e6 / spent_s
    what = f"reading what wandb wrote: {ROWS:,} rows of three numbers, {len(data) / 1e6:.0f} MB"
    return [Figure(what, f"{speed:.0f} MB/s of CPU time", "20 MB/s", reached=speed >= 20)]


def _file() -> bytes:
    draw = random.Random(1)
    records = [header("0.31.0")]
    for step in range(ROWS):
        values: dict[str | tuple[str, ...], object] = {(name,): draw.random() for name in NAMES}
        times = {("_timestamp",): 1.7e9 + step, ("_runtime",): step / 7, ("_step",): step}
        more = field(200, field(1, b"run-0"))
        records += [summary({**values, **times}) + more, history({**values, **times}, step) + more]
    return blocks(records)


def _read(data: bytes) -> float:
    """Seconds of CPU time, in pieces as the guest reads them."""
    file = WandbFile()
    began_s = time.process_time()
    while piece := data[file.offset : file.offset + METRICS_READ_BYTES_MAX]:
        file.take(piece)
    spent_s = time.process_time() - began_s
    assert file.rows == ROWS and not file.damaged
    return spent_s
