"""A process that writes to a store until it is killed or its disk is full. Run by tests.

`write HOME`: one run after the other; prints each index once its transaction has ended, that is,
once it is promised. `fill HOME`: the same until the disk is full, then frees space and goes on;
prints what happened as JSON. `start HOME`: starts again after others have filled the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import StoreError
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.base import EventRow
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from fleetctl.stores.sqlite_errors import DiskFull


def run(index: int) -> Run:
    name = f"fl-{index}"
    return Run(name, "u1", index, 1, RunState.RUNNING, "local", name, "hash", "{}", "p", 6.0)


def record(store: SqliteStore, index: int, *, filler: str = "") -> None:
    with store.transaction():
        if store.resources.get("BatchJob", "chunks") is None:
            job = Resource("u1", "BatchJob", "chunks", 1, 0, "{}", "{}", {}, {}, 5.0)
            store.resources.put(job, expected_version=None)
        store.runs.begin([run(index)])
        store.runs.advance(run(index), result=f'{{"n":{index}, "filler":"{filler}"}}')
        store.events.record([EventRow("u1", float(index), "Normal", "Recorded", f"run {index}")])


def write(home: Path) -> None:
    store = open_store(home, SystemClock())
    index = 1 + max((r.index for r, _ in store.runs.of("u1")), default=-1)
    while True:
        record(store, index)
        os.write(1, b"%d\n" % index)
        index += 1


def fill(home: Path) -> None:
    store = open_store(home, SystemClock())
    balloon = home / "balloon"
    balloon.write_bytes(bytes(1_500_000))
    index, full = 0, ""
    while not full:
        try:
            record(store, index, filler="x" * 20_000)
            index += 1
        except DiskFull as error:
            full = f"{error} {error.hint}"
    fields = {"acknowledged": index, "error": full}
    fields["ballast_dropped"] = not (home / places.BALLAST).exists()
    with Reader(home) as reader:
        fields["readable"] = sum(1 for _ in reader.runs("u1"))
    # The dropped ballast is room for the small writes that stop things.
    record(store, index)
    fields["after_ballast"] = index + 1
    while True:
        try:
            record(store, index + 1, filler="x" * 20_000)
            index += 1
        except StoreError:
            break
    fields["acknowledged_again"] = index + 1
    balloon.unlink()
    record(store, index + 1)
    fields["recovered"] = [r.index for r, _ in store.runs.of("u1")] == list(range(index + 2))
    store.close()
    reopened = open_store(home, SystemClock())
    fields["reopened"] = [r.index for r, _ in reopened.runs.of("u1")] == list(range(index + 2))
    reopened.close()
    print(json.dumps(fields))


def start(home: Path) -> None:
    store = open_store(home, SystemClock())
    record(store, 0)
    store.close()
    with contextlib.suppress(OSError), open(home / "balloon", "wb", buffering=0) as balloon:
        while True:
            balloon.write(bytes(4096))
    store = open_store(home, SystemClock())
    record(store, 1)
    print(json.dumps([r.index for r, _ in store.runs.of("u1")]))
    store.close()


if __name__ == "__main__":
    {"write": write, "fill": fill, "start": start}[sys.argv[1]](Path(sys.argv[2]))
