"""Bugs in which unit a row of a file is, and in how long a request to run all again holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager as Context
from math import inf

from fleetctl.controllers.reuse.row_matching import RowHolder, assign_indexes
from fleetctl.tracking import result_cache
from fleetctl.tracking.annotations import RERUN
from tests.simulation.planted.plant import Plant, swapped


def rows_are_matched_by_their_index() -> Context[object]:
    """A row is whatever stood at its position before."""

    def by_position(rows: Sequence[tuple[int, str]], held: Iterable[RowHolder]) -> list[int]:
        return [own for own, _ in rows]

    return swapped(result_cache, "assign_indexes", by_position)


def a_count_of_equal_rows_is_ignored() -> Context[object]:
    """Of equal rows the first keeps what it has, and the others are new."""

    def first_only(rows: Sequence[tuple[int, str]], held: Iterable[RowHolder]) -> list[int]:
        seen: set[str] = set()
        told = []
        for own, digest in rows:
            told.append((own, digest if digest not in seen else f"{digest} again"))
            seen.add(digest)
        return assign_indexes(told, held)

    return swapped(result_cache, "assign_indexes", first_only)


def a_rerun_is_asked_for_ever() -> Context[object]:
    """Once somebody has asked to run all again, nothing that is known is taken any more."""

    def for_ever(annotations: Mapping[str, str]) -> float:
        return inf if RERUN in annotations else -inf

    return swapped(result_cache, "rerun_at_s", for_ever)


PLANTS: tuple[Plant, ...] = (
    rows_are_matched_by_their_index,
    a_count_of_equal_rows_is_ignored,
    a_rerun_is_asked_for_ever,
)
