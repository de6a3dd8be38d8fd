"""Every word for a kind, and the answer to a word that is none."""

from __future__ import annotations

import pytest

from fleetctl.common.errors import UsageError
from fleetctl.views.kinds import kind_named, kind_of, parse_target


@pytest.mark.parametrize(
    ("word", "kind"),
    [("job", "BatchJob"), ("jobs", "BatchJob"), ("bj", "BatchJob"), ("batchjob", "BatchJob"),
     ("BatchJob", "BatchJob"), ("sw", "Sweep"), ("sweeps", "Sweep"), ("tr", "TrainingRun"),
     ("vol", "Volume"), ("secret", "Secret"), ("secrets", "Secret")],
)  # fmt: skip
def test_short_long_and_plural_words_name_a_kind(word: str, kind: str) -> None:
    assert kind_of(word).name == kind


def test_an_unknown_kind_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        kind_of("swep")
    assert caught.value.hint == "did you mean `sweep`?"


def test_a_far_word_is_answered_with_all_kinds() -> None:
    with pytest.raises(UsageError) as caught:
        kind_of("xyzzy")
    assert "batchjobs, sweeps, trainingruns" in caught.value.hint


@pytest.mark.parametrize("text", ["job", "job/", "/x", "", "job/x/y", "a"])
def test_half_a_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_target(text)


def test_a_target_becomes_the_key_that_the_store_uses() -> None:
    assert parse_target("job/chunks").key == "batchjob/chunks"


def test_a_kind_of_a_newer_store_still_has_a_name() -> None:
    assert kind_named("Function").plural == "functions"
