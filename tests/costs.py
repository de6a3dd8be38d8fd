"""Records the seconds and the CPU of each test where FLEETCTL_TEST_COSTS names a file;
`python -m tests.costs FILE` prints the dearest files and tests of such a record, and
`python -m tests.costs -- make test` runs a command and prints the CPU of all that it started.
`python -m tests.costs --write FILE ...` puts what each file took in such records into costs.json,
by which `make check` chooses and workers order their tests (order.py).

Each worker of pytest-xdist appends one JSON line a test: node id, wall seconds, CPU seconds of the
worker itself, of the children that it waited for during the test, and of the emulators that ended
in it. A process that outlives its test, such as an emulator that a file shares, counts for the test
in which it ends; one that nobody waits for, such as a supervisor of provider `local`, for none. All
of these are in the sum of a command, which `time` leaves out.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

# A variable and no option: workers of pytest-xdist parse options before they read conftest.py.
VARIABLE = "FLEETCTL_TEST_COSTS"
BY_FILE = Path(__file__).with_name("costs.json")
ROWS = 40  # of each table that is printed
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


class CostRecorder:
    """A plugin of pytest that appends the cost of each test to a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before, emulators_s, began_s = os.times(), read_emulators_cpu(), time.monotonic()
        result: Any = yield
        after = os.times()
        cost = {
            "test": item.nodeid,
            "wall_s": round(time.monotonic() - began_s, 3),
            "self_s": round(after.user + after.system - before.user - before.system, 3),
            "children_s": round(
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system,
                3,
            ),
            "emulators_s": round(read_emulators_cpu() - emulators_s, 3),
        }
        os.write(self._file, (json.dumps(cost) + "\n").encode())
        return result


def read_emulators_cpu() -> float:
    """Returns the CPU seconds of the process that forks the emulators, and of those that ended."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    return 0.0 if pid is None else read_cpu(pid)


def read_cpu(pid: int) -> float:
    """Returns the CPU seconds of a process and of those that it waited for; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def sum_cpu(cost: dict[str, Any]) -> float:
    return float(cost["self_s"] + cost["children_s"] + cost.get("emulators_s", 0.0))


def read_costs(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def sum_costs(costs: list[dict[str, Any]], by_file: bool) -> list[tuple[str, int, float, float]]:
    """Rows of (name, tests, wall seconds, CPU seconds), the dearest by CPU first."""
    sums: dict[str, tuple[int, float, float]] = defaultdict(lambda: (0, 0.0, 0.0))
    for cost in costs:
        name = cost["test"].partition("::")[0] if by_file else cost["test"]
        tests, wall_s, cpu_s = sums[name]
        cpu_s += sum_cpu(cost)
        sums[name] = (tests + 1, wall_s + cost["wall_s"], cpu_s)
    rows = [(name, *figures) for name, figures in sums.items()]
    return sorted(rows, key=lambda row: -row[3])


def print_costs(path: Path, rows: int) -> None:
    costs = read_costs(path)
    total_s = sum(map(sum_cpu, costs))
    wall_s = sum(cost["wall_s"] for cost in costs)
    print(f"{len(costs)} tests, {wall_s:.0f} s of all workers, {total_s:.0f} s of CPU")
    for by_file in (True, False):
        print(f"\n{'tests':>6} {'wall':>8} {'CPU':>8}  {'file' if by_file else 'test'}")
        for name, tests, wall_s, cpu_s in sum_costs(costs, by_file)[:rows]:
            print(f"{tests:>6} {wall_s:>8.1f} {cpu_s:>8.1f}  {name}")


def write_costs(records: Iterable[Path], into: Path = BY_FILE) -> None:
    """Replaces the seconds of recorded files, and forgets files that are no longer there."""
    known = json.loads(into.read_text("utf-8")) if into.exists() else {}
    for record in records:
        known |= {
            name: {"cpu_s": round(cpu_s, 2), "wall_s": round(wall_s, 1)}
            for name, _, wall_s, cpu_s in sum_costs(read_costs(record), True)
        }
    there = {name: known[name] for name in sorted(known) if (BY_FILE.parents[1] / name).exists()}
    rows = (f"{json.dumps(name)}: {json.dumps(cost)}" for name, cost in there.items())
    into.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")


def run_counted(words: list[str]) -> int:
    """Returns the exit code of a command, once the CPU of all its descendants is printed.

    What outlives its parent becomes a child of this process, which waits for it; what lives on when
    the command has ended counts for what it has used until then.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began_s, command = time.monotonic(), os.posix_spawnp(words[0], words, os.environ)
    status: int | None = None
    while status is None:
        pid, ended = os.wait()
        status = ended if pid == command else None
    wall_s = time.monotonic() - began_s
    left = sum(map(read_cpu, _descendants(os.getpid())))
    times = os.times()
    total_s = times.children_user + times.children_system + left
    print(f"{wall_s:.0f} s, {total_s:.0f} s of CPU, {times.children_system:.0f} s of it system's")
    return os.waitstatus_to_exitcode(status)


def _descendants(top: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            children[int(fields[1])].append(int(path.parent.name))
    found = [*children[top]]
    for pid in found:
        found += children[pid]
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--":
        sys.exit(run_counted(sys.argv[2:]))
    if sys.argv[1] == "--write":
        write_costs(map(Path, sys.argv[2:]))
        sys.exit()
    print_costs(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else ROWS)
