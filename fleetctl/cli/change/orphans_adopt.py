"""`fleetctl orphans --adopt`: sandboxes become runs of objects. The controller does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import escape_line
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of

if TYPE_CHECKING:
    from fleetctl.cli.change.orphans_find import FoundOrphan

REFUSED = 3
_NOT_ADOPTED = {
    "volume": ("nothing of it runs", "declare it: `kind: Volume` with this name"),
    "helper": ("it shows a volume to a command", "it ends by itself after that"),
    "function": ("no object of this store calls it", "apply what calls it, and it is used again"),
}


def adopt_orphans(
    found: Sequence[FoundOrphan],
    into: str,
    screen: Screen,
    state_dir: Path,
) -> int:
    """Returns the exit code. Prints a reason for each that cannot be adopted."""
    if not found:
        screen.talk("no orphans to adopt")
        return 0
    refused = False
    for one in found:
        if (sort := _orphan_type(one)) in _NOT_ADOPTED:
            why, hint = _NOT_ADOPTED[sort]
            screen.error(f"{one.shown} cannot be adopted: {why}", hint=hint)
            refused = True
    boxes = [one for one in found if _orphan_type(one) not in _NOT_ADOPTED]
    message = {
        "verb": "adopt",
        "sandboxes": [_describe_sandbox(one) for one in boxes],
        "into": into,
    }
    by_run = {one.orphan.run: one for one in boxes}
    for result in results_of(spawn.require_reply(state_dir, message)) if boxes else ():
        refused |= not _report_adoption(by_run[str(result.get("run"))], result, screen)
    if refused:
        return REFUSED
    return 0


def _orphan_type(listed: FoundOrphan) -> str:
    """Returns its kind; `helper` for a sandbox that was made for no object that runs."""
    orphan = listed.orphan
    if orphan.job.startswith("volume/"):
        return "helper"
    return orphan.kind


def _describe_sandbox(listed: FoundOrphan) -> dict[str, object]:
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


def _report_adoption(
    listed: FoundOrphan,
    result: Mapping[str, object],
    screen: Screen,
) -> bool:
    why = str(result.get("why") or "")
    hint = str(result.get("hint") or "")
    if why:
        screen.error(f"{listed.shown} cannot be adopted: {escape_line(why)}", hint=hint)
        return False
    made = ", which was made for it" if result.get("made") else ""
    key = escape_line(str(result.get("key")))
    screen.data(f"{listed.shown} adopted: index {result.get('index')} of {key}{made}")
    return True
