"""Claims GPUs for runs: one claim file a device, so that the claims survive a controller's restart.

Called by the provider before a run with GPUs starts. A claim ends with its run, without a release.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import RunGroups
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.paths import make_private
from fleetctl.providers.programs import run_program
from fleetctl.specs.blocks.resources import Gpu

CLAIM_S = 30.0  # a claim without a journal may belong to an order that is still on its way
RETRY_AFTER_S = 5.0

IsLive = Callable[[str, str], Awaitable[bool]]  # (uid, run)


class GpuClaims:
    def __init__(self, layout: LocalLayout, is_live: IsLive) -> None:
        self._directory = layout.gpus
        self._is_live = is_live
        self._lock = asyncio.Lock()

    async def take(
        self,
        run: str,
        uid: str,
        wanted: Gpu,
    ) -> dict[int, str]:
        """Devices for `run` and their names, the same ones when asked again. Raises Unavailable
        when too few are free.
        """
        async with self._lock:
            names = await list_devices()
            fitting = [index for index, name in enumerate(names) if is_sort(name, wanted)]
            claims = {index: self._claim(index) for index in fitting}
            mine = [index for index in fitting if claims[index][:2] == (run, uid)]
            free = [index for index in fitting if await self._is_free(claims[index])]
            if len(mine) < wanted.count:
                mine = (mine + free)[: wanted.count]
            if len(mine) < wanted.count:
                raise Unavailable(
                    f"needs {wanted.count} x {wanted.name}, this machine has {len(fitting)}"
                    + (f", {len(free)} of them free" if fitting else ""),
                    reason="NoSuchMachine" if len(fitting) < wanted.count else "NoCapacity",
                    retry_after_s=RETRY_AFTER_S,
                )
            for index in mine:
                self._write(index, run, uid)
            return {index: names[index] for index in mine}

    async def free(self, wanted: Gpu) -> int:
        """Returns how many unclaimed devices of this sort there are."""
        names = await list_devices()
        fitting = [index for index, name in enumerate(names) if is_sort(name, wanted)]
        return sum([await self._is_free(self._claim(index)) for index in fitting])

    async def wait_for_all(self, uid: str, groups: RunGroups) -> None:
        """Raises Unavailable while the devices that are free, or of this object, are too few for
        all of its groups together.
        """
        needs: Counter[str] = Counter()
        for group in groups.members:
            if group.gpu:
                wanted = Gpu.model_validate(group.gpu)
                needs[wanted.name] += wanted.count * group.nodes
        names = await list_devices() if needs else []
        for sort, count in needs.items():
            wanted = Gpu(name=sort, count=count)
            claims = [self._claim(at) for at, name in enumerate(names) if is_sort(name, wanted)]
            had = sum([it[1] == uid or await self._is_free(it) for it in claims])
            if had < count:
                raise Unavailable(
                    f"all groups together need {count} x {sort}, this machine has {len(claims)},"
                    f" {had} of them free",
                    reason="NoSuchMachine" if len(claims) < count else "NoCapacity",
                    retry_after_s=RETRY_AFTER_S,
                )

    async def _is_free(self, claim: tuple[str, str, float]) -> bool:
        run, uid, made_at_s = claim
        if not run:
            return True
        if await self._is_live(uid, run):
            return False
        return time.time() - made_at_s > CLAIM_S or await self._has_ended(uid, run)

    async def _has_ended(self, uid: str, run: str) -> bool:
        return (self._directory.parent / "jobs" / uid / "runs" / f"{run}.jsonl").exists()

    def _claim(self, index: int) -> tuple[str, str, float]:
        """Returns (run, uid, when); empty for an unclaimed device."""
        try:
            value = json.loads(self._path(index).read_bytes())
            return str(value["run"]), str(value["uid"]), float(value["at"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", "", 0.0

    def _write(
        self,
        index: int,
        run: str,
        uid: str,
    ) -> None:
        make_private(self._directory)
        temporary = self._path(index).with_suffix(".new")
        text = json.dumps({"run": run, "uid": uid, "at": time.time()})
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path(index))

    def _path(self, index: int) -> Path:
        return self._directory / f"{index}.json"


def _devices_of(part: str) -> list[str]:
    """`A100` is one device and `A100:2` are two, as in a manifest."""
    name, _, count = part.rpartition(":")
    if name and count.isdigit():
        return [name] * int(count)
    if part:
        return [part]
    return []


def is_sort(name: str, wanted: Gpu) -> bool:
    """Returns whether a device of this name will do."""
    return wanted.name == "any" or wanted.name.lower() in name.lower()


def may_have_gpu() -> bool:
    """Returns False when this machine has no GPU for sure; only `devices` counts them."""
    value = os.environ.get("FLEETCTL_LOCAL_GPUS")
    if value is not None:
        return bool(value.strip())
    return _has_driver()


@cache
def _has_driver() -> bool:
    return shutil.which("nvidia-smi") is not None


async def list_devices() -> list[str]:
    """Returns the names of this machine's GPUs by index; $FLEETCTL_LOCAL_GPUS overrides the
    driver's.
    """
    value = os.environ.get("FLEETCTL_LOCAL_GPUS")
    if value is not None:
        return [name for part in value.split(",") for name in _devices_of(part.strip())]
    try:
        answer = await run_program(["nvidia-smi", "-L"])
    except FileNotFoundError:
        return []
    except TimeoutError as error:
        raise Unavailable("`nvidia-smi -L` does not answer", reason="NoCapacity") from error
    if answer.code:
        return []
    # `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-...)`
    lines = answer.out.decode("utf-8", "replace").splitlines()
    return [
        line.partition(":")[2].partition("(")[0].strip()
        for line in lines
        if line.startswith("GPU ")
    ]
