"""Names backups that share a directory, so that only our own are counted and removed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SUFFIX = ".backup"
# An unfinished file has another name until it is complete.
PARTIAL = ".partial"
_NAME = re.compile(r"fleetctl-(?P<store>[0-9a-f]{12})-(?P<time>\d{8}T\d{6}Z)\.backup")


@dataclass(frozen=True, slots=True)
class BackupName:
    """store: the beginning of the store's id. at: when it was copied, so that names sort by it."""

    name: str
    store: str
    at: str


def name_for(store_id: str, at_s: float) -> str:
    return f"fleetctl-{store_id[:12]}-{_format_stamp(at_s)}{SUFFIX}"


def ours_among(names: Iterable[str], store_id: str = "") -> list[BackupName]:
    """Returns the names in our form, of one store or of all; the oldest first."""
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and store_id.startswith(match["store"] if store_id else ""):
            found.append(BackupName(name, match["store"], match["time"]))
    return sorted(found, key=lambda it: (it.at, it.name))


def too_many(
    names: Iterable[str],
    store_id: str,
    keep: int,
    *,
    fresh: str,
) -> Sequence[str]:
    """Returns this store's own backups beyond the newest `keep`. All other files stay, and so does
    `fresh`, the one that was just written. A backup with a later time was written while a clock was
    wrong, and counts as older than the rest.
    """
    own = ours_among(names, store_id)
    at = next((it.at for it in own if it.name == fresh), "")
    older = [it for it in own if it.name != fresh]
    older.sort(key=lambda it: (it.at <= at, it.at, it.name))
    return [it.name for it in older[: max(0, len(own) - keep)]]


def list_partials(
    names: Iterable[str],
    store_id: str,
    before_s: float,
) -> Sequence[str]:
    """Returns unfinished files of this store that were begun before then."""
    cut = [it.removesuffix(PARTIAL) for it in names if it.endswith(PARTIAL)]
    stamp = _format_stamp(before_s)
    return [it.name + PARTIAL for it in ours_among(cut, store_id) if it.at < stamp]


def _format_stamp(at_s: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at_s))
