"""A disk that loses its power. Synced data of a file stays. Of later writes any part may stay: no
write, all, the first ones, some in another order, single sectors of a write.

Two assumptions, both SQLite's own on Linux: a torn write spoils no byte beside it, and the making,
deletion and shortening of a file reach the disk in their order. Used by power_cuts.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

SECTOR_BYTES = 512


class Sort(StrEnum):
    """PUT is a whole file under its name: written beside it, synced, renamed. That, and RENAME, are
    durable at once: a cut before the directory is synced finds what one before the rename does.
    """

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    DELETE = "delete"
    SYNC = "sync"
    PUT = "put"
    RENAME = "rename"


@dataclass(frozen=True, slots=True)
class Change:
    """offset: of a write, or the size after a truncation. target: the name after a rename."""

    sort: Sort
    path: str
    offset: int = 0
    data: bytes = b""
    target: str = ""


class Disk:
    """durable: content by path. pending: changes of each file since its last sync."""

    def __init__(self, durable: dict[str, bytes]) -> None:
        self._durable: dict[str, bytearray | None] = {k: bytearray(v) for k, v in durable.items()}
        self._pending: defaultdict[str, list[Change]] = defaultdict(list)

    def take(self, change: Change) -> None:
        path = change.path
        if change.sort is Sort.PUT:
            self._durable[path] = bytearray(change.data)
        elif change.sort is Sort.RENAME:
            # Files written by other means than SQLite are not recorded.
            if path in self._durable or path in self._pending:
                self._durable[change.target] = self._durable.pop(path, None)
                self._pending[change.target] = self._pending.pop(path, [])
        elif change.sort is Sort.SYNC:
            self._durable[path] = _after(self._durable.get(path), self._pending.pop(path, ()))
        else:
            self._pending[path].append(change)

    def cut(self, dice: Random) -> dict[str, bytes]:
        """The files that are found when the power is back, one of many possible ways."""
        found = {}
        for path in sorted({*self._durable, *self._pending}):
            durable = self._durable.get(path)
            # A copy, for the disk goes on and may be cut again.
            before = None if durable is None else bytearray(durable)
            content = _after(before, _survivors(self._pending.get(path, []), dice))
            if content is not None:
                found[path] = bytes(content)
        return found


def _after(content: bytearray | None, changes: Iterable[Change]) -> bytearray | None:
    for change in changes:
        match change.sort:
            case Sort.CREATE:
                content = bytearray()
            case Sort.DELETE:
                content = None
            case Sort.TRUNCATE if content is not None:
                del content[change.offset :]
                content.extend(bytes(change.offset - len(content)))
            case Sort.WRITE if content is not None:
                content.extend(bytes(max(0, change.offset - len(content))))
                content[change.offset : change.offset + len(change.data)] = change.data
            case _:
                pass
    return content


def _survivors(pending: list[Change], dice: Random) -> list[Change]:
    match dice.choice(("none", "all", "first", "some", "some")):
        case "none":
            return []
        case "all":
            return pending
        case "first":
            kept = pending[: dice.randint(0, len(pending))]
            return [*kept[:-1], *(piece for last in kept[-1:] for piece in _torn(last, dice))]
        case _:
            return list(_some(pending, dice))


def _some(pending: list[Change], dice: Random) -> Iterator[Change]:
    odds, torn = dice.random(), dice.random() < 0.5
    for change in pending:
        if change.sort is not Sort.WRITE:
            if dice.random() < 0.3:
                return  # nor does what came after it
            yield change
        elif dice.random() < odds:
            yield from _torn(change, dice) if torn else (change,)


def _torn(change: Change, dice: Random) -> Iterator[Change]:
    """Some sectors of a write. Others are kept whole."""
    if change.sort is not Sort.WRITE:
        yield change
        return
    for at in range(0, len(change.data), SECTOR_BYTES):
        if dice.random() < 0.5:
            data = change.data[at : at + SECTOR_BYTES]
            yield replace(change, offset=change.offset + at, data=data)
