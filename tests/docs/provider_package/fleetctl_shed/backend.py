"""The parts of provider `shed` that fleetctl asks for by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fleetctl.providers import (
    Account,
    Backend,
    CheckResult,
    Contract,
    Finding,
    HostedOrphans,
    SandboxBackend,
    Template,
)
from fleetctl_shed.host import Shed
from fleetctl_shed.settings import ShedSettings

CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=False,
    strong_get=True,
    max_lifetime_s=None,
    billing_quantum_s=0.0,
    calls_per_s=1000.0,
    calls_at_once=64,
    call_deadline_s=60.0,
    default_parallelism=8,
    poll_s=30.0,
    inputs_bytes_max=8 * 1024 * 1024,
)


def open_backend(
    home: Path,
    *,
    store_id: str,
    notify: Callable[[str], None],
    account: Callable[[], Account],
) -> Backend:
    return SandboxBackend(
        home,
        store_id=store_id,
        notify=notify,
        account=account,
        host=_shed_of(account()),
        contract=CONTRACT,
        obstacles=find_obstacles,
        usd_per_s=lambda _: _settings(account()).usd_per_hour / 3600,
    )


def open_orphans(home: Path, account: Account) -> HostedOrphans:
    return HostedOrphans(_shed_of(account), account)


def find_obstacles(template: Template, account: Account) -> Iterator[Finding]:
    if template.resources.gpu is not None:
        yield Finding(("resources", "gpu"), "a shed has no GPUs", "leave `resources.gpu` out")


async def check_shed(home: Path, account: Account) -> list[CheckResult]:
    root = _settings(account).root
    there = os.path.isdir(root) and os.access(root, os.W_OK)
    text = f"`{root}` " + ("can be written to" if there else "is no directory of ours")
    return [CheckResult(account.name, "shed", there, text, f"mkdir -p {root}")]


def _shed_of(account: Account) -> Shed:
    return Shed(Path(_settings(account).root))


def _settings(account: Account) -> ShedSettings:
    return ShedSettings.model_validate(account.settings)
