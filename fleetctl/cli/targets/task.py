"""The task that `exec`, `cp` and `port-forward` go into, as the store knows it."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.command.values import count
from fleetctl.cli.targets.accounts import account_named
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import and_more, did_you_mean, safe
from fleetctl.controllers.model import LIVE_STATES, RunState
from fleetctl.guest.nodes.names import node_name
from fleetctl.guest.task.parameters import long_variables, parameter_texts
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds.registry import KINDS, unit_called
from fleetctl.views.kinds import Target
from fleetctl.views.objects import View, mapping, parsed
from fleetctl.views.reading import Reading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.exec import Entering, Place
    from fleetctl.stores.read.rows import RunRow
    from fleetctl.views.tasks import Task

INDEXES_SHOWN_MAX = 10
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Beside(NamedTuple):
    """A provider's way in, and where to."""

    entering: Entering
    place: Place
    name: str  # `task 3 of job/x`, for people


class Which(NamedTuple):
    """Which task a person means, by one of the two; neither: the only one that runs. node: which of
    its machines.
    """

    index: int | None = None  # type: ignore[assignment]  # hides tuple.index
    stage: str = ""
    node: int = 0


def add_which(parser: Parser) -> None:
    parser.add_argument(
        "--index", type=count, metavar="N", help="which task; not needed while one alone runs"
    )
    parser.add_argument("--stage", metavar="NAME", help="which stage, by its name")
    parser.add_argument(
        "--node", type=count, default=0, metavar="N", help="which of several nodes; default 0"
    )


def which_of(args: Namespace) -> Which:
    """Raises UsageError."""
    if args.index is not None and args.stage:
        raise UsageError("`--index` and `--stage` are two ways to say which; leave one out")
    return Which(args.index, args.stage or "", args.node)


def beside(wanted: Target, which: Which, home: Path) -> Beside:
    """Raises NotFound, UsageError when it must be said which task, and Refused when none runs."""
    with open_reading(home) as reading:
        seen = must_find(wanted, reading)
        if not seen.kind.runs:
            raise UsageError(f"a {seen.kind.name} runs nothing that could be entered")
        index = index_called(seen, which.stage, reading) if which.stage else which.index
        task = _task(seen, index, reading)
        require_node(seen, task, which.node)
        template = template_of(seen, task.run)
        secrets = _secrets(template, seen.resource.namespace, reading)
    run = task.run
    of_function = template.get("function") or template.get("runtime") == "function"
    if of_function and not runs_here(run.provider):
        raise Refused(
            f"{safe(seen.key)} runs in the containers of a function, which cannot be entered",
            hint="`runtime: sandbox` gives each task a sandbox of its own",
        )
    from fleetctl.providers.contract.exec import Place
    from fleetctl.wiring.accounts import entering

    source = mapping(template.get("source"))
    place = Place(
        run=node_name(run.name, which.node),
        sandbox=node_name(run.sandbox, which.node),
        handle=run.handle,
        env=_env(template, task),
        directory=str(source.get("mountPath") or ""),
        secrets=secrets,
    )
    way_in = entering(account_named(run.provider, home), home)
    return Beside(way_in, place, f"{called(seen, run)} of {safe(seen.key)}")


def require_node(seen: View, task: Task, node: int) -> None:
    """Raises NotFound where the object has no such node: as its nodes stand, or, before they are
    made, as its spec says; of stages that differ, by the one with the most.
    """
    nodes = seen.status.get("nodes")
    count = len(nodes) if isinstance(nodes, list) else _nodes_max(seen)
    if node >= count:
        raise NotFound(
            f"{called(seen, task.run)} of {safe(seen.key)} has no node {node}",
            hint=f"it has nodes 0 to {count - 1}" if count > 1 else "it has one node, 0",
        )


def _nodes_max(seen: View) -> int:
    """The most that its spec asks for; 1 where it does not say."""
    spec = seen.spec()
    stages = spec.get("stages")
    parts = [spec, *(mapping(it) for it in (stages if isinstance(stages, list) else ()))]
    asked = [mapping(it.get("nodes")).get("max", it.get("nodes")) for it in parts]
    return max([1, *(it for it in asked if isinstance(it, int))])


def called(seen: View, run: RunRow) -> str:
    """A task for people: `task 3`, `stage train`."""
    return safe(unit_called(seen.kind.name, run.index, run.params))


def index_called(seen: View, name: str, reading: Reading) -> int:
    """The index of a unit that has a name, and has begun. Raises NotFound and UsageError."""
    unit = seen.kind.unit
    if not seen.kind.named:
        raise UsageError(f"a {unit} of {safe(seen.key)} has a number, and no name; use `--index`")
    begun = {str(parsed(task.run.params).get(unit)): task.run.index for task in reading.tasks(seen)}
    if name not in begun:
        near = did_you_mean(name, begun)
        message = f"{safe(seen.key)} has started no {unit} `{safe(name)}`"
        raise NotFound(message, hint=near or f"fleetctl get tasks {safe(seen.key)}")
    return begun[name]


def _task(seen: View, index: int | None, reading: Reading) -> Task:
    if index is not None:
        task = reading.task(seen, index)
        if task is None:
            raise NotFound(f"{safe(seen.key)} has started no {seen.kind.unit} {index}")
        if task.run.state == RunState.STARTING:
            raise _not_begun(f"{called(seen, task.run)} of {safe(seen.key)}", seen)
        if task.run.state not in LIVE_STATES:
            from fleetctl.providers.contract.exec import ENDED_HINT

            raise Refused(
                f"{called(seen, task.run)} of {safe(seen.key)} has ended ({task.state.lower()})",
                hint=ENDED_HINT,
            )
        return task
    tasks = list(reading.tasks(seen))
    living = [task for task in tasks if task.run.state in LIVE_STATES]
    live = [task for task in living if task.run.state != RunState.STARTING]
    if living and not live:
        raise _not_begun(safe(seen.key), seen)
    if not live:
        raise Refused(
            f"no {seen.kind.unit} of {safe(seen.key)} runs now",
            hint=f"fleetctl get tasks {safe(seen.key)}",
        )
    if len(live) > 1:
        which = and_more([str(task.run.index) for task in live], most=INDEXES_SHOWN_MAX)
        raise UsageError(
            f"{len(live)} {seen.kind.unit}s of {safe(seen.key)} run: {which}",
            hint=f"say which: `--index {live[0].run.index}`",
        )
    return live[0]


def _not_begun(what: str, seen: View) -> Refused:
    """Its sandbox is being made, or waits for one: there is nothing to enter."""
    return Refused(
        f"{what} has not begun yet",
        hint=f"`fleetctl describe {safe(seen.key)}` says what it waits for",
    )


def template_of(seen: View, run: RunRow) -> Mapping[str, object]:
    """What the task runs, with what its stage says in place of it."""
    spec = seen.spec()
    template = mapping(spec.get("template"))
    stages, name = spec.get("stages"), parsed(run.params).get("stage")
    for stage in map(mapping, stages if isinstance(stages, list) else ()):
        if stage.get("name") == name and seen.kind.named:
            env = {**mapping(template.get("env")), **mapping(stage.get("env"))}
            return {**template, **stage, "env": env}
    return template


def _secrets(template: Mapping[str, object], namespace: str, reading: Reading) -> tuple[str, ...]:
    """The variables that the task's secrets give it, by the objects as they are now."""
    named = template.get("secrets")
    found: dict[str, None] = {}
    for name in named if isinstance(named, list) else ():
        seen = reading.find(Target(KINDS["Secret"], str(name), namespace))
        spec = seen.spec() if seen is not None else {}
        from_env = spec.get("fromEnv")
        variables = [
            *(from_env if isinstance(from_env, list) else ()),
            *mapping(spec.get("fromFile")),
        ]
        found.update(dict.fromkeys(str(it) for it in variables if _VARIABLE.fullmatch(str(it))))
    return tuple(found)


def _env(template: Mapping[str, object], task: Task) -> dict[str, str]:
    """What the task's own variables are, save secrets: those never enter the store."""
    texts = parameter_texts(parsed(task.run.params))
    for name in long_variables(texts):  # the task has them as files
        del texts[name]
    return {
        **{name: str(value) for name, value in mapping(template.get("env")).items()},
        "FLEETCTL_RUN": task.run.name,
        "FLEETCTL_ATTEMPT": str(task.run.attempt),
        "JOB_COMPLETION_INDEX": str(task.run.index),
        **texts,
    }
