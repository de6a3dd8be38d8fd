"""Copying between this machine and a volume: `fleetctl cp volume/data:/x .`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.volume import VolumePath, files_of
from fleetctl.common.deadline import RepeatTimer
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, count_noun, escape_line
from fleetctl.tracking.written_files import note_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.providers.contract.volume_files import FileCopy

DRAW_EVERY_S = 0.1


async def copy_to_volume(
    source: str,
    target: VolumePath,
    screen: Screen,
) -> int:
    from fleetctl.cli.access.cp_rules import plan_upload

    files = files_of(target, find_state_dir())
    plan = await plan_upload(files, source, target)
    for skipped in plan.skipped:
        screen.warn(f"{escape_line(skipped)} is left out")
    with _CopyProgress(plan.copies, screen) as progress:
        await files.put(target.name, plan.copies, tell=progress.tell)
    screen.data(_describe_copied(plan.copies, target.shown))
    return 0


async def copy_from_volume(
    source: VolumePath,
    target: str,
    screen: Screen,
) -> int:
    """Copies from a volume to this machine."""
    from fleetctl.cli.access.cp_rules import plan_download

    files = files_of(source, find_state_dir())
    plan = await plan_download(files, source, target)
    for one in plan.copies:
        one.local.parent.mkdir(parents=True, exist_ok=True)
    if plan.directory is not None:
        plan.directory.mkdir(exist_ok=True)
    with _CopyProgress(plan.copies, screen) as progress:
        await files.get(source.name, plan.copies, tell=progress.tell)
    note_written(one.local for one in plan.copies)
    screen.data(_describe_copied(plan.copies, str(Path(target))))
    return 0


def _describe_copied(copies: Sequence[FileCopy], to: str) -> str:
    total = byte_size(sum(one.size for one in copies))
    return f"copied {count_noun(len(copies), 'file')} ({total}) to {escape_line(to)}"


class _CopyProgress:
    """One line that is redrawn on a terminal; without a terminal there is no output."""

    def __init__(self, copies: Sequence[FileCopy], screen: Screen) -> None:
        self._total = sum(one.size for one in copies)
        self._done = 0
        self._screen = screen
        self._turn = RepeatTimer(DRAW_EVERY_S, first_s=DRAW_EVERY_S)

    def __enter__(self) -> _CopyProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self._screen.close_line()

    def tell(self, count: int) -> None:
        self._done += count
        if self._screen.talk_is_terminal and self._turn.due():
            percent = 100 * self._done // max(1, self._total)
            done = byte_size(self._done)
            total = byte_size(self._total)
            self._screen.redraw(f"{done} of {total} ({percent}%)")
