"""What tables tell of places: `get providers`, WHERE of a job, and why a task is where it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.cli.show.lists.tasks import TaskColumns, task_row
from fleetctl.cli.show.work_lines import machines_lines
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.specs.builtin import RunMachine
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.rows import ResourceRow, RunRow
from fleetctl.views.columns import choose_columns, drop_empty_columns
from fleetctl.views.documents import task_document
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View, as_mapping, build_view
from fleetctl.views.store_reading import must_find, open_reading
from fleetctl.views.tasks import build_attempt
from fleetctl.wiring.account_registry import open_store

NOW_S = 1_000.0


def seen(kind: str, status: dict[str, object], spec: dict[str, object] | None = None) -> View:
    row = ResourceRow("u", kind, "x", 1, 1, NOW_S - 60, None, {}, {}, json.dumps(status))
    return build_view(row, lambda: json.dumps(spec or {}))


def cells(of: View, *, wide: bool = False) -> dict[str, str]:
    shown = choose_columns(KINDS[of.resource.kind], wide=wide)
    return {column.title: column.cell(of, NOW_S) for column in shown}


def titles(*found: View) -> list[str]:
    """The header of a plain table of them."""
    shown = choose_columns(KINDS[found[0].resource.kind], wide=False)
    return drop_empty_columns(
        shown, [[column.cell(it, NOW_S) for column in shown] for it in found]
    )[0]


def test_a_provider_shows_its_slots_its_spend_and_why_it_is_full() -> None:
    spec = {"limits": {"createsPerMinute": 120}, "breaker": {"maxSpendPerHour": 2}}
    status = {
        "phase": "Ready",
        "message": "its limit of 5 sandboxes is reached",
        "slots": {"used": 5, "limit": 5},
        "spend": {"usdPerHour": 1.2, "unpriced": 1},
    }
    assert cells(seen("Provider", status, spec)) == {
        "NAME": "x",
        "STATUS": "Ready",
        "SLOTS": "5/5",
        "CREATES": "120/min",
        "$/H": "$1.20+1?/$2.00",
        "AGE": "60s",
        "FULL": "its limit of 5 sandboxes is reached",
    }


def test_a_provider_without_limits_shows_what_is_used() -> None:
    shown = cells(seen("Provider", {"slots": {"used": 2, "limit": None}, "spend": {}}))
    assert (shown["SLOTS"], shown["CREATES"], shown["$/H"], shown["FULL"]) == (
        "2",
        "-",
        "$0.00",
        "-",
    )


def test_a_job_shows_where_it_runs_and_afterwards_where_it_ran() -> None:
    placement = [
        {"provider": "daytona", "live": 0, "total": 0},
        {"provider": "modal", "live": 1, "total": 36},
        {"provider": "local", "live": 0, "total": 8},
    ]
    live = seen("BatchJob", {"where": {"modal": 1}, "placement": placement})
    assert cells(live)["WHERE"] == "modal"
    over = seen("BatchJob", {"where": {}, "placement": placement})
    assert cells(over)["WHERE"] == "modal:36 local:8"
    once = seen("BatchJob", {"where": {}, "placement": placement[:2]})
    assert cells(once)["WHERE"] == "modal"


def test_columns_of_which_nobody_has_anything_are_left_out_of_a_plain_table() -> None:
    free = seen("BatchJob", {"cost": {"actual": 0.0}})
    bound = seen("BatchJob", {"cost": {"actual": 0.0, "estimatedHigh": 16.0}})
    paid = seen("BatchJob", {"cost": {"actual": 4.02, "estimated": 6.1, "estimatedHigh": 8.9}})
    assert not {"COST", "EST"} & set(titles(free))
    assert "EST" in titles(free, bound) and "COST" not in titles(free, bound)
    assert {"COST", "EST"} < set(titles(free, paid))
    assert [cells(it)["EST"] for it in (free, bound, paid)] == ["-", "<=$16.00", "$6.10"]
    assert cells(paid)["COST"] == "$4.02"
    limited = seen("Provider", {"message": "full"}, {"limits": {"createsPerMinute": 5}})
    assert not {"CREATES", "FULL"} & set(titles(seen("Provider", {})))
    assert {"CREATES", "FULL"} < set(titles(seen("Provider", {}), limited))


def test_a_task_tells_why_it_is_where_it_is() -> None:
    run = RunRow(
        0, 1, "Running", "r", "modal", "r", "", NOW_S, None, None, None, "", "", False, "{}",
        placed="first in order with room; `daytona`: it answered QuotaExceeded",
    )  # fmt: skip
    row = task_row(build_attempt(run), NOW_S, TaskColumns(wide=True, cost=True))
    assert row[-1] == "first in order with room; `daytona`: it answered QuotaExceeded"


@pytest.mark.parametrize(
    ("provider", "handle", "word", "name"),
    [
        ("slurm", "4711/box-1@a", "Slurm job", "4711"),
        ("slurm", "4711/box-1@a+4711/box-2@a", "Slurm job", "4711"),
        ("ssh", "gpu1.lab/box@a+gpu2.lab/box@a", "host", "gpu1.lab,gpu2.lab"),
        ("kubernetes", "lab:fl-job/fl-job-x7/nodes-2", "pod", "fl-job-x7"),
        ("kubernetes", "lab:fl-job/", "Job", "fl-job"),
        ("modal", "sb-01ABC", "sandbox", "sb-01ABC"),
        ("modal", "fc:fc-01ABC:store:uid:run", "call", "fc-01ABC"),
        ("modal", "fn:fl-app:store:uid:run", "", ""),
        ("daytona", "0b9d-44", "sandbox", "0b9d-44"),
        ("local", "uid.hash/8f3a", "", ""),
        ("endpoint", "endpoint", "", ""),
        ("cluster", "7/box@a", "Slurm job", "7"),
        ("not-there-any-more", "7/box@a", "sandbox", "7/box@a"),
    ],
)
def test_a_run_shows_its_machine_as_the_service_names_it(
    tmp_path: Path, provider: str, handle: str, word: str, name: str
) -> None:
    store = open_store(tmp_path, SystemClock())
    spec = json.dumps({"type": "slurm"})
    cluster = Resource("p", "Provider", "cluster", 1, 0, spec, "", {}, {}, NOW_S)
    job = Resource("u", "BatchJob", "x", 1, 0, "{}", "", {}, {}, NOW_S)
    run = Run("r", "u", 0, 1, RunState.STARTING, provider, "r", "hash", "{}", "p", NOW_S)
    with store.transaction():
        for resource in (cluster, job):
            store.resources.put(resource, expected_version=None)
        store.runs.begin([run])
        assert store.runs.advance(replace(run, state=RunState.RUNNING, handle=handle))
    with open_reading(tmp_path) as reading:
        found = must_find(parse_target("job/x", "default"), reading)
        [task] = reading.tasks(found)
        assert task.machine == RunMachine(word, name)
        assert [it.machine for it in reading.attempts(found)] == [task.machine]
        status = as_mapping(task_document(task, found, NOW_S)["status"])
        assert status.get("machine", "") == name
        shown = [f"task 0 attempt 1: {word} {name}"] if name else []
        assert list(machines_lines(found, reading, NOW_S)) == shown
