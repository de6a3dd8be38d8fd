"""What provider `local` can do on this machine, found out by doing it. For `fleetctl doctor`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.common.install import install_hint
from fleetctl.controllers.model import Ended
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.contract.diagnostics import Finding
from fleetctl.providers.local.provider import LocalProvider
from fleetctl.providers.local.runs.gpus import devices
from fleetctl.providers.programs import Answer, ask
from fleetctl.providers.uv import find_uv
from fleetctl.specs.blocks.template import Template

INSTALL_GIT = "sudo apt-get install git"
TASK_S = 30.0  # for a task that does nothing
EXTRA = "images"


async def check(home: Path, account: Account) -> list[Finding]:
    del home, account  # the task below has a state directory of its own
    found = await asyncio.gather(_tier(), _gpus(), _uv(), _git())
    return list(found)


async def _tier() -> Finding:
    """Runs a task that does nothing; its journal says in what tier."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-doctor-") as directory:
        ended = asyncio.Event()
        provider = LocalProvider(
            Path(directory).resolve(), store_id="doctor", notify=lambda _: ended.set()
        )
        try:
            async with asyncio.timeout(TASK_S):
                note = await _note(provider, ended)
        except (FleetctlError, TimeoutError) as error:
            problem = str(error) or f"a task that does nothing took longer than {TASK_S:.0f} s"
            return Finding("local", "isolation", False, problem, "unset FLEETCTL_LOCAL_TIER")
        finally:
            await provider.remove_scratch("doctor", keep_logs=False)
            await provider.close()
    return Finding("local", "isolation", True, f"tier {note}")


async def _note(provider: LocalProvider, ended: asyncio.Event) -> str:
    order = RunRequest(
        run="doctor", sandbox="doctor", owner="doctor", uid="doctor", resource="doctor", index=0,
        attempt=1, template=Template(command=("true",)), template_hash="doctor", params={},
        reusable=False,
    )  # fmt: skip
    handle = await provider.start(order)
    while True:
        seen = await provider.observe([RunRef("doctor", "doctor", handle, 0, "doctor")])
        for one in seen:
            if isinstance(one, Ended):
                return one.note
        await ended.wait()
        ended.clear()


async def _gpus() -> Finding:
    try:
        names = await devices()
    except FleetctlError as error:
        return Finding("gpus", "found", False, str(error), "nvidia-smi -L")
    return Finding("gpus", "found", True, ", ".join(names) or "none on this machine")


async def _uv() -> Finding:
    try:
        uv = find_uv()
        answer = await ask([uv, "--version"])
    except (FleetctlError, OSError) as error:
        return Finding("uv", "program", False, str(error), install_hint(EXTRA))
    return _program("uv", answer, install_hint(EXTRA))


async def _git() -> Finding:
    if shutil.which("git") is None:
        message = "not installed; `source.git` on provider `local` needs it"
        return Finding("git", "program", False, message, INSTALL_GIT)
    try:
        answer = await ask(["git", "--version"])
    except OSError as error:
        return Finding("git", "program", False, str(error), INSTALL_GIT)
    return _program("git", answer, INSTALL_GIT)


def _program(topic: str, answer: Answer, fix: str) -> Finding:
    message = (answer.out or answer.errors).decode("utf-8", "replace").partition("\n")[0].strip()
    return Finding(topic, "program", answer.code == 0, message, fix if answer.code else "")
