"""Applies retention to this machine's files: lists them, and deletes those that a decision names.
All methods block, and are called in a thread; only `hide_sources` is quick.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.common.state_paths import RETENTION
from fleetctl.controllers.kinds.retention_decision import (
    DAY_S,
    RetentionItem,
    RetentionLimits,
    RetentionSort,
)
from fleetctl.providers.contract.plugin import CachedEntry
from fleetctl.providers.sources.source_snapshots import Snapshots
from fleetctl.retention import output_files
from fleetctl.retention.survey import SortSurvey, survey_items
from fleetctl.stores.read.reader import Reader
from fleetctl.wiring.plugins import caches_of

log = logging.getLogger("fleetctl.retention")

# The most files per call in a thread: between two calls, other work may use it.
LOGS_PER_STEP_MAX = 2000
# After an upgrade, users have a week to notice the limits and set others.
GRACE_S = 7 * DAY_S
NEW_S = 3600.0  # a store whose first object is no older has no data from before
# The sorts whose items are files alone, which are deleted without the store.
FILES = (
    RetentionSort.LOGS,
    RetentionSort.OUTPUTS,
    RetentionSort.ENVIRONMENTS,
    RetentionSort.REPOSITORIES,
)


class RetentionCleaner:
    """Deletes files below `home`, the state directory."""

    def __init__(self, home: Path) -> None:
        self._home, self.copies = home, Snapshots(home)

    def begins_s(self, now_s: float) -> float:
        """Returns from when on the default limits apply unconfigured, in seconds since the epoch:
        at once for a new store, days after the first look for an earlier one.
        """
        note = self._home / RETENTION
        try:
            return float(json.loads(note.read_text(encoding="utf-8"))["begins_s"])
        except (OSError, ValueError, KeyError, TypeError):
            with Reader(self._home) as reader:
                oldest_s = min((it.created_at_s for it in reader.resources()), default=now_s)
        begins_s = now_s if now_s - oldest_s < NEW_S else now_s + GRACE_S
        fresh = note.with_name(f"{note.name}.new")
        fresh.write_text(json.dumps({"begins_s": begins_s}), encoding="utf-8")
        fresh.replace(note)
        return begins_s

    def survey(
        self, limits: Mapping[RetentionSort, RetentionLimits], now_s: float
    ) -> dict[RetentionSort, SortSurvey]:
        return survey_items(self._home, limits, now_s)

    def steps(
        self, sort: RetentionSort, items: Sequence[RetentionItem]
    ) -> list[Sequence[RetentionItem]]:
        """Splits the items of a sort in FILES into successive calls of `let_go`."""
        of_runs = sort in (RetentionSort.LOGS, RetentionSort.OUTPUTS)
        most = LOGS_PER_STEP_MAX if of_runs else 1
        return [items[at : at + most] for at in range(0, len(items), most)]

    def let_go(self, sort: RetentionSort, items: Sequence[RetentionItem]) -> int:
        """Deletes items and returns their number. An item that the disk refuses to delete stays for
        the next time, and is logged.
        """
        try:
            if sort is RetentionSort.LOGS:
                return output_files.delete_logs(self._home, [it.key for it in items])
            if sort is RetentionSort.OUTPUTS:
                return output_files.let_go(self._home, [it.key for it in items])
            caches = caches_of(self._home).values()
            wanted = [
                CachedEntry(
                    sort,
                    it.key,
                    it.name,
                    it.bytes,
                    it.used_s,
                )
                for it in items
            ]
            return sum(any(one.let_go(it) for one in caches) for it in wanted)
        except OSError as error:
            log.warning("not deleted", extra={"sort": sort.value, "error": str(error)})
            return 0

    def release_outputs(self) -> None:
        """Deletes contents of outputs that no object keeps any more."""
        try:
            output_files.release_shared(self._home)
        except OSError as error:
            log.warning("not deleted", extra={"sort": "outputs", "error": str(error)})

    def hide_sources(self, items: Sequence[RetentionItem]) -> None:
        """Hides these copies from all later lookups; the engine's sweep deletes them. A copy that
        an apply stored again since the listing stays.
        """
        for it in items:
            self.copies.hide(it.key, unused_since_s=it.used_s)
