"""Finds, ends and claims the jobs of a Slurm cluster that carry a tag of any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, VOLUME, Orphan, Orphans
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_names import of_tags
from fleetctl.providers.remote.sandboxes.terminations import Terminations
from fleetctl.providers.slurm.slurm_login import SlurmLogin
from fleetctl.providers.slurm.slurm_sandboxes import SlurmSandboxes, job_name, split_handle


class SlurmOrphans:
    """The orphans of a Slurm cluster. Connects to the login node by a line of its own, which is
    opened at the first call.
    """

    def __init__(self, home: Path, account: Account) -> None:
        self._account = account
        self._login = SlurmLogin(home, lambda: account)

    async def find_all(self) -> Sequence[Orphan]:
        if not self._account.settings:
            return []  # the built-in name, of which no cluster was declared
        boxes = (await self._login.line.call("all"))["boxes"]
        jobs = await self._login.queue.jobs()
        found = []
        for box in boxes:
            job = jobs.get(job_name(box["box"]))
            if job is not None and job.active:
                handle = f"{job.number}/{box['box']}"
                orphan = of_tags(self._account.name, handle, box["tags"])
                found += [orphan] if orphan is not None else []
        return found

    async def remove(self, orphan: Orphan) -> None:
        if orphan.kind == VOLUME:
            raise Refused(
                "volumes of a cluster are removed by their Volume object",
                hint="fleetctl delete volume/NAME",
            )
        await Terminations(SlurmSandboxes(self._login, orphan.store)).close(orphan.handle)

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        line = self._login.line
        box = split_handle(orphan.handle)[1]
        tags = (await line.call("look", {"box": box}))["tags"]
        fields = {"tags": sandbox_names.claim_tags(tags, store_id, uid)}
        if not tags or not (await line.call("change", {"box": box, "fields": fields}))["ok"]:
            raise Refused(f"job `{orphan.handle}` is gone by now", hint=GONE_HINT)

    async def close(self) -> None:
        await self._login.close()


_: type[Orphans] = SlurmOrphans
