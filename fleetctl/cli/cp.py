"""`fleetctl cp`: files into a volume or a task, and out of it, as `docker cp` does it."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.flags import Parser
from fleetctl.cli.pace import Every
from fleetctl.cli.render import Screen
from fleetctl.cli.text import byte_size, plural, safe
from fleetctl.cli.volumeplace import VolumePlace, files_of, volume_place
from fleetctl.errors import UsageError
from fleetctl.home import home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.providers.volumefiles import Copy

DRAW_EVERY_S = 0.1


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="PATH volume/NAME:/path | volume/NAME:/path PATH | PATH job/NAME:INDEX/path | ...",
        summary=(
            "Copy files and whole directories into a volume or a task, or out of it.\n"
            "A directory goes into a destination that is there, under its own name, and becomes\n"
            "one that is not; `/.` after it means what is in it. Files are written over, each\n"
            "seen whole or not at all. Links to files are copied as files. job/x:3/a is below\n"
            "where task 3 began, job/x:3//tmp/a is absolute; without an index, the only task.\n"
            "A task that has ended left what it wrote to volumes, which is copied from there, and\n"
            "on `local` also its own files if it failed."
        ),
        examples=(
            "fleetctl cp data.jsonl volume/corpus:/data.jsonl",
            "fleetctl cp ./data/. volume/corpus:/data",
            "fleetctl cp volume/ckpt:/run-1 .",
            "fleetctl cp job/chunks:3/out.json .",
            "fleetctl cp job/chunks:3//data/out.json .",
        ),
        codes="0 copied, 1 failed, 2 wrong usage, 3 refused, 4 no such volume, task or path",
    )
    made.add_argument(
        "source", metavar="FROM", help="a local path, volume/NAME:/path or job/NAME:INDEX/path"
    )
    made.add_argument("target", metavar="TO", help="the same")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if (code := _of_a_task(args, screen)) is not None:
        return code
    source, target = (volume_place(it, args.namespace) for it in (args.source, args.target))
    if (source is None) == (target is None):
        raise UsageError(
            "`fleetctl cp` copies between this machine and a volume or a task",
            hint="write one of the two as volume/NAME:/path; a local path may begin with ./",
        )
    if target is not None:
        return asyncio.run(_into(args.source, target, screen))
    assert source is not None
    return asyncio.run(out_of(source, args.target, screen))


def _of_a_task(args: Namespace, screen: Screen) -> int | None:
    """The exit code when one side is in a task; None when none is."""
    from fleetctl.cli.runcp import download, run_place, upload

    source, target = (run_place(it, args.namespace) for it in (args.source, args.target))
    if target is not None and source is None and volume_place(args.source) is None:
        return asyncio.run(upload(args.source, target, screen))
    if source is not None and target is None and volume_place(args.target) is None:
        return asyncio.run(download(source, args.target, screen))
    return None


async def _into(source: str, target: VolumePlace, screen: Screen) -> int:
    from fleetctl.cli.copying import uploads

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
    from fleetctl.cli.copying import downloads

    files = files_of(source, home())
    plan = await downloads(files, source, target)
    for one in plan.copies:
        one.local.parent.mkdir(parents=True, exist_ok=True)
    if plan.directory is not None:
        plan.directory.mkdir(exist_ok=True)
    with _Progress(plan.copies, screen) as progress:
        await files.get(source.name, plan.copies, tell=progress.tell)
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
