"""Which runs `fleetctl logs` was asked for, and how it shows them."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fleetctl.cli.command.values import Indexes
from fleetctl.cli.follow.logs_stream import Dating, LogStream, NodeStreams
from fleetctl.cli.output.render import Screen
from fleetctl.common.text import duration, safe
from fleetctl.specs.kinds.registry import unit_called
from fleetctl.views.objects import View, parsed
from fleetctl.views.reading import Reading
from fleetctl.views.tasks import ENDED_BADLY, Task, attempt


class Pick(NamedTuple):
    """The flags of one command."""

    indexes: Indexes | None
    failed: bool
    attempt: int | None
    tail: int | None
    prefixed: bool
    previous: bool = False
    dating: Dating = Dating()
    several: bool = False  # lines say whose they are
    stage: str = ""
    node: int | None = None  # None = all that there are
    service: str = ""  # whose output, in place of the work's
    grep: re.Pattern[str] | None = None  # what lines must have

    @property
    def single(self) -> int | None:
        """The one index asked for, which saves reading the others."""
        ranges = self.indexes.ranges if self.indexes is not None else ()
        return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None

    def tasks(self, seen: View, reading: Reading, *, every: bool = False) -> Iterator[Task]:
        """By index: the newest attempt of each task, or with `every` all attempts."""
        found: Iterator[Task]
        if self.previous:
            newest = reading.tasks(seen, index=self.single)
            found = (attempt(task.older[-1]) for task in newest if task.older)
        elif self.attempt is None and not every:
            found = reading.tasks(seen, index=self.single)
        else:
            found = reading.attempts(seen, index=self.single)
        return (task for task in found if self._wants(task))

    def _wants(self, task: Task) -> bool:
        if self.attempt is not None and task.run.attempt != self.attempt:
            return False
        if self.indexes is not None and task.run.index not in self.indexes:
            return False
        if self.stage and parsed(task.run.params).get("stage") != self.stage:
            return False
        since_s, ended_at_s = self.dating.since_s, task.run.ended_at_s
        if since_s is not None and ended_at_s is not None and ended_at_s < since_s:
            return False
        return not self.failed or task.run.state in ENDED_BADLY

    def stream(
        self, state_dir: Path, seen: View, task: Task, screen: Screen, *, uid: str = ""
    ) -> NodeStreams:
        """uid: of another object, whose run it is."""
        label = f"{safe(seen.key)} " if self.several else ""
        label += f"{unit_called(seen.kind.name, task.run.index, task.run.params).split(' ')[1]}"

        def stream(node: int, *, alone: bool) -> LogStream:
            return LogStream(
                state_dir,
                uid or seen.resource.uid,
                task.run,
                screen,
                tail=self.tail,
                prefixed=self.prefixed,
                dating=self.dating,
                label=safe(label),
                node=None if alone else node,
                service=self.service,
                grep=self.grep,
            )

        return NodeStreams(stream, only=self.node)


def pick_of(args: Namespace, now_s: float, *, several: bool) -> Pick:
    since_s = None if args.since is None else args.since(now_s)
    return Pick(
        args.index,
        args.failed,
        args.attempt,
        args.tail,
        not args.no_prefix,
        args.previous,
        Dating(args.timestamps, since_s),
        several,
        args.stage or "",
        args.node,
        args.service or "",
        args.grep,
    )


def ending(task: Task) -> str:
    """`succeeded after 3m02s`, `failed after 41s: OOMKilled`."""
    run = task.run
    spent = ""
    if run.started_at_s is not None and run.ended_at_s is not None:
        spent = f" after {duration(run.ended_at_s - run.started_at_s)}"
    reason = f": {run.reason}" if run.reason not in ("", "Completed") else ""
    return f"{run.state.lower()}{spent}{safe(reason)}"
