"""What lies on the disk of work that is over is found with its size and its age, what is in use is
held, and what goes leaves nothing half there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.state_paths import RETENTION
from fleetctl.controllers.kinds.retention_decision import DAY_S, RetentionLimits, RetentionSort
from fleetctl.controllers.model import Metric, RunState
from fleetctl.guest.outputs.pack import PackWriter
from fleetctl.providers.local.assets import local_caches
from fleetctl.providers.paths import jobs_dir
from fleetctl.providers.remote.remote_provider import remove_job_files
from fleetctl.providers.rundir.kept_outputs import find_outputs, sync_pack
from fleetctl.providers.rundir.run_log_reader import RunLogReader, past_s
from fleetctl.providers.sources.source_snapshots import InputFiles
from fleetctl.retention import output_files
from fleetctl.retention.cleaner import RetentionCleaner
from fleetctl.retention.output_files import outputs_in
from fleetctl.stores.base import CachedSuccess, EventRow
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.kept_by import KEPT_BY, MADE_FROM, KeptBy
from tests.unit.retention.disk_world import NOTHING, Disk

ALL = RetentionLimits(max_age_s=0.0)


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
    disk.let_go(RetentionSort.LOGS, RetentionLimits(max_bytes=20_000, keep_last=1))
    runs = disk.home / "local/jobs/a/runs"
    left = sorted(it.name for it in runs.iterdir())
    kept = ["fl-0.jsonl", "fl-0.past", "fl-1.jsonl", "fl-1.log", "fl-2.jsonl", "fl-2.log"]
    assert left == kept  # journals stay: they say that a run has begun
    assert past_s(runs, "fl-0") is not None and past_s(runs, "fl-1") is None
    assert RunLogReader(runs, "fl-0").read(0) == (b"", 0)
    assert disk.goes(RetentionSort.LOGS, ALL) == ["fl-1", "fl-2"]


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
    assert disk.goes(RetentionSort.LOGS, ALL) == ["fl-ended"]


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
            output_files.delete_logs(disk.home, ["local/a/fl-0"])
    assert RunLogReader(runs, "fl-0").read(0) == (b"", 0) and past_s(runs, "fl-0") is not None
    disk.let_go(RetentionSort.LOGS, ALL)
    assert [it.name for it in runs.iterdir()] == ["fl-0.past"]
    assert (runs / "fl-0.past").stat().st_size == 0
    assert disk.goes(RetentionSort.LOGS, ALL) == []


def test_work_directories_are_those_of_objects_that_are_over(disk: Disk) -> None:
    disk.object("over", ended_s=100.0)
    disk.object("later", ended_s=900.0)
    disk.object("live", phase="Running")
    disk.object("again")
    disk.run("again", "fl-x", state=RunState.RUNNING)  # it was retried, and says nothing of it yet
    for uid in ("over", "later", "live", "again", "unknown"):
        disk.write(str(Path(uid, "work", "x-0", "big")), 5000)
        disk.write(f"{uid}/runs/fl-{uid}.log", 5000)
    assert disk.goes(RetentionSort.WORK_DIRECTORIES, RetentionLimits(max_age_s=500.0)) == [
        "batchjob/job-over"
    ]
    both = ["batchjob/job-over", "batchjob/job-later"]
    assert disk.goes(RetentionSort.WORK_DIRECTORIES, RetentionLimits(max_bytes=1)) == both


def environment(disk: Disk, key: str, at_s: float) -> Path:
    made = disk.home / "local/envs" / key / "bin"
    made.mkdir(parents=True)
    (made / "python").write_bytes(b"x" * 5000)
    local_caches.lock_of(made.parent).touch()
    os.utime(local_caches.lock_of(made.parent), (at_s, at_s))
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
    assert disk.goes(RetentionSort.ENVIRONMENTS, ALL, 1e9) == ["free", "past"]
    disk.let_go(RetentionSort.ENVIRONMENTS, ALL, 1e9)
    left = [it.name for it in (disk.home / "local/envs").iterdir() if it.is_dir()]
    assert left == ["used"]


def test_what_was_used_since_it_was_listed_stays(disk: Disk) -> None:
    thing = environment(disk, "free", 100.0)
    assert local_caches.mark_used(thing, thing / "bin/python")
    assert not local_caches.let_go(thing, known_s=100.0)
    assert (thing / "bin/python").exists()
    known_s = local_caches.last_used_s(thing)
    with open(local_caches.lock_of(thing)) as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # somebody builds it anew
        assert not local_caches.let_go(thing, known_s=known_s)
    assert local_caches.let_go(thing, known_s=known_s)
    assert not thing.exists() and not local_caches.mark_used(thing, thing / "bin/python")


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
    found = disk.cleaner.survey(dict.fromkeys(RetentionSort, ALL), 1e12)[
        RetentionSort.SOURCES
    ].decision
    assert [it.item.name for it in found.goes] == ["batchjob/job-over"]
    disk.cleaner.hide_sources([it.item for it in found.goes])
    copies, one, other = disk.cleaner.copies, notes["live"], notes["over"]
    assert copies.path_of(one[REVISION], Path(one[ORIGIN]).name) is not None
    assert copies.path_of(other[REVISION], Path(other[ORIGIN]).name) is None
    disk.cleaner.copies.sweep([])
    assert not [it for it in (disk.home / "sources").iterdir() if it.name.startswith(".")]


def test_files_of_tasks_stay_while_an_object_that_is_not_over_names_them(disk: Disk) -> None:
    stored = InputFiles(disk.home)
    digests = {}
    for name in ("live", "over", "both", "nobody"):
        origin = disk.home.parent / f"{name}.txt"
        origin.write_text(name)
        digests[name] = sha256(name.encode()).hexdigest()
        stored.keep(digests[name], str(origin))
        os.utime(stored.path_of(digests[name]) or "", (100.0, 100.0))
    disk.object("live", phase="Running", spec=_names_files(digests["live"], digests["both"]))
    disk.object("over", spec=_names_files(digests["over"], digests["both"]))
    found = disk.cleaner.survey(dict.fromkeys(RetentionSort, ALL), 1e6)[RetentionSort.INPUTS]
    assert [it.item.key for it in found.decision.goes] == [digests["over"]]
    assert found.decision.goes[0].item.name == f"batchjob/job-over {digests['over'][:12]}"
    assert (found.decision.items, found.decision.held) == (3, 2)
    item = found.decision.goes[0].item
    stored.drop(item.key, unused_since_s=99.0)  # an apply has kept it again since the listing
    assert stored.path_of(item.key) is not None
    stored.drop(item.key, unused_since_s=item.used_s)
    assert stored.path_of(item.key) is None
    assert stored.path_of(digests["both"]) is not None
    # What finished within the hour is not listed yet: its tasks may be tried again.
    assert disk.goes(RetentionSort.INPUTS, ALL, 200.0) == []


def _names_files(*digests: str) -> str:
    found = [{"path": it, "sha256": it, "bytes": 1} for it in digests]
    return json.dumps({"tasks": {"files": {"base": ".", "found": found}}}, separators=(",", ":"))


@pytest.mark.parametrize(("made_s", "begins_s"), [(5.0, DAY_S * 8), (DAY_S - 60.0, DAY_S)])
def test_what_a_store_held_before_limits_came_stays_for_days(
    disk: Disk, made_s: float, begins_s: float
) -> None:
    """Of an upgrade: there was no `kind: Settings` in which to say other limits."""
    disk.object("old", made_s=made_s)
    assert disk.cleaner.begins_s(DAY_S) == begins_s
    again = RetentionCleaner(disk.home)  # as after a restart, and whatever is there by then
    assert again.begins_s(DAY_S * 3) == begins_s
    (disk.home / RETENTION).write_text("{")
    assert again.begins_s(DAY_S * 3) == DAY_S * 10


def test_an_object_that_another_one_needs_stays(disk: Disk) -> None:
    disk.object("first")
    disk.object("free")
    disk.object("next", phase="Pending", spec='{"dependsOn": [{"job": "job-first"}]}')
    assert disk.goes(RetentionSort.OBJECTS, ALL) == ["batchjob/job-free"]


def test_an_object_that_somebody_would_make_again_stays(disk: Disk) -> None:
    """Made again it would run again, once for each round."""
    note = KeptBy("source/infra", "jobs.yaml:1", "abc", "d").text()
    disk.object("kept", notes={KEPT_BY: note})
    disk.object("mirrored", notes={MADE_FROM: "c0ffee 1 abc"})
    disk.object("free")
    assert disk.goes(RetentionSort.OBJECTS, ALL) == ["batchjob/job-free"]


def test_records_are_of_objects_that_are_over_and_that_nobody_needs(disk: Disk) -> None:
    for uid, phase in (("over", "Succeeded"), ("live", "Running"), ("prior", "Succeeded")):
        disk.object(uid, phase=phase)
        disk.run(uid, f"fl-{uid}")
        told = [Metric(at, at, "loss", 1.0, 7.0) for at in range(3)]
        events = [EventRow(uid, float(at), "Normal", "Said", f"{at}") for at in range(3)]
        entry = CachedSuccess(
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
    assert disk.goes(RetentionSort.RUNS, ALL) == ["batchjob/job-over"]
    assert disk.goes(RetentionSort.EVENTS, ALL) == ["batchjob/job-over", "batchjob/job-prior"]
    assert sorted(disk.goes(RetentionSort.REUSE, ALL)) == [
        "batchjob/job-live", "batchjob/job-over", "batchjob/job-prior",
    ]  # fmt: skip


def _keep(disk: Disk, run: str, at_s: float, *contents: bytes, uid: str = "a") -> None:
    runs = disk.home / "local/jobs" / uid / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    directory = os.open(runs, os.O_RDONLY)
    writer = PackWriter(directory, run, blobs=True)
    for number, content in enumerate(contents):
        pieces = iter([content])
        writer.add(f"f{number}", 0o644, 0.0, lambda _, pieces=pieces: next(pieces, b""))
    writer.finish({})
    os.close(directory)
    for path in (runs / f"{run}.outputs", *(runs / "blobs").glob("*")):
        os.utime(path, (at_s, at_s))


def test_a_content_of_several_objects_is_there_once_until_the_last_of_them_goes(
    disk: Disk,
) -> None:
    shared = b"s" * 100_000
    provider = disk.home / "local"
    for uid, run, at_s in (("a", "fl-0", 100.0), ("b", "fl-1", 200.0), ("c", "fl-2", 300.0)):
        disk.object(uid)
        disk.run(uid, run)
        _keep(disk, run, at_s, shared, b"own " * 20_000 + uid.encode(), uid=uid)
        sync_pack(jobs_dir(disk.home, "local") / uid / "runs", run)
    (name,) = {it.name for it in provider.glob("jobs/a/runs/blobs/*")} & {
        it.name for it in provider.glob("jobs/b/runs/blobs/*")
    }
    numbers = {it.stat().st_ino for it in provider.glob(f"jobs/*/runs/blobs/{name}")}
    assert len(numbers) == 1
    assert len(list(provider.glob("contents/*/*"))) == 4
    sizes = {it.uid: it.bytes for it in outputs_in(disk.home)}
    assert sizes["c"] > 180_000  # counted once, for the newest
    assert max(sizes["a"], sizes["b"]) < 100_000

    disk.let_go(RetentionSort.OUTPUTS, RetentionLimits(max_age_s=850.0))
    assert len(list(provider.glob("contents/*/*"))) == 3
    remove_job_files(disk.home, "local", "c", keep_logs=False)
    assert [it.name for it in provider.glob("contents/*/*") if it.name == name] == [name]
    kept = find_outputs(jobs_dir(disk.home, "local") / "b" / "runs", "fl-1")
    assert kept is not None
    assert b"".join(kept.contents(kept.files[0])) == shared
    shutil.rmtree(jobs_dir(disk.home, "local") / "b")  # as a crash leaves it
    disk.cleaner.release_outputs()
    assert list(provider.glob("contents/*/*")) == []


def test_contents_are_copies_where_the_disk_has_no_second_names(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    shared = b"s" * 100_000
    runs = {uid: jobs_dir(disk.home, "local") / uid / "runs" for uid in "ab"}
    _keep(disk, "fl-0", 100.0, shared, uid="a")
    sync_pack(runs["a"], "fl-0")
    _keep(disk, "fl-1", 200.0, shared, uid="b")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "hardlink_to", refuse)
        sync_pack(runs["b"], "fl-1")
    for uid, run in (("a", "fl-0"), ("b", "fl-1")):
        kept = find_outputs(runs[uid], run)
        assert kept is not None
        assert b"".join(kept.contents(kept.files[0])) == shared
    assert len({it.stat().st_ino for it in disk.home.glob("local/jobs/*/runs/blobs/*")}) == 2
    sync_pack(runs["b"], "fl-1")
    assert len({it.stat().st_ino for it in disk.home.glob("local/jobs/*/runs/blobs/*")}) == 1
    assert not list(disk.home.glob("local/**/.new.*"))


def test_outputs_go_by_their_age_and_contents_with_the_last_that_needs_them(disk: Disk) -> None:
    disk.object("a")
    for number in range(4):
        disk.run(
            "a",
            f"fl-{number}",
            index=number,
            state=RunState.RUNNING if number == 3 else RunState.SUCCEEDED,
        )
    shared, own = b"s" * 100_000, b"o" * 100_000
    _keep(disk, "fl-0", 100.0, shared, own)
    _keep(disk, "fl-1", 200.0, shared, b"small")
    _keep(disk, "fl-2", 300.0, b"small")
    _keep(disk, "fl-3", 50.0, b"of a run that lives")
    disk.write("a/runs/fl-9.outputs.new", 10, 100.0)
    limits = RetentionLimits(max_age_s=750.0)
    assert disk.goes(RetentionSort.OUTPUTS, limits) == ["fl-0", "fl-1"]
    found = disk.cleaner.survey({**NOTHING, RetentionSort.OUTPUTS: limits}, 1_000.0)
    sizes = {it.key.rpartition("/")[2]: it.bytes for it in outputs_in(disk.home)}
    assert sizes["fl-1"] > 100_000  # the shared content counts once, for the newest
    assert 100_000 < sizes["fl-0"] < 200_000
    assert found[RetentionSort.OUTPUTS].decision.items == 4
    disk.let_go(RetentionSort.OUTPUTS, RetentionLimits(max_age_s=850.0))
    runs = disk.home / "local/jobs/a/runs"
    assert find_outputs(runs, "fl-0") is None
    kept = find_outputs(runs, "fl-1")
    assert kept is not None
    assert b"".join(kept.contents(kept.files[0])) == shared
    assert len(list((runs / "blobs").iterdir())) == 1
    assert not (runs / "fl-9.outputs.new").exists()
    disk.let_go(RetentionSort.OUTPUTS, limits)
    assert list((runs / "blobs").iterdir()) == []
    assert disk.goes(RetentionSort.OUTPUTS, ALL) == ["fl-2"]


def test_the_size_of_a_group_is_that_of_logs_and_outputs_together(disk: Disk) -> None:
    disk.object("a")
    for number in range(3):
        disk.run("a", f"fl-{number}", index=number)
        disk.write(f"a/runs/fl-{number}.log", 50_000, 100.0 + 10 * number)
    _keep(disk, "fl-0", 105.0, os.urandom(50_000))
    _keep(disk, "fl-1", 300.0, os.urandom(50_000))
    limits = RetentionLimits(group="finishedWork", group_bytes=160_000)
    sorts = (RetentionSort.LOGS, RetentionSort.OUTPUTS)
    found = disk.cleaner.survey({**NOTHING, **dict.fromkeys(sorts, limits)}, 1_000.0)
    gone = {sort: [it.item.name.split()[-1] for it in found[sort].decision.goes] for sort in sorts}
    assert gone == {RetentionSort.LOGS: ["fl-0"], RetentionSort.OUTPUTS: ["fl-0"]}
    assert {it.why for sort in sorts for it in found[sort].decision.goes} == {"maxSize"}
