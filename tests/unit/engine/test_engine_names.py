"""Names of runs."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.tracking.track import RUN_NAME_LENGTH, run_name

parts = st.tuples(st.text("0123456789abcdef", min_size=1), st.integers(0), st.integers(1))


def test_the_same_attempt_has_the_same_name_in_every_release() -> None:
    assert run_name("store", "uid", 3, 1) == "fl-om3y7pnuvcrfki3p7ibft22tpw"


@given(parts)
def test_a_name_is_valid_everywhere(part: tuple[str, int, int]) -> None:
    name = run_name("store", *part)
    assert len(name) == RUN_NAME_LENGTH
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)


@given(parts, parts)
def test_two_attempts_never_share_a_name(
    one: tuple[str, int, int], other: tuple[str, int, int]
) -> None:
    assert (run_name("store", *one) == run_name("store", *other)) == (one == other)


def test_another_store_gives_other_names() -> None:
    assert run_name("a", "uid", 0, 1) != run_name("b", "uid", 0, 1)
