"""Finds the task, or the path in a volume, that words of a command line name, as the store knows
them.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.command.flags import Parser, parse_count
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.common.text import and_more, did_you_mean, escape_line
from fleetctl.controllers.model import LIVE_STATES, RunState
from fleetctl.specs.builtin import DEFAULT_PROVIDER, runs_here
from fleetctl.specs.kinds.registry import find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, asset_name
from fleetctl.views.exec_targets import account_named, describe_task, make_exec_target, template_of
from fleetctl.views.kinds import Target
from fleetctl.views.objects import View, as_mapping, parse_document
from fleetctl.views.store_reading import StoreReading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.sandbox_access import Entering, ExecTarget
    from fleetctl.providers.contract.volume_files import VolumeFiles
    from fleetctl.stores.read.rows import RunRow
    from fleetctl.views.tasks import Task


INDEXES_SHOWN_MAX = 10


class TaskAccess(NamedTuple):
    """A provider's channel into a sandbox, and the sandbox. name: `task 3 of job/x`, for messages.
    uid, run: of the object, and of the attempt that runs there.
    """

    entering: Entering
    place: ExecTarget
    name: str
    uid: str
    run: RunRow


class TaskChoice(NamedTuple):
    """The requested task, by index or by stage; without either the only one that runs. node: index
    of its machine.
    """

    index: int | None = None  # type: ignore[assignment]  # hides tuple.index
    stage: str = ""
    node: int = 0


def add_which(parser: Parser) -> None:
    parser.add_argument(
        "--index", type=parse_count, metavar="N", help="which task; not needed while one alone runs"
    )
    parser.add_argument(
        "--stage", "--group", metavar="NAME", help="which stage or group, by its name"
    )
    parser.add_argument(
        "--node", type=parse_count, default=0, metavar="N", help="which of several nodes; default 0"
    )


def parse_task_choice(args: Namespace) -> TaskChoice:
    """Reads the flags. Raises UsageError."""
    if args.index is not None and args.stage:
        raise UsageError("`--index` and `--stage` are two ways to say which; leave one out")
    return TaskChoice(args.index, args.stage or "", args.node)


def find_task_access(
    wanted: Target,
    which: TaskChoice,
    home: Path,
) -> TaskAccess:
    """Returns the channel into the task's sandbox. Raises NotFound, UsageError where several tasks
    run and the user named none, and Refused where no task runs."""
    with open_reading(home) as reading:
        seen = must_find(wanted, reading)
        if not seen.kind.runs:
            raise UsageError(f"a {seen.kind.name} runs nothing that could be entered")
        index = index_called(seen, which.stage, reading) if which.stage else which.index
        task = _find_task(seen, index, reading)
        require_node(seen, task, which.node)
        template = template_of(seen, task.run)
        place = make_exec_target(seen, task, which.node, reading)
    run = task.run
    of_function = template.get("function") or template.get("runtime") == "function"
    if of_function and not runs_here(run.provider):
        raise Refused(
            f"{escape_line(seen.key)} runs in the containers of a function, which cannot be "
            f"entered",
            hint="`runtime: sandbox` gives each task a sandbox of its own",
        )
    if (remote := REMOTE.get()) is not None:
        from fleetctl.cli.team.remote_entering import RemoteEntering

        way_in: Entering = RemoteEntering(remote, run.name, which.node)
    else:
        from fleetctl.wiring.account_registry import find_entering

        way_in = find_entering(account_named(run.provider, home), home)
    name = f"{describe_task(seen, run)} of {escape_line(seen.key)}"
    return TaskAccess(
        way_in,
        place,
        name,
        seen.resource.uid,
        run,
    )


def has_ended(found: TaskAccess, home: Path) -> bool:
    """Returns whether the attempt has ended, its object is gone, or the whole state directory."""
    with open_reading(home) as reading:
        seen = reading.by_uid(found.uid)
        task = None if seen is None else reading.task(seen, found.run.index)
    return task is None or task.run.name != found.run.name or task.run.state not in LIVE_STATES


def require_node(
    seen: View,
    task: Task,
    node: int,
) -> None:
    """Raises NotFound where the object has no such node: by its present nodes, or, before they are
    made, by its spec; of stages that differ, by the one with the most.
    """
    nodes = seen.status.get("nodes")
    count = len(nodes) if isinstance(nodes, list) else _nodes_max(seen)
    if node >= count:
        raise NotFound(
            f"{describe_task(seen, task.run)} of {escape_line(seen.key)} has no node {node}",
            hint=f"it has nodes 0 to {count - 1}" if count > 1 else "it has one node, 0",
        )


def _nodes_max(seen: View) -> int:
    """Returns the largest number of nodes in the object's spec, at least 1."""
    spec = seen.spec()
    stages = spec.get("stages")
    parts = [spec, *(as_mapping(it) for it in (stages if isinstance(stages, list) else ()))]
    asked = [as_mapping(it.get("nodes")).get("max", it.get("nodes")) for it in parts]
    return max([1, *(it for it in asked if isinstance(it, int))])


def index_called(
    seen: View,
    name: str,
    reading: StoreReading,
) -> int:
    """Returns the index of a unit that has a name, and has begun. Raises NotFound and
    UsageError."""
    unit = seen.kind.unit
    if not seen.kind.named:
        raise UsageError(
            f"a {unit} of {escape_line(seen.key)} has a number, and no name; use `--index`"
        )
    begun = {
        str(parse_document(task.run.params).get(unit)): task.run.index
        for task in reading.tasks(seen)
    }
    if name not in begun:
        near = did_you_mean(name, begun)
        message = f"{escape_line(seen.key)} has started no {unit} `{escape_line(name)}`"
        raise NotFound(message, hint=near or f"fleetctl get tasks {escape_line(seen.key)}")
    return begun[name]


def _find_task(
    seen: View,
    index: int | None,
    reading: StoreReading,
) -> Task:
    if index is not None:
        task = reading.task(seen, index)
        if task is None:
            raise NotFound(f"{escape_line(seen.key)} has started no {seen.kind.unit} {index}")
        if task.run.state == RunState.STARTING:
            raise _not_begun(f"{describe_task(seen, task.run)} of {escape_line(seen.key)}", seen)
        if task.run.state not in LIVE_STATES:
            from fleetctl.providers.contract.sandbox_access import ENDED_HINT

            raise Refused(
                f"{describe_task(seen, task.run)} of {escape_line(seen.key)} has ended "
                f"({task.state.lower()})",
                hint=ENDED_HINT,
            )
        return task
    tasks = list(reading.tasks(seen))
    living = [task for task in tasks if task.run.state in LIVE_STATES]
    live = [task for task in living if task.run.state != RunState.STARTING]
    if living and not live:
        raise _not_begun(escape_line(seen.key), seen)
    if not live:
        raise Refused(
            f"no {seen.kind.unit} of {escape_line(seen.key)} runs now",
            hint=f"fleetctl get tasks {escape_line(seen.key)}",
        )
    if len(live) > 1:
        which = and_more([str(task.run.index) for task in live], most=INDEXES_SHOWN_MAX)
        raise UsageError(
            f"{len(live)} {seen.kind.unit}s of {escape_line(seen.key)} run: {which}",
            hint=f"say which: `--index {live[0].run.index}`",
        )
    return live[0]


def _not_begun(what: str, seen: View) -> Refused:
    """Returns the error for a sandbox that is being made, or waits for capacity: there is no
    sandbox to enter."""
    return Refused(
        f"{what} has not begun yet",
        hint=f"`fleetctl describe {escape_line(seen.key)}` shows what it waits for",
    )


class VolumePath(NamedTuple):
    """A path in a volume. `path` as it was written: a `/` or `/.` at its end has a meaning for
    `cp`."""

    target: Target
    path: str

    @property
    def name(self) -> str:
        """Returns its name at its provider."""
        return asset_name(self.target.name, self.target.namespace)

    @property
    def shown(self) -> str:
        return f"volume/{self.target.name}:/{self.path.lstrip('/')}"


def parse_volume_path(text: str, namespace: str = DEFAULT_NAMESPACE) -> VolumePath | None:
    """Reads `volume/NAME` or `volume/NAME:/path`; None for text that names no volume, such as a
    local path."""
    word, slash, rest = text.partition("/")
    kind = find_kind(word) if slash else None
    name, _, path = rest.partition(":")
    if kind is None or kind.name != "Volume" or not name or "/" in name:
        return None
    return VolumePath(Target(kind, name, namespace), path)


def require_volume_path(text: str, namespace: str) -> VolumePath:
    """Raises UsageError for text that names no volume."""
    place = parse_volume_path(text, namespace)
    if place is None:
        raise UsageError(
            f"`{text}` is not a path in a volume", hint="write it as volume/NAME:/path"
        )
    return place


def files_of(place: VolumePath, home: Path) -> VolumeFiles:
    """Returns the files of the volume's provider, by the object in the store. Raises NotFound."""
    with open_reading(home) as reading:
        provider = must_find(place.target, reading).spec().get("provider") or DEFAULT_PROVIDER
    if (remote := REMOTE.get()) is not None:
        from fleetctl.cli.team.remote_files import RemoteVolumeFiles
        from fleetctl.cli.team.server_fleet import ServerFleet

        assert isinstance(remote, ServerFleet)
        return RemoteVolumeFiles(remote.client, place.target.name, place.target.namespace)
    from fleetctl.wiring.account_registry import volume_files

    return volume_files(account_named(str(provider), home), home)
