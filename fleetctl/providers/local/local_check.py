"""Checks what provider `local` can do on this machine, by doing it. For `fleetctl doctor`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.common.install import install_hint
from fleetctl.controllers.model import Ended
from fleetctl.providers.contract.account import Account, CheckResult
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.local.local_provider import LocalProvider
from fleetctl.providers.local.runs.gpu_claims import list_devices
from fleetctl.providers.programs import ProgramOutput, run_program
from fleetctl.providers.uv import find_uv
from fleetctl.specs.blocks.template import Template

INSTALL_GIT = "sudo apt-get install git"
TASK_S = 30.0  # for a task without work
EXTRA = "images"


async def check_local(home: Path, account: Account) -> list[CheckResult]:
    del home, account  # the task below has a state directory of its own
    results = await asyncio.gather(_check_tier(), _check_gpus(), _check_uv(), _check_git())
    return list(results)


async def _check_tier() -> CheckResult:
    """Runs a task without work; its journal has the tier that it ran in."""
    with tempfile.TemporaryDirectory(prefix="fleetctl-doctor-") as directory:
        ended = asyncio.Event()
        provider = LocalProvider(
            Path(directory).resolve(), store_id="doctor", notify=lambda _: ended.set()
        )
        try:
            async with asyncio.timeout(TASK_S):
                note = await _run_noop(provider, ended)
        except (FleetctlError, TimeoutError) as error:
            problem = str(error) or f"a task that does nothing took longer than {TASK_S:.0f} s"
            return CheckResult(
                "local",
                "isolation",
                False,
                problem,
                "unset FLEETCTL_LOCAL_TIER",
            )
        finally:
            await provider.remove_scratch("doctor", keep_logs=False)
            await provider.close()
    return CheckResult("local", "isolation", True, f"tier {note}")


async def _run_noop(provider: LocalProvider, ended: asyncio.Event) -> str:
    """Runs `true` and returns the note in its journal, which names the tier."""
    request = RunRequest(
        run="doctor", sandbox="doctor", owner="doctor", uid="doctor", resource="doctor", index=0,
        attempt=1, template=Template(command=("true",)), template_hash="doctor", params={},
        reusable=False,
    )  # fmt: skip
    handle = await provider.start(request)
    while True:
        seen = await provider.observe(
            [
                RunRef(
                    "doctor",
                    "doctor",
                    handle,
                    0,
                    "doctor",
                )
            ]
        )
        for observation in seen:
            if isinstance(observation, Ended):
                return observation.note
        await ended.wait()
        ended.clear()


async def _check_gpus() -> CheckResult:
    try:
        names = await list_devices()
    except FleetctlError as error:
        return CheckResult(
            "gpus",
            "found",
            False,
            str(error),
            "nvidia-smi -L",
        )
    return CheckResult("gpus", "found", True, ", ".join(names) or "none on this machine")


async def _check_uv() -> CheckResult:
    try:
        uv = find_uv()
        output = await run_program([uv, "--version"])
    except (FleetctlError, OSError) as error:
        return CheckResult(
            "uv",
            "program",
            False,
            str(error),
            install_hint(EXTRA),
        )
    return _program_result("uv", output, install_hint(EXTRA))


async def _check_git() -> CheckResult:
    if shutil.which("git") is None:
        message = "not installed; `source.git` on provider `local` needs it"
        return CheckResult(
            "git",
            "program",
            False,
            message,
            INSTALL_GIT,
        )
    try:
        output = await run_program(["git", "--version"])
    except OSError as error:
        return CheckResult(
            "git",
            "program",
            False,
            str(error),
            INSTALL_GIT,
        )
    return _program_result("git", output, INSTALL_GIT)


def _program_result(
    topic: str,
    output: ProgramOutput,
    fix: str,
) -> CheckResult:
    message = (output.out or output.errors).decode("utf-8", "replace").partition("\n")[0].strip()
    return CheckResult(
        topic,
        "program",
        output.code == 0,
        message,
        fix if output.code else "",
    )
