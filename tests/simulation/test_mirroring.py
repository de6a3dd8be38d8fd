"""The mirror's decisions before an API server that says old things, and planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fleetctl.operator.mirror import custom_resource
from fleetctl.operator.mirror.custom_resource import CustomResource, MirrorAction, MirroredObject
from tests.simulation.mirroring import live
from tests.simulation.planted.plant import around

SEEDS = range(300)


def test_nothing_is_deleted_or_undone_on_the_word_of_an_old_list() -> None:
    for seed in SEEDS:
        assert live(seed).wrong == [], seed


def _around(
    change: Callable[[MirrorAction, CustomResource | None, MirroredObject | None], MirrorAction],
) -> Any:
    def make(todo: Any) -> Any:
        def made(
            wanted: CustomResource | None, stored: MirroredObject | None, **rest: Any
        ) -> MirrorAction:
            return change(todo(wanted, stored, **rest), wanted, stored)

        return made

    return around(custom_resource, "choose_action", make)


@contextmanager
def a_missing_event_is_a_death() -> Iterator[None]:
    with _around(
        lambda it, wanted, _: (
            MirrorAction.DELETE if it is MirrorAction.LOOK and wanted is None else it
        )
    ):
        yield


@contextmanager
def another_uid_in_an_old_list_is_a_new_object() -> Iterator[None]:
    with _around(
        lambda it, wanted, had: (
            MirrorAction.DELETE if it is MirrorAction.LOOK and wanted and had else it
        )
    ):
        yield


@contextmanager
def an_old_list_is_applied() -> Iterator[None]:
    def change(
        it: MirrorAction, wanted: CustomResource | None, stored: MirroredObject | None
    ) -> MirrorAction:
        if (
            it is not MirrorAction.NOTHING
            or wanted is None
            or stored is None
            or stored.origin is None
        ):
            return it
        return MirrorAction.APPLY if wanted.origin != stored.origin else it

    with _around(change):
        yield


@contextmanager
def it_is_let_go_before_its_end_is_confirmed() -> Iterator[None]:
    def change(
        it: MirrorAction, wanted: CustomResource | None, _: MirroredObject | None
    ) -> MirrorAction:
        return (
            MirrorAction.RELEASE
            if it is MirrorAction.WAIT and wanted is not None and wanted.deleting
            else it
        )

    with _around(change):
        yield


@pytest.mark.parametrize(
    "plant",
    [
        a_missing_event_is_a_death,
        another_uid_in_an_old_list_is_a_new_object,
        an_old_list_is_applied,
        it_is_let_go_before_its_end_is_confirmed,
    ],
)
def test_a_planted_bug_of_the_mirror_is_caught(plant: Any) -> None:
    with plant():
        assert any(live(seed).wrong for seed in SEEDS)
