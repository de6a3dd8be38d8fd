"""Checks whether this machine can work with Daytona: the package, a key, the server, access; and
finds work that Daytona refuses, without calling it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account, CheckResult, explain_no_access
from fleetctl.providers.contract.base import no_pods
from fleetctl.providers.daytona.assets.daytona_volumes import check_writable
from fleetctl.providers.daytona.connection import daytona_credentials, sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_credentials import server_url
from fleetctl.providers.daytona.connection.daytona_errors import KEY_HINT
from fleetctl.providers.daytona.runs import daytona_machines
from fleetctl.providers.uv import refuse_secret
from fleetctl.specs.blocks.template import Template

EXTRA = "daytona"
EXPORT = "set -a; . ./.env; set +a"

VARIABLES = ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")
FILES = (".env", ".env.local")  # of the directory that a program runs in; the SDK reads them


async def check_daytona(home: Path, account: Account) -> list[CheckResult]:
    """Returns the checks in order; each only when the one before is well: a later one could prove
    little.
    """
    del home
    name = account.name
    if not sdk.installed_version():
        return [_sdk_unusable(name, "is not installed")]
    found = [CheckResult(name, "package", True, f"daytona {sdk.installed_version()}")]
    try:
        known = daytona_credentials.of_account(account)
    except Unavailable as error:
        message = str(error) if account.declared else "there is none"
        return [
            *found,
            CheckResult(name, "key", False, message, error.hint),
        ]
    # A second, for who has a key to use it with.
    if problem := await asyncio.to_thread(sdk.find_problem):
        return [_sdk_unusable(name, problem)]
    if ".env" in known.source and not account.declared:
        # Commands in this directory find it; a controller works in another directory, for all
        # users.
        message = f"only in {known.source}, which the controller does not read"
        return [
            *found,
            CheckResult(name, "key", False, message, EXPORT),
            await _check_access(account),
        ]
    found.append(CheckResult(name, "key", True, f"from {known.source}"))
    return [*found, await _check_access(account)]


def _sdk_unusable(name: str, problem: str) -> CheckResult:
    return CheckResult(name, "package", False, f"`daytona` {problem}", install_hint(EXTRA))


async def _check_access(account: Account) -> CheckResult:
    """Asks for what any working key may see."""
    connection = DaytonaConnection(account=lambda: account)
    try:
        await connection.client()
    except (Refused, Unavailable) as error:
        return explain_no_access(account.name, error, f"curl -sS {server_url(account)}")
    finally:
        await connection.close()
    return CheckResult(
        account.name, "access", True, f"`{server_url(account)}` answers and knows the key"
    )


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    if template.is_function:
        hint = "use a sandbox for each task, or place it on `modal`"
        yield Finding(("runtime",), "Daytona has no functions", hint)
    try:
        daytona_machines.choose_machine(template.sandbox_resources)
    except Refused as error:
        yield Finding(("resources", "gpu"), str(error), error.hint)
    clones = template.source is not None and template.source.git is not None
    if template.network is not None and not template.network.hosts and clones:
        message = "Daytona clones a repository from inside the sandbox, which may reach no host"
        hint = "add the host of `source.git` to `network.allow`, or use `source.path`"
        yield Finding(("network",), message, hint)
    if template.kubernetes is not None:
        yield no_pods("daytona")
    yield from of_image(template)
    for mount in template.volumes:
        try:
            check_writable(mount)
        except Refused as error:
            yield Finding(("volumes",), str(error), error.hint)
    if not sdk.installed_version():
        yield Finding(
            (), "the package `daytona` is not installed", install_hint(EXTRA), Severity.LATER
        )
        return
    try:
        there = bool(account.value("apiKeyEnv")) if account.declared else _key_may_be_there()
        if not there:
            yield Finding((), "there is no key for Daytona", KEY_HINT, Severity.LATER)
    except Refused as error:
        yield Finding((), str(error), error.hint, Severity.LATER)


def of_image(template: Template) -> Iterator[Finding]:
    """Yields why no snapshot could be built for a template."""
    try:
        refuse_secret(template.image, "daytona")
    except Refused as error:
        yield Finding(("image", "pipIndex", "secret"), str(error), error.hint)


def _key_may_be_there() -> bool:
    if any(os.environ.get(name) for name in VARIABLES):
        return True
    return any(_names_one(Path(name)) for name in FILES)


def _names_one(file: Path) -> bool:
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return False
    return any(name in text for name in VARIABLES)
