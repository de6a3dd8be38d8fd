"""Environment variables that every task is given: a manifest's own value would never be seen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.manifest.checks import works
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.specs.blocks.common import Execution
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.values.scalars import Spec

# As the guests set them; each is said in `fleetctl explain` and in the README.
_OURS = re.compile(
    r"FLEETCTL_(?:PARAMS|RESULT|METRICS|RUN|ATTEMPT|STAGE_RESULTS|(?:VOLUME|PORT)(?:_.*)?)"
)
INDEX = "JOB_COMPLETION_INDEX"
# Provider `local` has no container: there each task has a home and a place for devices of its own.
OF_THIS_MACHINE = frozenset({"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES"})
NOT_SEEN = "and this value would never be seen"


def wrong(spec: Spec) -> Iterator[Finding]:
    if isinstance(spec, SecretSpec):
        yield from _of_a_secret(spec)
        return
    yield from _of_services(spec)
    environments = list(works.environments(spec))
    if not environments:
        return
    here = _may_run_here(spec)
    given = {variable(name): name for _, name in works.parameters(spec)}
    for at, variables in environments:
        for name in variables:
            path: Path = (*at, name)
            if name == INDEX or _OURS.fullmatch(name):
                message = f" is set for every task by fleetctl itself, {NOT_SEEN}"
                yield Finding(
                    path, path, message, "leave it out, or name it otherwise", at_key=True
                )
            elif name in OF_THIS_MACHINE and here:
                message = f" is set for every task by provider `local`, {NOT_SEEN}"
                hint = f"leave it out, or say `export {name}=...` at the start of `script`"
                yield Finding(path, path, message, hint, at_key=True)
            elif name in given:
                message = f" is the variable of the parameter `{given[name]}`, {NOT_SEEN}"
                yield Finding(
                    path, path, message, "leave it out, or name it otherwise", at_key=True
                )


def _of_services(spec: Spec) -> Iterator[Finding]:
    """A service may have another home than the task, and other parameters."""
    for at, service in works.services(spec):
        for name in service.env:
            if _OURS.fullmatch(name):
                path: Path = (*at, "env", name)
                message = f" is set for every service by fleetctl itself, {NOT_SEEN}"
                hint = "leave it out, or name it otherwise"
                yield Finding(path, path, message, hint, at_key=True)


def _of_a_secret(spec: SecretSpec) -> Iterator[Finding]:
    paths: list[tuple[Path, str]] = [
        (("spec", "fromEnv", number), name) for number, name in enumerate(spec.from_env)
    ]
    paths += [(("spec", "fromFile", name), name) for name in spec.from_file]
    for path, name in paths:
        if name == INDEX or _OURS.fullmatch(name):
            message = f": `{name}` is set for every task by fleetctl itself"
            yield Finding(path, path[:2], message, "name it otherwise", at_key=True)


def variable(name: str) -> str:
    """As the guests name the variable of a parameter."""
    return "TASK_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()


def _may_run_here(spec: Spec) -> bool:
    if isinstance(spec, FunctionSpec):
        return runs_here(spec.provider)
    if not isinstance(spec, Execution):
        return False
    return any(map(runs_here, spec.providers()))
