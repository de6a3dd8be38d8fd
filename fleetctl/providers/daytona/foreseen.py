"""What Daytona refuses, found out without its SDK and without asking it. Called by provider.py."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Foreseen
from fleetctl.providers.daytona.connection.errors import KEY_HINT
from fleetctl.providers.daytona.runs import machines
from fleetctl.providers.pip_index import refuse_secret
from fleetctl.specs.blocks.template import Template

EXTRA = "daytona"
VARIABLES = ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")
FILES = (".env", ".env.local")  # of the directory that a program runs in; the SDK reads them


def first(template: Template, account: Account) -> Foreseen | None:
    if template.is_function:
        hint = "use a sandbox for each task, or place it on `modal`"
        return Foreseen(("runtime",), "Daytona has no functions", hint)
    try:
        machines.machine(template.sandbox_resources)
    except Refused as error:
        return Foreseen(("resources", "gpu"), str(error), error.hint)
    if (found := of_image(template)) is not None:
        return found
    if importlib.util.find_spec("daytona") is None:
        return Foreseen(
            (), "the package `daytona` is not installed", install_hint(EXTRA), later=True
        )
    try:
        there = bool(account.value("apiKeyEnv")) if account.declared else _key_may_be_there()
    except Refused as error:
        return Foreseen((), str(error), error.hint, later=True)
    return None if there else Foreseen((), "there is no key for Daytona", KEY_HINT, later=True)


def of_image(template: Template) -> Foreseen | None:
    """What no snapshot could be built for."""
    try:
        refuse_secret(template.image, "daytona")
    except Refused as error:
        return Foreseen(("image", "pipIndex", "secret"), str(error), error.hint)
    return None


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
