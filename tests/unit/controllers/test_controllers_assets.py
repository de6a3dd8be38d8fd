"""Volumes and secrets."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.controllers.kinds.assets import DesiredAsset, reconcile_asset
from fleetctl.controllers.planning.plan import (
    Drop,
    EnsureFunction,
    EnsureVolume,
    Phase,
    RemoveFunction,
    RemoveVolume,
)
from fleetctl.specs.values.hints import HintedText

VOLUME = DesiredAsset(
    uid="u",
    kind="Volume",
    name="data",
    deleted=False,
    provider="local",
    delete_data=False,
    ready=False,
    removed=False,
    users=(),
)


def test_a_new_volume_is_made_and_waits_until_it_is_there() -> None:
    plan = reconcile_asset(VOLUME)
    assert plan.actions == (EnsureVolume("data", "local", "it does not exist yet"),)
    assert plan.phase is Phase.PENDING


def test_a_volume_that_cannot_be_made_says_why_in_its_first_line() -> None:
    plan = reconcile_asset(replace(VOLUME, problem=HintedText("the disk is full")))
    assert plan.message == "the disk is full"
    assert plan.waiting_on == ("the disk is full",)


def test_a_volume_that_is_there_is_ready() -> None:
    plan = reconcile_asset(replace(VOLUME, ready=True))
    assert (plan.actions, plan.phase) == ((), Phase.READY)


def test_a_secret_is_ready_at_once() -> None:
    plan = reconcile_asset(replace(VOLUME, kind="Secret"))
    assert (plan.actions, plan.phase) == ((), Phase.READY)


def test_deleting_a_retained_volume_leaves_its_data_alone() -> None:
    plan = reconcile_asset(replace(VOLUME, deleted=True, users=("batchjob/a",)))
    assert plan.actions == (Drop("u", "deleted"),)


def test_the_data_goes_only_after_the_last_user() -> None:
    desired = replace(VOLUME, deleted=True, delete_data=True, users=("batchjob/a", "sweep/b"))
    plan = reconcile_asset(desired)
    assert plan.actions == ()
    assert plan.message == "still used by batchjob/a, sweep/b"
    plan = reconcile_asset(replace(desired, users=()))
    assert plan.actions == (RemoveVolume("data", "local", "deletionPolicy is Delete"),)


def test_the_row_goes_when_the_data_is_confirmed_gone() -> None:
    plan = reconcile_asset(replace(VOLUME, deleted=True, delete_data=True, removed=True))
    assert plan.actions == (Drop("u", "deleted"),)


def test_a_deleted_secret_is_dropped_at_once() -> None:
    plan = reconcile_asset(replace(VOLUME, kind="Secret", deleted=True))
    assert plan.actions == (Drop("u", "deleted"),)


FUNCTION = replace(VOLUME, kind="Function", name="embedder")


def test_a_new_function_is_made_and_waits_until_it_is_there() -> None:
    plan = reconcile_asset(FUNCTION)
    assert plan.actions == (EnsureFunction("embedder", "local", "it does not exist yet"),)
    assert reconcile_asset(replace(FUNCTION, ready=True)).phase is Phase.READY


def test_a_deleted_function_goes_after_its_last_user_and_then_its_row() -> None:
    deleted = replace(FUNCTION, deleted=True)
    plan = reconcile_asset(replace(deleted, users=("batchjob/a",)))
    assert (plan.actions, plan.message) == ((), "still used by batchjob/a")
    plan = reconcile_asset(deleted)
    assert plan.actions == (RemoveFunction("embedder", "local", "deleted"),)
    assert reconcile_asset(replace(deleted, removed=True)).actions == (Drop("u", "deleted"),)


def test_a_function_that_was_applied_again_keeps_what_the_deleted_one_had() -> None:
    plan = reconcile_asset(replace(FUNCTION, deleted=True, heir=True))
    assert plan.actions == (Drop("u", "a new function of this name has taken its place"),)
