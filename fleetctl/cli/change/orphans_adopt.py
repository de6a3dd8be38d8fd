"""`fleetctl orphans --adopt`: sandboxes become runs of objects. The controller does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.output.render import Screen
from fleetctl.common.text import safe
from fleetctl.daemon.reach import spawn
from fleetctl.daemon.reach.client import results_of

if TYPE_CHECKING:
    from fleetctl.cli.change.orphans_find import FoundOrphan

REFUSED = 3
_NOT_ADOPTED = {
    "volume": ("nothing of it runs", "declare it: `kind: Volume` with this name"),
    "helper": ("it shows a volume to a command", "it ends by itself when that is over"),
    "function": ("nobody here calls it", "apply what calls it, and it is used again"),
}


def adopt(found: Sequence[FoundOrphan], into: str, screen: Screen, state_dir: Path) -> int:
    """The exit code. Each that cannot be adopted says why."""
    if not found:
        screen.talk("no orphans to adopt")
        return 0
    refused = False
    for one in found:
        if (sort := _sort(one)) in _NOT_ADOPTED:
            why, hint = _NOT_ADOPTED[sort]
            screen.error(f"{one.shown} cannot be adopted: {why}", hint=hint)
            refused = True
    boxes = [one for one in found if _sort(one) not in _NOT_ADOPTED]
    message = {"verb": "adopt", "sandboxes": [_told_of(one) for one in boxes], "into": into}
    by_run = {one.orphan.run: one for one in boxes}
    for result in results_of(spawn.demand(state_dir, message)) if boxes else ():
        refused |= not _adopted(by_run[str(result.get("run"))], result, screen)
    return REFUSED if refused else 0


def _sort(listed: FoundOrphan) -> str:
    """Its kind; `helper` for a sandbox that was made for no object that runs."""
    orphan = listed.orphan
    return "helper" if orphan.job.startswith("volume/") else orphan.kind


def _told_of(listed: FoundOrphan) -> dict[str, object]:
    orphan = listed.orphan
    return {
        "provider": orphan.provider,
        "id": orphan.handle,
        "run": orphan.run,
        "job": orphan.job,
        "index": orphan.index,
        "uid": orphan.uid,
        "work": orphan.work,
        "store": orphan.store,
        "createdAt": orphan.created_at_s,
    }


def _adopted(listed: FoundOrphan, result: Mapping[str, object], screen: Screen) -> bool:
    why, hint = str(result.get("why") or ""), str(result.get("hint") or "")
    if why:
        screen.error(f"{listed.shown} cannot be adopted: {safe(why)}", hint=hint)
        return False
    made = ", which was made for it" if result.get("made") else ""
    key = safe(str(result.get("key")))
    screen.data(f"{listed.shown} adopted: index {result.get('index')} of {key}{made}")
    return True
