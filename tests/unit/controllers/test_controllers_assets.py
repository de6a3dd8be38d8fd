"""Volumes and secrets."""

from __future__ import annotations

from dataclasses import replace

from controllers.assets import AssetWish, reconcile_asset
from controllers.plan import Drop, EnsureVolume, Phase, RemoveVolume

VOLUME = AssetWish(
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
    plan = reconcile_asset(replace(VOLUME, problem="the disk is full"))
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
    wish = replace(VOLUME, deleted=True, delete_data=True, users=("batchjob/a", "sweep/b"))
    plan = reconcile_asset(wish)
    assert plan.actions == ()
    assert plan.message == "still used by batchjob/a, sweep/b"
    plan = reconcile_asset(replace(wish, users=()))
    assert plan.actions == (RemoveVolume("data", "local", "deletionPolicy is Delete"),)


def test_the_row_goes_when_the_data_is_confirmed_gone() -> None:
    plan = reconcile_asset(replace(VOLUME, deleted=True, delete_data=True, removed=True))
    assert plan.actions == (Drop("u", "deleted"),)


def test_a_deleted_secret_is_dropped_at_once() -> None:
    plan = reconcile_asset(replace(VOLUME, kind="Secret", deleted=True))
    assert plan.actions == (Drop("u", "deleted"),)
