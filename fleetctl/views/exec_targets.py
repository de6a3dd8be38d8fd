"""The targets of a command beside a task: its sandbox, its variables, and the providers that a user
may name: built-in ones, and those of Provider objects.

Loads no model and no SDK.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import NotFound
from fleetctl.common.text import did_you_mean, escape_line
from fleetctl.guest.nodes.gang import node_name
from fleetctl.guest.task.parameters import long_variables, parameter_texts
from fleetctl.providers.contract.account import Account, account_of, built_in
from fleetctl.specs.builtin import BUILT_IN, row_of
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views.kinds import Target
from fleetctl.views.objects import View, as_mapping, parse_document
from fleetctl.views.store_reading import StoreReading, open_reading
from fleetctl.views.tasks import FileNames

if TYPE_CHECKING:
    from fleetctl.providers.contract.sandbox_access import ExecTarget
    from fleetctl.stores.read.rows import RunRow
    from fleetctl.views.tasks import Task


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def make_exec_target(
    seen: View,
    task: Task,
    node: int,
    reading: StoreReading,
) -> ExecTarget:
    """Returns what a command beside the task is given."""
    from fleetctl.providers.contract.sandbox_access import ExecTarget

    run = task.run
    template = template_of(seen, run)
    source = as_mapping(template.get("source"))
    return ExecTarget(
        run=node_name(run.name, node),
        sandbox=node_name(run.sandbox, node),
        handle=run.handle,
        env=_build_env(template, task, seen),
        directory=str(source.get("mountPath") or ""),
        secrets=_list_secret_variables(template, seen.resource.namespace, reading),
    )


def describe_task(seen: View, run: RunRow) -> str:
    """Returns the name of a task in messages: `task 3`, `stage train`."""
    return escape_line(seen.name_unit(run))


def template_of(seen: View, run: RunRow) -> Mapping[str, object]:
    """Returns the template of the task, with its stage's own fields replaced."""
    spec = seen.spec()
    template = as_mapping(spec.get("template"))
    stages = spec.get("groups") or spec.get("stages")
    name = parse_document(run.params).get("stage")
    for stage in map(as_mapping, stages if isinstance(stages, list) else ()):
        if stage.get("name") == name and seen.kind.named:
            env = {**as_mapping(template.get("env")), **as_mapping(stage.get("env"))}
            return {**template, **stage, "env": env}
    return template


def _list_secret_variables(
    template: Mapping[str, object],
    namespace: str,
    reading: StoreReading,
) -> tuple[str, ...]:
    """Returns the variables that the present Secret objects of the task give it."""
    named = template.get("secrets")
    found: dict[str, None] = {}
    for name in named if isinstance(named, list) else ():
        seen = reading.find(Target(KINDS["Secret"], str(name), namespace))
        spec = seen.spec() if seen is not None else {}
        from_env = spec.get("fromEnv")
        variables = [
            *(from_env if isinstance(from_env, list) else ()),
            *as_mapping(spec.get("fromFile")),
        ]
        found.update(dict.fromkeys(str(it) for it in variables if _VARIABLE.fullmatch(str(it))))
    return tuple(found)


def _build_env(
    template: Mapping[str, object],
    task: Task,
    seen: View,
) -> dict[str, str]:
    """Returns the task's own variables, without secrets: those never enter the store."""
    files = ("TASK_FILE", "TASK_FILES") if FileNames.of(seen) is not None else ()
    texts = parameter_texts(parse_document(task.run.params))
    for name in (*long_variables(texts), *files):  # the task has them as files, or its own paths
        texts.pop(name, None)
    return {
        **{name: str(value) for name, value in as_mapping(template.get("env")).items()},
        "FLEETCTL_RUN": task.run.name,
        "FLEETCTL_ATTEMPT": str(task.run.attempt),
        "JOB_COMPLETION_INDEX": str(task.run.index),
        **texts,
    }


def load_accounts(reading: StoreReading, *, unusable: bool = False) -> dict[str, Account]:
    """Returns accounts by name, built-in ones first. unusable: also those whose type no package
    provides here.
    """
    found = {name: built_in(name) for name in BUILT_IN}
    for seen in reading.views(KINDS["Provider"], specs=True):
        account = account_of(seen.resource.name, seen.spec())
        if account.sort in BUILT_IN or unusable or row_of(account.sort) is not None:
            found[account.name] = account
    return found


def account_named(name: str, home: Path) -> Account:
    """Returns the account. Raises NotFound, with the nearest name."""
    with open_reading(home) as reading:
        known = load_accounts(reading)
    if name not in known:
        listed = ", ".join(f"`{escape_line(it)}`" for it in known)
        raise NotFound(
            f"there is no provider `{escape_line(name)}`",
            hint=did_you_mean(name, list(known)) or f"there is {listed}",
        )
    return known[name]
