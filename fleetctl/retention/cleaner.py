"""The hands of retention on this machine's files: lists what there is, and takes away what a
decision names. All of it blocks, and is called in a thread; only `hide_sources` is quick.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.common.home import RETENTION
from fleetctl.controllers.kinds.retention.decide import Item
from fleetctl.controllers.kinds.retention.limits import DAY_S, Limits, Sort
from fleetctl.providers.contract.caches import Cached
from fleetctl.providers.sources.snapshots import Snapshots
from fleetctl.retention import logs
from fleetctl.retention.survey import Found, survey
from fleetctl.stores.read.reader import Reader
from fleetctl.wiring.plugins import caches_of

log = logging.getLogger("fleetctl.retention")

# So many files go in one call of a thread: between two, somebody else may have it.
LOGS_PER_STEP_MAX = 2000
# Who upgrades finds out within a week that there are limits now, and says others.
GRACE_S = 7 * DAY_S
NEW_S = 3600.0  # a store whose first object is no older has nothing from before
# The sorts whose things are files alone, which go without a word of the store.
FILES = (Sort.LOGS, Sort.ENVIRONMENTS, Sort.REPOSITORIES)


class Cleaner:
    """home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._home, self.copies = home, Snapshots(home)

    def begins_s(self, now_s: float) -> float:
        """From when on the default limits hold without a word, in seconds since the epoch: at once
        for a store that is new, days after the first look for what was there before.
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

    def survey(self, limits: Mapping[Sort, Limits], now_s: float) -> dict[Sort, Found]:
        return survey(self._home, limits, now_s)

    def steps(self, sort: Sort, items: Sequence[Item]) -> list[Sequence[Item]]:
        """Of one of FILES: what `let_go` is to be called with, one after the other."""
        most = LOGS_PER_STEP_MAX if sort is Sort.LOGS else 1
        return [items[at : at + most] for at in range(0, len(items), most)]

    def let_go(self, sort: Sort, items: Sequence[Item]) -> int:
        """How many went. What the disk refuses stays for the next time, and is told in our log."""
        try:
            if sort is Sort.LOGS:
                return logs.let_go(self._home, [it.key for it in items])
            caches = caches_of(self._home).values()
            wanted = [Cached(sort, it.key, it.name, it.bytes, it.used_s) for it in items]
            return sum(any(one.let_go(it) for one in caches) for it in wanted)
        except OSError as error:
            log.warning("not let go of", extra={"sort": sort.value, "error": str(error)})
            return 0

    def hide_sources(self, items: Sequence[Item]) -> None:
        """Nobody finds these copies from now on; the engine's sweep takes them away. One that an
        apply kept anew since it was listed stays.
        """
        for it in items:
            self.copies.hide(it.key, unused_since_s=it.used_s)
