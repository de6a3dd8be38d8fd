"""How fast the store takes runs: `python tests/bench/store.py [--runs N]`. Prints; judges nothing.

One row is one intent (`begin`) plus one outcome with its result (`advance`), each in a transaction
of its own group, as the engine writes them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import SqliteStore, open_memory_store, open_store

GROUPS = (1, 8, 100)
T = TypeVar("T")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=10_000, help="rows for each group size")
    runs = arguments.parse_args().runs
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        store, took_s, _ = timed(lambda: open_store(home, SystemClock()))
        print(f"found a store {took_s * 1e3:.1f} ms")
        print(f"{'store':8} {'group':>5} {'rows/s':>8} {'CPU us a row':>13}")
        write_in_groups("disk", store, runs)
        write_in_groups("memory", open_memory_store(SystemClock()), runs)
        store.close()
        read_back(home)


def write_in_groups(name: str, store: SqliteStore, runs: int) -> None:
    for group in GROUPS:
        # A barrier for every row is slow on purpose; a tenth of the rows shows its price.
        count = max(group, runs // 10 if group == 1 else runs)
        with store.transaction():
            store.resources.put(made_job(f"{name}-{group}"), expected_version=None)
        made = [made_run(f"{name}-{group}", index) for index in range(count)]
        _, wall_s, cpu_s = timed(lambda made=made, group=group: write(store, made, group))
        print(f"{name:8} {group:>5} {count / wall_s:>8.0f} {cpu_s / count * 1e6:>13.1f}")


def write(store: SqliteStore, runs: list[Run], group: int) -> None:
    ended = {"state": RunState.SUCCEEDED, "ended_at_s": 9.0, "exit_code": 0, "reason": "Completed"}
    for start in range(0, len(runs), group):
        batch = runs[start : start + group]
        with store.transaction():
            store.runs.begin(batch)
        with store.transaction():
            for run in batch:
                store.runs.advance(replace(run, **ended), result='{"count":3,"chunk_id":1}')


def read_back(home: Path) -> None:
    store, took_s, _ = timed(lambda: open_store(home, SystemClock()))
    print(f"open it again {took_s * 1e3:.1f} ms")
    uid = f"disk-{GROUPS[-1]}"
    count, took_s, _ = timed(lambda: sum(1 for _ in store.runs.of(uid)))
    print(f"stream {count} runs to the engine {took_s * 1e3:.0f} ms")
    with Reader(home) as reader:
        count, took_s, _ = timed(lambda: sum(1 for _ in reader.tasks(uid)))
        print(f"stream {count} tasks to the CLI {took_s * 1e3:.0f} ms")
        reader.data_version()  # opens the files
        _, took_s, _ = timed(reader.data_version)
        print(f"ask whether anything changed {took_s * 1e6:.0f} us")

    def drop() -> None:
        with store.transaction():
            store.resources.delete(uid)

    _, took_s, _ = timed(drop)
    print(f"drop the resource and its {count} runs {took_s * 1e3:.0f} ms")
    store.close()


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """The answer, wall seconds and CPU seconds of one call."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    answer = work()
    return answer, time.perf_counter() - wall_s, time.process_time() - cpu_s


def made_job(uid: str) -> Resource:
    return Resource(uid, "BatchJob", uid, 1, 0, "{}", "{}", {}, {}, 1.0)


def made_run(uid: str, index: int) -> Run:
    name = f"fl-{uid}-{index:020d}-1"
    params = f'{{"chunk_id":{index},"data":[1,2,3]}}'
    return Run(
        name, uid, index, 1, RunState.STARTING, "local", name, "h" * 64, params, "p" * 32, 1.0
    )


if __name__ == "__main__":
    main()
