"""`fleetctl cp`: copies files into a volume or a task, and out of it, as `docker cp` does."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import PurePosixPath

from fleetctl.cli.access.cp_volume import copy_from_volume, copy_to_volume
from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.task import parse_volume_path
from fleetctl.common.errors import UsageError

PAGE = """\
PATH volume/NAME:/path | volume/NAME:/path PATH | PATH job/NAME:INDEX/path | ...

Copy files and whole directories into a volume or a task, or out of it.
A directory goes into a destination that is there, under its own name, and becomes
one that is not; `/.` after it means what is in it. Files are written over, each
seen whole or not at all. Links to files are copied as files. job/x:3/a is below
where task 3 began, job/x:3//tmp/a is absolute; without an index, the only task.
A task that has ended left the outputs that its template names and what it wrote to
volumes, which are copied from there, and on `local` all its files if it failed.

examples:
  fleetctl cp data.jsonl volume/corpus:/data.jsonl
  fleetctl cp ./data/. volume/corpus:/data
  fleetctl cp volume/ckpt:/run-1 .
  fleetctl cp job/chunks:3/out.json .
  fleetctl cp job/chunks:3//data/out.json .

exit codes:
  0 copied, 1 failed, 2 wrong usage, 3 refused, 4 no such volume, task or path
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "source", metavar="FROM", help="a local path, volume/NAME:/path or job/NAME:INDEX/path"
    )
    made.add_argument("target", metavar="TO", help="the same")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if (code := _of_a_task(args, screen)) is not None:
        return code
    source, target = (parse_volume_path(it, args.namespace) for it in (args.source, args.target))
    if source is not None and target is not None:
        name = PurePosixPath(args.source.partition(":")[2]).name or "files"
        raise UsageError(
            "`fleetctl cp` copies from one volume to another by way of this machine",
            hint=f"fleetctl cp {args.source} ./{name} && fleetctl cp ./{name} {args.target}",
        )
    if source is None and target is None:
        raise UsageError(
            "`fleetctl cp` copies between this machine and a volume or a task",
            hint="write one of the two as volume/NAME:/path; a local path may begin with ./",
        )
    if target is not None:
        return asyncio.run(copy_to_volume(args.source, target, screen))
    assert source is not None
    return asyncio.run(copy_from_volume(source, args.target, screen))


def _of_a_task(args: Namespace, screen: Screen) -> int | None:
    """Returns the exit code when one side is in a task; otherwise None."""
    from fleetctl.cli.access.cp_run import copy_from_run, copy_to_run, parse_run_path

    source, target = (parse_run_path(it, args.namespace) for it in (args.source, args.target))
    if target is not None and source is None and parse_volume_path(args.source) is None:
        return asyncio.run(copy_to_run(args.source, target, screen))
    if source is not None and target is None and parse_volume_path(args.target) is None:
        return asyncio.run(copy_from_run(source, args.target, screen))
    return None
