"""An answer that is no failure is passed over; whatever else is raised passes."""

from __future__ import annotations

import asyncio

import pytest

from fleetctl.providers.remote.service_calls import ToleratedAnswer


def is_lookup(error: BaseException) -> bool:
    return isinstance(error, LookupError)


def is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError)


@pytest.mark.parametrize("error", [KeyError("x"), TimeoutError()])
def test_an_answer_of_either_sort_ends_the_block(error: Exception) -> None:
    reached = []
    with ToleratedAnswer(is_lookup, is_timeout):
        reached.append("begun")
        raise error
    reached.append("after")
    assert reached == ["begun", "after"]


@pytest.mark.parametrize("error", [ValueError("y"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_every_other_error_and_a_cancel_pass(error: BaseException) -> None:
    with pytest.raises(type(error)), ToleratedAnswer(is_lookup):
        raise error
