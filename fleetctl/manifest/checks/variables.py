"""Finds environment variables that every task is given already, and values that look like
credentials: a manifest is stored, shown and shared.

Warned of in variables; refused in the address of a webhook, whose secret has a field of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.common.text import CREDENTIAL_NAME, has_credential_field
from fleetctl.guest.task.parameters import long_variables, name_variable, parameter_texts
from fleetctl.manifest.checks import spec_parts
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.notify import GITHUB_TOKEN, GITLAB_TOKEN, WEBHOOK_URL
from fleetctl.specs.builtin import runs_here
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.scalars import Spec

# As the guests set them; each is described in `fleetctl explain` and in the README.
_OURS = re.compile(
    r"FLEETCTL_(?:PARAMS|RESULT|METRICS|RUN|ATTEMPT|STAGE_RESULTS|(?:VOLUME|PORT)(?:_.*)?)"
)
INDEX = "JOB_COMPLETION_INDEX"
# Provider `local` has no container: there each task has its own HOME and device directory.
OF_THIS_MACHINE = frozenset({"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES"})
NOT_SEEN = "and this value would never be seen"

# Shorter ones are names and switches, such as KEY=name; real credentials are long.
CREDENTIAL_LENGTH_MIN = 16
_WEBHOOK_HINT = f"put the URL into a Secret, as `{WEBHOOK_URL}`, and name that in `secret`"
_TOKEN_HINT = (
    f"the Secret that `secret` names has the token, as `{GITHUB_TOKEN}` or `{GITLAB_TOKEN}`"
)


def find_problems(spec: Spec) -> Iterator[Finding]:
    if isinstance(spec, SecretSpec):
        yield from _of_a_secret(spec)
        return
    yield from _of_services(spec)
    yield from _one_variable(spec)
    environments = list(spec_parts.list_environments(spec))
    if not environments:
        return
    here = _may_run_here(spec)
    given = {name_variable(name): name for _, name in spec_parts.list_parameters(spec)}
    for at, variables in environments:
        for name in variables:
            path: Path = (*at, name)
            if name == INDEX or _OURS.fullmatch(name):
                message = f" is set for every task by fleetctl itself, {NOT_SEEN}"
                yield Finding(path, message, "leave it out, or name it otherwise", at_key=True)
            elif name in OF_THIS_MACHINE and here:
                message = f" is set for every task by provider `local`, {NOT_SEEN}"
                hint = f"leave it out, or write `export {name}=...` at the start of `script`"
                yield Finding(path, message, hint, at_key=True)
            elif name in given:
                message = f" is the variable of the parameter `{given[name]}`, {NOT_SEEN}"
                yield Finding(path, message, "leave it out, or name it otherwise", at_key=True)


def find_doubts(spec: Spec) -> Iterator[Finding]:
    """Parameters that come as files, the first row of each name."""
    if not any(list(spec_parts.values_of(spec, name)) for name in ("command", "script")):
        return
    told: set[str] = set()
    for at, row in spec_parts.list_rows(spec):
        texts = parameter_texts(row)
        found = set(long_variables(texts))
        for name in row:
            of_it = name_variable(name)
            if of_it in found and of_it not in told:
                told.add(of_it)
                path: Path = (*at, name)
                size = len(texts[of_it].encode("utf-8", "surrogatepass"))
                message = f" has {size:,} bytes, too long for an environment variable"
                hint = f"the program finds it in the file that `${of_it}_FILE` names"
                yield Finding(path, message, hint, Severity.DOUBT, at_key=True)


def _one_variable(spec: Spec) -> Iterator[Finding]:
    """Yields names in a row that are a single variable: a program would see only the last one's
    value.

    A W&B sweep that names its program is read as W&B reads it: its program reads arguments and
    `wandb.config`, which keep the names apart.
    """
    if isinstance(spec, SweepSpec) and (spec.search.program or spec.search.command):
        return
    told: set[frozenset[str]] = set()
    for at, row in spec_parts.list_rows(spec):
        first: dict[str, str] = {}
        for name in row:
            other = first.setdefault(name_variable(name), name)
            pair = frozenset((name, other))
            if other != name and pair not in told:
                told.add(pair)
                path: Path = (*at, name)
                message = f" is the variable `{name_variable(name)}`, and so is `{other}`"
                yield Finding(path, message, "name one of them otherwise", at_key=True)


def _of_services(spec: Spec) -> Iterator[Finding]:
    """A service may have another home than the task, and other parameters."""
    for at, service in spec_parts.list_services(spec):
        for name in service.env:
            if _OURS.fullmatch(name):
                path: Path = (*at, "env", name)
                message = f" is set for every service by fleetctl itself, {NOT_SEEN}"
                hint = "leave it out, or name it otherwise"
                yield Finding(path, message, hint, at_key=True)


def _of_a_secret(spec: SecretSpec) -> Iterator[Finding]:
    paths: list[tuple[Path, str]] = [
        (("spec", "fromEnv", number), name) for number, name in enumerate(spec.from_env)
    ]
    paths += [(("spec", "fromFile", name), name) for name in spec.from_file]
    for path, name in paths:
        if name == INDEX or _OURS.fullmatch(name):
            message = f": `{name}` is set for every task by fleetctl itself"
            yield Finding(path, message, "name it otherwise", at_key=True, about=path[:2])


def _may_run_here(spec: Spec) -> bool:
    if isinstance(spec, FunctionSpec):
        return runs_here(spec.provider)
    if not isinstance(spec, WorkSpec):
        return False
    return any(map(runs_here, spec.providers()))


def find_credentials(spec: Spec) -> Iterator[Finding]:
    """Yields a finding for each sink with a credential in the query of its URL; no finding contains
    the value.
    """
    for number, rule in enumerate(getattr(spec, "notify", ())):
        for field, sink, hint in (
            ("webhook", rule.webhook, _WEBHOOK_HINT),
            ("commitStatus", rule.commit_status, _TOKEN_HINT),
        ):
            if sink is not None and sink.url is not None and has_credential_field(sink.url):
                path = ("spec", "notify", number, field, "url")
                message = " holds what looks like a credential; a manifest is stored and shown"
                yield Finding(path, message, hint)


def find_credential_doubts(spec: Spec) -> Iterator[Finding]:
    """Yields a finding for each variable with a credential; no finding contains the value."""
    of_services = (((*at, "env"), service.env) for at, service in spec_parts.list_services(spec))
    for at, variables in (*spec_parts.list_environments(spec), *of_services):
        for name, value in variables.items():
            if (
                CREDENTIAL_NAME.search(name)
                and len(value) >= CREDENTIAL_LENGTH_MIN
                and not any(character in value for character in " /")
            ):
                path = (*at, name)
                message = " holds what looks like a credential"
                hint = "put it into a Secret and name that in `secrets`"
                yield Finding(path, message, hint, Severity.DOUBT, at_key=True)
