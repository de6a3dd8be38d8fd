"""Chooses the runs that `fleetctl logs` prints, and their format."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fleetctl.cli.command.values import TaskIndexes
from fleetctl.cli.follow.logs_stream import LogStream, NodeStreams, TimestampOptions
from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import escape_line, format_duration
from fleetctl.specs.kinds.registry import unit_called
from fleetctl.views.objects import View, parse_document
from fleetctl.views.store_reading import StoreReading
from fleetctl.views.tasks import ENDED_BADLY, Task, build_attempt


class LogSelection(NamedTuple):
    """The flags of `fleetctl logs`."""

    indexes: TaskIndexes | None
    failed: bool
    attempt: int | None
    tail: int | None
    prefixed: bool
    previous: bool = False
    dating: TimestampOptions = TimestampOptions()
    several: bool = False  # lines name their task
    stage: str = ""
    node: int | None = None  # None = all existing ones
    service: str = ""  # whose output is printed, instead of the work's
    grep: re.Pattern[str] | None = None  # lines must contain this

    @property
    def single(self) -> int | None:
        """Returns the one requested index, which saves reading the others."""
        ranges = self.indexes.ranges if self.indexes is not None else ()
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return ranges[0][0]
        return None

    def tasks(
        self,
        seen: View,
        reading: StoreReading,
        *,
        every: bool = False,
    ) -> Iterator[Task]:
        """Yields by index the newest attempt of each task, or with `every` all attempts."""
        found: Iterator[Task]
        if self.previous:
            newest = reading.tasks(seen, index=self.single)
            found = (build_attempt(task.older[-1]) for task in newest if task.older)
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
        if self.stage and parse_document(task.run.params).get("stage") != self.stage:
            return False
        since_s = self.dating.since_s
        ended_at_s = task.run.ended_at_s
        if since_s is not None and ended_at_s is not None and ended_at_s < since_s:
            return False
        return not self.failed or task.run.state in ENDED_BADLY

    def stream(
        self,
        state_dir: Path,
        seen: View,
        task: Task,
        screen: Screen,
        *,
        uid: str = "",
    ) -> NodeStreams:
        """Returns the stream of a task. uid: of another object, if the run is that object's."""
        label = f"{escape_line(seen.key)} " if self.several else ""
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
                label=escape_line(label),
                node=None if alone else node,
                service=self.service,
                grep=self.grep,
            )

        return NodeStreams(stream, only=self.node)


def pick_of(
    args: Namespace,
    now_s: float,
    *,
    several: bool,
) -> LogSelection:
    since_s = None if args.since is None else args.since(now_s)
    return LogSelection(
        args.index,
        args.failed,
        args.attempt,
        args.tail,
        not args.no_prefix,
        args.previous,
        TimestampOptions(args.timestamps, since_s),
        several,
        args.stage or "",
        args.node,
        args.service or "",
        args.grep,
    )


def describe_ending(task: Task) -> str:
    """`succeeded after 3m02s`, `failed after 41s: OOMKilled`."""
    run = task.run
    spent = ""
    if run.started_at_s is not None and run.ended_at_s is not None:
        spent = f" after {format_duration(run.ended_at_s - run.started_at_s)}"
    reason = f": {run.reason}" if run.reason not in ("", "Completed") else ""
    return f"{run.state.lower()}{spent}{escape_line(reason)}"
