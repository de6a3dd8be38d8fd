"""How backups are called that lie together, so that only our own are counted and let go of."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SUFFIX = ".backup"
# What is on its way has another name until it is there as a whole.
PARTIAL = ".partial"
_NAME = re.compile(r"fleetctl-(?P<store>[0-9a-f]{12})-(?P<time>\d{8}T\d{6}Z)\.backup")


@dataclass(frozen=True, slots=True)
class Named:
    """store: the beginning of the store's id. at: when it was copied, so that names sort by it."""

    name: str
    store: str
    at: str


def name_for(store_id: str, at_s: float) -> str:
    return f"fleetctl-{store_id[:12]}-{_stamp(at_s)}{SUFFIX}"


def ours_among(names: Iterable[str], store_id: str = "") -> list[Named]:
    """Those that are called as we call them, of one store or of all; the oldest first."""
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and store_id.startswith(match["store"] if store_id else ""):
            found.append(Named(name, match["store"], match["time"]))
    return sorted(found, key=lambda it: (it.at, it.name))


def too_many(names: Iterable[str], store_id: str, keep: int, *, fresh: str) -> Sequence[str]:
    """What of this store's own is beyond the newest `keep`. Whatever else lies there stays, and so
    does `fresh`, the one that was just written. What has a later time was written while a clock was
    wrong, and counts as older than the rest.
    """
    own = ours_among(names, store_id)
    at = next((it.at for it in own if it.name == fresh), "")
    older = [it for it in own if it.name != fresh]
    older.sort(key=lambda it: (it.at <= at, it.at, it.name))
    return [it.name for it in older[: max(0, len(own) - keep)]]


def partials(names: Iterable[str], store_id: str, before_s: float) -> Sequence[str]:
    """What of this store was on its way before then, and never came to be there."""
    cut = [it.removesuffix(PARTIAL) for it in names if it.endswith(PARTIAL)]
    stamp = _stamp(before_s)
    return [it.name + PARTIAL for it in ours_among(cut, store_id) if it.at < stamp]


def _stamp(at_s: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
