"""Random rows in one shared sandbox against a model, and bugs that the comparison must catch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.guest.task.task import Sandbox

NAMES = ("limit", "scale", "peek", "mine", "params")
HELPERS = {"peek"}
Row = tuple[dict[str, int], dict[str, int]]  # its parameters, and globals that its program sets
values = st.dictionaries(st.sampled_from(("limit", "scale", "peek", "mine")), st.integers(0, 9))
rows = st.lists(st.tuples(values, values), min_size=2, max_size=6)
CODE = """
found = {name: globals().get(name) for name in NAMES}
globals().update(SETS)
SUBMIT(**{name: it if it is None or isinstance(it, (int, dict)) else "helper"
    for name, it in found.items()})
"""


def seen(work: list[Row]) -> list[dict[str, Any]]:
    """The values of all names, as each row finds them."""
    sandbox, found = Sandbox([]), []
    for params, sets in work:
        events: list[dict[str, Any]] = []
        code = f"NAMES = {NAMES!r}\nSETS = {sets!r}\n{CODE}"
        assert sandbox.run(code, params, events.append) == 0
        found.append(json.loads(next(it["json"] for it in events if it["e"] == "result")))
    return found


def expected(work: list[Row]) -> list[dict[str, Any]]:
    """Its own parameters, else the helpers, else what programs have set beside parameters."""
    own: dict[str, int] = {}
    found = []
    for params, sets in work:
        helpers = dict.fromkeys(HELPERS, "helper")
        known = {**dict.fromkeys(NAMES), **own, **helpers, **params, "params": params}
        found.append(known)
        own.update({name: it for name, it in sets.items() if name not in params})
    return found


@settings(max_examples=80, deadline=None)
@given(rows)
def test_each_row_finds_its_own_parameters_and_what_programs_kept(work: list[Row]) -> None:
    assert seen(work) == expected(work)


LEAKS: dict[str, Callable[[Sandbox, dict[str, Any]], None]] = {
    "a parameter of an earlier row is left": lambda sandbox, params: sandbox._namespace.update(
        sandbox._helpers, params=params, **params
    ),
    "a parameter takes a program's global along": lambda sandbox, params: (
        sandbox._hidden.clear(),
        _HAND_OUT(sandbox, params),
    )[-1],
    "a helper's name stays as a program left it": lambda sandbox, params: (
        [sandbox._namespace.pop(name, None) for name in sandbox._params],
        sandbox._namespace.update(sandbox._hidden),
        setattr(sandbox, "_params", params),
        sandbox._namespace.update(params=params, **params),
    )[-1],
}
_HAND_OUT = Sandbox._hand_out
REVEALING: list[Row] = [
    ({"limit": 5}, {"mine": 1, "peek": 2}),
    ({"mine": 7}, {}),
    ({"scale": 2}, {}),
]


@pytest.mark.parametrize("bug", LEAKS)
def test_a_planted_leak_is_seen(bug: str) -> None:
    with mock.patch.object(Sandbox, "_hand_out", LEAKS[bug]):
        assert seen(REVEALING) != expected(REVEALING)
    assert seen(REVEALING) == expected(REVEALING)
