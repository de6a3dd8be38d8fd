"""Copying between this machine and a volume: `fleetctl cp volume/data:/x .`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.volume import VolumePlace, files_of
from fleetctl.common.deadline import Every
from fleetctl.common.home import home
from fleetctl.common.text import byte_size, plural, safe
from fleetctl.tracking.written import note_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.providers.contract.volume_files import Copy

DRAW_EVERY_S = 0.1


async def into(source: str, target: VolumePlace, screen: Screen) -> int:
    from fleetctl.cli.access.cp_rules import uploads

    files = files_of(target, home())
    plan = await uploads(files, source, target)
    for skipped in plan.skipped:
        screen.warn(f"{safe(skipped)} is left out")
    with _Progress(plan.copies, screen) as progress:
        await files.put(target.name, plan.copies, tell=progress.tell)
    screen.data(_copied(plan.copies, target.shown))
    return 0


async def out_of(source: VolumePlace, target: str, screen: Screen) -> int:
    """Copy from a volume to this machine."""
    from fleetctl.cli.access.cp_rules import downloads

    files = files_of(source, home())
    plan = await downloads(files, source, target)
    for one in plan.copies:
        one.local.parent.mkdir(parents=True, exist_ok=True)
    if plan.directory is not None:
        plan.directory.mkdir(exist_ok=True)
    with _Progress(plan.copies, screen) as progress:
        await files.get(source.name, plan.copies, tell=progress.tell)
    note_written(one.local for one in plan.copies)
    screen.data(_copied(plan.copies, str(Path(target))))
    return 0


def _copied(copies: Sequence[Copy], to: str) -> str:
    total = byte_size(sum(one.size for one in copies))
    return f"copied {plural(len(copies), 'file')} ({total}) to {safe(to)}"


class _Progress:
    """One line that is redrawn, on a terminal; nothing elsewhere."""

    def __init__(self, copies: Sequence[Copy], screen: Screen) -> None:
        self._total = sum(one.size for one in copies)
        self._done = 0
        self._screen = screen
        self._turn = Every(DRAW_EVERY_S, first_s=DRAW_EVERY_S)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.close_line()

    def tell(self, count: int) -> None:
        self._done += count
        if self._screen.talk_is_terminal and self._turn.due():
            percent = 100 * self._done // max(1, self._total)
            done, total = byte_size(self._done), byte_size(self._total)
            self._screen.redraw(f"{done} of {total} ({percent}%)")
