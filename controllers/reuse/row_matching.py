"""Gives the rows of a changed spec their indexes: a row keeps the one that its content had, at any
position. Pure; called when a spec is applied, and when results become tasks.

The index is a name for users, and the key of stored attempts, logs and results. Which row has it is
only a preference: if an outcome counts depends on the parameters themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count

from fleetctl.controllers.model import LIVE_STATES, Run, RunState

NOTHING = 4  # the worth of what was never tried


@dataclass(frozen=True, slots=True)
class RowHolder:
    """An index that has been in use. desired: params hash of its row under the spec before, or
    empty; last: params hash of its newest attempt, or empty. worth: that attempt's; among equals,
    the lowest are kept.
    """

    index: int
    desired: str
    last: str
    worth: int


def make_holder(
    index: int,
    desired: str,
    run: Run | None,
    content: str,
) -> RowHolder:
    """Makes the holder of an index. desired: params hash of its row, or empty. run: its newest
    attempt. content: of all rows.
    """
    return RowHolder(
        index, desired, "" if run is None else run.params_hash, _rank_attempt(run, content)
    )


def assign_indexes(rows: Sequence[tuple[int, str]], held: Iterable[RowHolder]) -> list[int]:
    """Returns the index of each row. rows: (the index that it has by itself, its params hash).

    Equal rows are matched by their count. A row of new content has the index of its position where
    that is free, and the lowest free one else.
    """
    holders = list(held)
    found: dict[int, int] = {}
    used: set[int] = set()
    _match_rows(
        rows,
        holders,
        lambda it: it.desired,
        found,
        used,
    )
    # Rows that were removed and come back, or were replaced by rows that never began.
    _match_rows(
        rows,
        holders,
        lambda it: it.last,
        found,
        used,
    )
    for at, (own, _) in enumerate(rows):
        if at not in found and own not in used:
            found[at] = own
            used.add(own)
    free = (index for index in count() if index not in used)
    return [found[at] if at in found else next(free) for at in range(len(rows))]


def _match_rows(
    rows: Sequence[tuple[int, str]],
    holders: Sequence[RowHolder],
    content: Callable[[RowHolder], str],
    found: dict[int, int],
    used: set[int],
) -> None:
    """Adds to found the rows whose content belongs to a holder that is not used yet."""
    first: dict[str, RowHolder] = {}
    equal: dict[str, list[RowHolder]] = {}  # of several holders; most contents have one
    for it in holders:
        digest = content(it)
        if it.index in used or not digest:
            continue
        if digest in first:
            equal.setdefault(digest, [first[digest]]).append(it)
        else:
            first[digest] = it
    places: dict[str, list[int]] = {digest: [] for digest in equal}
    for at, (_, digest) in enumerate(rows):
        if at in found or digest not in first:
            continue
        if digest in equal:
            places[digest].append(at)
        elif first[digest].index not in used:
            found[at] = first[digest].index
            used.add(found[at])
    for digest, there in equal.items():
        best = sorted(there, key=lambda it: _rank_holder(it, digest))[: len(places[digest])]
        for at, index in zip(places[digest], sorted(it.index for it in best), strict=False):
            found[at] = index
            used.add(index)


def _rank_holder(it: RowHolder, digest: str) -> tuple[int, int]:
    """Ranks a holder for a row; attempts of other parameters do not count."""
    return (it.worth if it.last == digest else NOTHING), it.index


def _rank_attempt(run: Run | None, content: str) -> int:
    """Returns 0 for a success that counts; then live attempts, other successes, the rest, and no
    attempt.
    """
    if run is None:
        return NOTHING
    if run.state in LIVE_STATES:
        if run.state is not RunState.STOPPING:
            return 1
        return 3
    if run.state is not RunState.SUCCEEDED or run.put_aside:
        return 3
    if run.content in ("", content):
        return 0
    return 2


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Rows that follow one another and so do their indexes; from `row` and from `index` on."""

    row: int
    index: int
    length: int


class RowIndexes:
    """The indexes of rows in their order, in spans so that 100,000 rows take little memory."""

    __slots__ = ("_by_index", "_starts", "spans", "total")

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        """pairs: first index and length of each span, in the order of the rows."""
        known = list(pairs)
        rows = accumulate((length for _, length in known), initial=0)
        self.spans = tuple(
            RowSpan(row, first, length) for row, (first, length) in zip(rows, known, strict=False)
        )
        self.total = sum(length for _, length in known)
        self._by_index = sorted(self.spans, key=lambda it: it.index)
        self._starts = [it.index for it in self._by_index]

    @classmethod
    def of(cls, indexes: Iterable[int]) -> RowIndexes:
        spans: list[list[int]] = []
        for index in indexes:
            if spans and spans[-1][0] + spans[-1][1] == index:
                spans[-1][1] += 1
            else:
                spans.append([index, 1])
        return cls((first, length) for first, length in spans)

    @classmethod
    def parse(cls, text: str) -> RowIndexes:
        """Parses the text that `text` returns."""
        parts = (part.split("-") for part in text.split(","))
        return cls((int(part[0]), int(part[-1]) - int(part[0]) + 1) for part in parts)

    def text(self) -> str:
        """Formats the indexes in the order of the rows, as `1-3,0,4`; empty where each is its
        position.
        """
        if self.plain:
            return ""
        return ",".join(_span_text(it) for it in self.spans)

    @property
    def plain(self) -> bool:
        """Returns true if each row has its position as its index."""
        return all(it.row == it.index for it in self.spans)

    def row(self, index: int) -> int | None:
        """Returns the row with this index; None where no row has it."""
        at = bisect_right(self._starts, index) - 1
        if at < 0:
            return None
        span = self._by_index[at]
        offset = index - span.index
        if offset < span.length:
            return span.row + offset
        return None

    def __iter__(self) -> Iterator[int]:
        for it in self.spans:
            yield from range(it.index, it.index + it.length)


def _span_text(span: RowSpan) -> str:
    last = span.index + span.length - 1
    if span.length == 1:
        return str(span.index)
    return f"{span.index}-{last}"
