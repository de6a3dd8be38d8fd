"""The task that `exec`, `cp` and `port-forward` go into, as the store knows it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.targets.accounts import account_named
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import and_more, safe
from fleetctl.controllers.model import LIVE_STATES, RunState
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds import KINDS
from fleetctl.views.kinds import Target
from fleetctl.views.objects import View, mapping, parsed
from fleetctl.views.reading import Reading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.exec import Entering, Place
    from fleetctl.views.tasks import Task

INDEXES_SHOWN_MAX = 10
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Beside(NamedTuple):
    """A provider's way in, and where to."""

    entering: Entering
    place: Place
    name: str  # `task 3 of job/x`, for people


def beside(wanted: Target, index: int | None, home: Path) -> Beside:
    """Raises NotFound, UsageError when it must be said which task, and Refused when none runs."""
    with open_reading(home) as reading:
        seen = must_find(wanted, reading)
        if not seen.kind.runs:
            raise UsageError(f"a {seen.kind.name} runs nothing that could be entered")
        task = _task(seen, index, reading)
        template = template_of(seen, task.run.index)
        secrets = _secrets(template, seen.resource.namespace, reading)
    run = task.run
    of_function = template.get("function") or template.get("runtime") == "function"
    if of_function and not runs_here(run.provider):
        raise Refused(
            f"{safe(seen.key)} runs in the containers of a function, which cannot be entered",
            hint="`runtime: sandbox` gives each task a sandbox of its own",
        )
    from fleetctl.providers.exec import Place
    from fleetctl.wiring.accounts import entering

    source = mapping(template.get("source"))
    place = Place(
        run=run.name,
        sandbox=run.sandbox,
        handle=run.handle,
        env=_env(template, task),
        directory=str(source.get("mountPath") or ""),
        secrets=secrets,
    )
    way_in = entering(account_named(run.provider, home), home)
    return Beside(way_in, place, f"{seen.kind.unit} {run.index} of {safe(seen.key)}")


def _task(seen: View, index: int | None, reading: Reading) -> Task:
    if index is not None:
        task = reading.task(seen, index)
        if task is None:
            raise NotFound(f"{safe(seen.key)} has started no {seen.kind.unit} {index}")
        if task.run.state == RunState.STARTING:
            raise _not_begun(f"{seen.kind.unit} {index} of {safe(seen.key)}", seen)
        if task.run.state not in LIVE_STATES:
            from fleetctl.providers.exec import ENDED_HINT

            raise Refused(
                f"{seen.kind.unit} {index} of {safe(seen.key)} has ended ({task.state.lower()})",
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


def template_of(seen: View, index: int) -> Mapping[str, object]:
    """What the task runs, with what its stage adds."""
    spec = seen.spec()
    template = mapping(spec.get("template"))
    stages = spec.get("stages")
    if isinstance(stages, list) and index < len(stages):
        stage = mapping(stages[index])
        env = {**mapping(template.get("env")), **mapping(stage.get("env"))}
        return {**template, "env": env}
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
    params = parsed(task.run.params)
    return {
        **{name: str(value) for name, value in mapping(template.get("env")).items()},
        "FLEETCTL_RUN": task.run.name,
        "FLEETCTL_ATTEMPT": str(task.run.attempt),
        "JOB_COMPLETION_INDEX": str(task.run.index),
        **{
            "TASK_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper(): (
                value if isinstance(value, str) else json.dumps(value)
            )
            for name, value in params.items()
        },
    }
