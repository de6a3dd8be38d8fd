"""Checks the packages that prompts need, for `doctor` and an apply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from fleetctl.common.finding import Finding
from fleetctl.common.install import install_hint
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import CheckResult
from fleetctl.specs.blocks.template import Template

EXTRA = "endpoints"


async def check_endpoint(home: Path, account: Account) -> Sequence[CheckResult]:
    """Returns no check where the packages are missing: users without prompts do not need them."""
    del home
    lacking = [name for name in ("aiohttp", "jsonschema") if find_spec(name) is None]
    if lacking:
        return []
    return [CheckResult(account.name, "packages", True, "prompts can be asked")]


def find_obstacles(template: Template) -> Iterator[Finding]:
    prompt = template.prompt
    if prompt is None:
        return
    if find_spec("aiohttp") is None:
        message = "a prompt needs the package `aiohttp`, which is not installed"
        yield Finding(("prompt",), message, install_hint(EXTRA))
    if prompt.answer is not None and find_spec("jsonschema") is None:
        message = "a schema needs the package `jsonschema`, which is not installed"
        yield Finding(("prompt", "schema"), message, install_hint(EXTRA))
