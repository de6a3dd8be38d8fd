"""The desired state, written to the store."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.apply.draft import NAMED_BY
from fleetctl.apply.write import commit
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.controllers.model import Run, RunState
from fleetctl.manifest import Manifest
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.sqlite.store import SqliteStore, open_memory_store
from tests.unit.engine.fake_world import ManualClock, tasks


@pytest.fixture
def store() -> SqliteStore:
    return open_memory_store(ManualClock())


def manifest(kind: str, name: str, spec: dict[str, Any], **labels: str) -> Manifest:
    about = Metadata.model_validate({"name": name, "labels": labels})
    return Manifest(kind, name, about, KINDS[kind].spec.model_validate(spec), "f.yaml", 1)


def job(name: str = "job", count: int = 2, **fields: Any) -> Manifest:
    return manifest("BatchJob", name, tasks(count, **fields))


def applied(store: SqliteStore, *found: Manifest) -> list[tuple[str, str, str]]:
    outcomes = commit.apply_manifests(store, found, 5.0)
    return [(outcome.key, outcome.outcome, outcome.message) for outcome in outcomes]


def names(store: SqliteStore) -> list[str]:
    return sorted(row.key for row in store.resources.list())


def test_a_new_object_is_created_and_its_size_is_told(store: SqliteStore) -> None:
    assert applied(store, job()) == [("batchjob/job", "created", "2 tasks")]
    [row] = store.resources.list()
    assert (row.generation, row.created_at_s, row.status) == (1, 5.0, "")


def test_what_was_refused_is_asked_again_by_the_same_file(store: SqliteStore) -> None:
    applied(store, job(count=1))
    [row] = store.resources.list()
    refused = Run("fl-a", row.uid, 0, 1, RunState.REFUSED, "local", "fl-a", "hash", "{}", "p", 1.0)
    status = {"phase": "Failed", "reason": "Refused", "observedGeneration": 1}
    with store.transaction():
        store.runs.begin([replace(refused, state=RunState.STARTING)])
        store.runs.advance(refused)
        store.resources.put_status(row.uid, json.dumps(status), expected_version=row.version)
    assert applied(store, job(count=1)) == [
        ("batchjob/job", "configured", "it was refused; trying again")
    ]
    [row] = store.resources.list()
    [(run, _)] = store.runs.of(row.uid)
    assert (row.generation, run.state, run.template_hash) == (2, RunState.REFUSED, "")


def test_the_same_again_is_unchanged_and_writes_nothing(store: SqliteStore) -> None:
    applied(store, job())
    [before] = store.resources.list()
    assert applied(store, job()) == [("batchjob/job", "unchanged", "")]
    assert list(store.resources.list()) == [before]


def test_a_changed_spec_is_a_new_generation_and_tells_what_changed(store: SqliteStore) -> None:
    applied(store, job(parallelism=8))
    assert applied(store, job(count=3, parallelism=16)) == [
        ("batchjob/job", "configured", "parallelism 8 -> 16, completions 2 -> 3; 3 to run")
    ]
    [row] = store.resources.list()
    assert row.generation == 2


def test_a_long_value_is_told_by_its_fields_name_alone(store: SqliteStore) -> None:
    applied(store, job())
    other = job(template={"python": "SUBMIT(ok=True)  # " + "x" * 100})
    assert applied(store, other) == [("batchjob/job", "configured", "template.python; 2 to run")]


def test_labels_alone_are_no_new_generation(store: SqliteStore) -> None:
    applied(store, job())
    labelled = manifest("BatchJob", "job", tasks(2), team="rlm")
    assert applied(store, labelled) == [
        ("batchjob/job", "configured", 'labels.team unset -> "rlm"')
    ]
    [row] = store.resources.list()
    assert (row.generation, row.labels) == (1, {"team": "rlm"})


def test_all_manifests_are_stored_or_none(store: SqliteStore) -> None:
    class Broken(Exception):
        pass

    def breaks() -> None:
        raise Broken

    broken = open_memory_store(ManualClock(), before_commit=breaks)
    with pytest.raises(Broken):
        commit.apply_manifests(broken, [job("a"), job("b")], 5.0)
    assert names(broken) == []


def test_a_volume_that_nobody_declares_is_made_with_its_data_kept(store: SqliteStore) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    using = job(template={"python": "pass", "volumes": [mount]})
    assert applied(store, using)[0] == ("volume/data", "created", "named by job")
    volume = store.resources.get("Volume", "data")
    assert volume is not None
    assert json.loads(volume.spec).get("deletionPolicy", "Retain") == "Retain"
    assert volume.annotations == {NAMED_BY: "batchjob/job"}
    assert applied(store, using) == [("batchjob/job", "unchanged", "")]


def test_a_volume_that_is_declared_beside_it_is_the_declared_one(store: SqliteStore) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    using = job(template={"python": "pass", "volumes": [mount]})
    declared = manifest("Volume", "data", {"deletionPolicy": "Delete"})
    applied(store, using, declared)
    assert names(store) == ["batchjob/job", "volume/data"]
    volume = store.resources.get("Volume", "data")
    assert volume is not None
    assert json.loads(volume.spec)["deletionPolicy"] == "Delete"


def test_a_deletion_is_a_wish_and_the_name_is_free_at_once(store: SqliteStore) -> None:
    applied(store, job())
    uid = commit.delete_object(store, "BatchJob", "job", 9.0)
    [row] = store.resources.list()
    assert (row.uid, row.deleted_at_s) == (uid, 9.0)
    assert applied(store, job()) == [("batchjob/job", "created", "2 tasks")]
    assert len({row.uid for row in store.resources.list()}) == 2


def test_what_is_not_there_cannot_be_deleted_or_suspended(store: SqliteStore) -> None:
    with pytest.raises(NotFound, match="batchjob/job is not there"):
        commit.delete_object(store, "BatchJob", "job", 9.0)
    applied(store, job())
    commit.delete_object(store, "BatchJob", "job", 9.0)
    with pytest.raises(NotFound):
        commit.suspend_object(store, "BatchJob", "job", 9.0)


def test_suspending_and_resuming_change_one_field(store: SqliteStore) -> None:
    applied(store, job(parallelism=3))
    [before] = store.resources.list()
    assert commit.suspend_object(store, "BatchJob", "job", 9.0)
    assert not commit.suspend_object(store, "BatchJob", "job", 9.0)
    [row] = store.resources.list()
    assert (row.generation, json.loads(row.spec)["suspend"]) == (2, True)
    assert commit.suspend_object(store, "BatchJob", "job", 9.0, wanted=False)
    [row] = store.resources.list()
    assert json.loads(row.spec) == json.loads(before.spec)


def test_a_volume_has_nothing_to_suspend(store: SqliteStore) -> None:
    applied(store, manifest("Volume", "data", {}))
    with pytest.raises(UsageError, match="nothing to suspend"):
        commit.suspend_object(store, "Volume", "data", 9.0)
