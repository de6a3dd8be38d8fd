"""What lies on the disk of work that is over is found with its size and its age, what is in use is
held, and what goes leaves nothing half there.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.home import RETENTION
from fleetctl.controllers.kinds.retention.limits import DAY_S, Limits, Sort
from fleetctl.controllers.model import Metric, RunState
from fleetctl.providers.local.assets import shelf
from fleetctl.providers.rundir.logs import LogReader, past_s
from fleetctl.retention import logs
from fleetctl.retention.cleaner import Cleaner
from fleetctl.stores.base import EventRow, Remembered
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.kept_by import KEPT_BY, MADE_FROM, KeptBy
from tests.unit.retention.disk_world import Disk

ALL = Limits(max_age_s=0.0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    found = Disk(tmp_path)
    yield found
    found.store.close()


def test_logs_of_runs_that_are_over_go_the_oldest_first_and_are_said_to_have_been(
    disk: Disk,
) -> None:
    disk.object("a")
    for number in range(3):
        disk.run("a", f"fl-{number}", index=number)
        disk.write(f"a/runs/fl-{number}.log", 5000, 100.0 + number)
        disk.write(f"a/runs/fl-{number}.jsonl", 50)
    disk.write("a/runs/fl-0.8192.log", 5000, 50.0)
    disk.write("a/runs/fl-0.n1.log", 5000, 50.0)
    disk.write("a/runs/fl-0.s-ollama.log", 5000, 50.0)
    disk.let_go(Sort.LOGS, Limits(max_bytes=20_000, keep_last=1))
    runs = disk.home / "local/jobs/a/runs"
    left = sorted(it.name for it in runs.iterdir())
    kept = ["fl-0.jsonl", "fl-0.past", "fl-1.jsonl", "fl-1.log", "fl-2.jsonl", "fl-2.log"]
    assert left == kept  # journals stay: they say that a run has begun
    assert past_s(runs, "fl-0") is not None and past_s(runs, "fl-1") is None
    assert LogReader(runs, "fl-0").read(0) == (b"", 0)
    assert disk.goes(Sort.LOGS, ALL) == ["fl-1", "fl-2"]


@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING, RunState.STOPPING])
def test_the_log_of_a_run_that_lives_stays_and_so_does_one_that_nobody_remembers(
    disk: Disk, state: RunState
) -> None:
    disk.object("a", phase="Running")
    disk.run("a", "fl-live", state=state)
    disk.run("a", "fl-ended", index=1)
    for name in ("fl-live", "fl-ended", "fl-unknown"):
        disk.write(f"a/runs/{name}.log", 5000)
    disk.write("b/runs/fl-orphan.log", 5000)
    assert disk.goes(Sort.LOGS, ALL) == ["fl-ended"]


@pytest.mark.parametrize("after", ["rename", "truncate"])
def test_a_crash_while_a_log_goes_leaves_none_that_is_half_there(
    disk: Disk, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.object("a")
    disk.run("a", "fl-0")
    for name in ("fl-0.log", "fl-0.8192.log", "fl-0.times"):
        disk.write(f"a/runs/{name}", 5000)
    runs = disk.home / "local/jobs/a/runs"

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if after == "rename":
            patch.setattr(os, "truncate", killed)
        else:
            patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            logs.let_go(disk.home, ["local/a/fl-0"])
    assert LogReader(runs, "fl-0").read(0) == (b"", 0) and past_s(runs, "fl-0") is not None
    disk.let_go(Sort.LOGS, ALL)
    assert [it.name for it in runs.iterdir()] == ["fl-0.past"]
    assert (runs / "fl-0.past").stat().st_size == 0
    assert disk.goes(Sort.LOGS, ALL) == []


def test_work_directories_are_those_of_objects_that_are_over(disk: Disk) -> None:
    disk.object("over", ended_s=100.0)
    disk.object("later", ended_s=900.0)
    disk.object("live", phase="Running")
    disk.object("again")
    disk.run("again", "fl-x", state=RunState.RUNNING)  # it was retried, and says nothing of it yet
    for uid in ("over", "later", "live", "again", "unknown"):
        disk.write(str(Path(uid, "work", "x-0", "big")), 5000)
        disk.write(f"{uid}/runs/fl-{uid}.log", 5000)
    assert disk.goes(Sort.WORK_DIRECTORIES, Limits(max_age_s=500.0)) == ["batchjob/job-over"]
    both = ["batchjob/job-over", "batchjob/job-later"]
    assert disk.goes(Sort.WORK_DIRECTORIES, Limits(max_bytes=1)) == both


def environment(disk: Disk, key: str, at_s: float) -> Path:
    made = disk.home / "local/envs" / key / "bin"
    made.mkdir(parents=True)
    (made / "python").write_bytes(b"x" * 5000)
    shelf.lock_of(made.parent).touch()
    os.utime(shelf.lock_of(made.parent), (at_s, at_s))
    return made.parent


def test_an_environment_goes_unless_an_object_that_is_not_over_uses_it(disk: Disk) -> None:
    disk.object("live", phase="Running")
    disk.object("over")
    for number, key in enumerate(("free", "used", "past")):
        environment(disk, key, 100.0 + number)
    for uid, key in (("live", "used"), ("over", "past")):
        links = disk.home / f"local/jobs/{uid}/builds"
        links.mkdir(parents=True)
        (links / f"{key}.log").symlink_to("../nowhere")
    assert disk.goes(Sort.ENVIRONMENTS, ALL, 1e9) == ["free", "past"]
    disk.let_go(Sort.ENVIRONMENTS, ALL, 1e9)
    left = [it.name for it in (disk.home / "local/envs").iterdir() if it.is_dir()]
    assert left == ["used"]


def test_what_was_used_since_it_was_listed_stays(disk: Disk) -> None:
    thing = environment(disk, "free", 100.0)
    assert shelf.use(thing, thing / "bin/python")
    assert not shelf.let_go(thing, known_s=100.0)
    assert (thing / "bin/python").exists()
    known_s = shelf.used_s(thing)
    with open(shelf.lock_of(thing)) as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # somebody builds it anew
        assert not shelf.let_go(thing, known_s=known_s)
    assert shelf.let_go(thing, known_s=known_s)
    assert not thing.exists() and not shelf.use(thing, thing / "bin/python")


def test_a_copy_of_a_source_stays_while_an_object_that_is_not_over_names_it(disk: Disk) -> None:
    notes = {}
    for uid in ("live", "over"):
        origin = disk.home.parent / f"project-{uid}"
        origin.mkdir()
        (origin / "train.py").write_text(uid)
        sources = disk.cleaner.copies
        tree = sources.keep(origin, (), sources.look(origin, ()))
        notes[uid] = {REVISION: tree.revision, ORIGIN: str(origin)}
    disk.object("live", phase="Running", notes=notes["live"])
    disk.object("over", notes=notes["over"])
    found = disk.cleaner.survey(dict.fromkeys(Sort, ALL), 1e12)[Sort.SOURCES].decision
    assert [it.item.name for it in found.goes] == ["batchjob/job-over"]
    disk.cleaner.hide_sources([it.item for it in found.goes])
    copies, one, other = disk.cleaner.copies, notes["live"], notes["over"]
    assert copies.path_of(one[REVISION], Path(one[ORIGIN]).name) is not None
    assert copies.path_of(other[REVISION], Path(other[ORIGIN]).name) is None
    disk.cleaner.copies.sweep([])
    assert not [it for it in (disk.home / "sources").iterdir() if it.name.startswith(".")]


@pytest.mark.parametrize(("made_s", "begins_s"), [(5.0, DAY_S * 8), (DAY_S - 60.0, DAY_S)])
def test_what_a_store_held_before_limits_came_stays_for_days(
    disk: Disk, made_s: float, begins_s: float
) -> None:
    """Of an upgrade: there was no `kind: Settings` in which to say other limits."""
    disk.object("old", made_s=made_s)
    assert disk.cleaner.begins_s(DAY_S) == begins_s
    again = Cleaner(disk.home)  # as after a restart, and whatever is there by then
    assert again.begins_s(DAY_S * 3) == begins_s
    (disk.home / RETENTION).write_text("{")
    assert again.begins_s(DAY_S * 3) == DAY_S * 10


def test_an_object_that_another_one_needs_stays(disk: Disk) -> None:
    disk.object("first")
    disk.object("free")
    disk.object("next", phase="Pending", spec='{"dependsOn": [{"job": "job-first"}]}')
    assert disk.goes(Sort.OBJECTS, ALL) == ["batchjob/job-free"]


def test_an_object_that_somebody_would_make_again_stays(disk: Disk) -> None:
    """Made again it would run again, once for each round."""
    note = KeptBy("source/infra", "jobs.yaml:1", "abc", "d").text()
    disk.object("kept", notes={KEPT_BY: note})
    disk.object("mirrored", notes={MADE_FROM: "c0ffee 1 abc"})
    disk.object("free")
    assert disk.goes(Sort.OBJECTS, ALL) == ["batchjob/job-free"]


def test_records_are_of_objects_that_are_over_and_that_nobody_needs(disk: Disk) -> None:
    for uid, phase in (("over", "Succeeded"), ("live", "Running"), ("prior", "Succeeded")):
        disk.object(uid, phase=phase)
        disk.run(uid, f"fl-{uid}")
        told = [Metric(at, at, "loss", 1.0, 7.0) for at in range(3)]
        events = [EventRow(uid, float(at), "Normal", "Said", f"{at}") for at in range(3)]
        entry = Remembered(
            "t", uid, "{}", "{}", "fl", f"batchjob/job-{uid}", 0, 1.0, 0.0, 50.0, uid
        )
        with disk.store.transaction():
            run = next(run for run, _ in disk.store.runs.of(uid))
            anyway = frozenset(RunState)
            disk.store.runs.advance(run, from_states=anyway, metrics=told)
            disk.store.events.record(events)
            disk.store.cache.remember([entry])
    prior = {"search": {"priorTrials": {"fromSweep": "job-prior"}}}
    needs = json.dumps({**prior, "dependsOn": [{"job": "job-prior"}]})
    disk.object("next", phase="Pending", spec=needs)
    assert disk.goes(Sort.RUNS, ALL) == ["batchjob/job-over"]
    assert disk.goes(Sort.EVENTS, ALL) == ["batchjob/job-over", "batchjob/job-prior"]
    assert sorted(disk.goes(Sort.REUSE, ALL)) == [
        "batchjob/job-live", "batchjob/job-over", "batchjob/job-prior",
    ]  # fmt: skip
