"""Checks whether a cluster takes work: its login, its partitions. Called by `fleetctl doctor`."""

from __future__ import annotations

from pathlib import Path

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.diagnostics import CheckResult
from fleetctl.providers.slurm.slurm_login import SlurmLogin


async def check_slurm(home: Path, account: Account) -> list[CheckResult]:
    """Returns a finding; none for the built-in name without a cluster."""
    if not account.settings:
        return []
    login = SlurmLogin(home, lambda: account)
    try:
        words = ["sinfo", "--noheader", "-o", "%P %D %t %c %G"]
        partition = login.settings.partition
        words += [f"--partition={partition}"] if partition else []
        out = (await login.queue.run(words))["out"]
    except FleetctlError as error:
        away = isinstance(error, Unavailable) and not error.account
        return [CheckResult(account.name, "login", False, str(error), error.hint, away=away)]
    finally:
        await login.close()
    lines = [line.split() for line in out.splitlines()]
    nodes = "; ".join(f"{it[0]}: {it[1]} {it[2]}, {it[3]} cores, {it[4]}" for it in lines)
    return [CheckResult(account.name, "cluster", bool(lines), nodes or "there is no partition")]
