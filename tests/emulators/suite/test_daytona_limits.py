"""What the emulated organization may not have: quotas, throttlers, GPUs that are all in use."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from daytona import (
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    Daytona,
    GpuType,
    Resources,
)
from daytona.common.errors import (
    DaytonaBadRequestError,
    DaytonaError,
    DaytonaForbiddenError,
    DaytonaNotFoundError,
    DaytonaQueueTimeoutError,
    DaytonaRateLimitError,
    DaytonaSpotEvictedError,
)

from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.driving.daytona import until_state, wait_until

DAY_S = 24 * 3600


def gpu(name: str, **params: Any) -> CreateSandboxFromImageParams:
    resources = Resources(gpu=1, gpu_type=GpuType.H100)
    chosen: dict[str, Any] = {"image": "debian:12", "resources": resources, "ephemeral": True}
    return CreateSandboxFromImageParams(name=name, **(chosen | params))


def named(name: str, **params: Any) -> CreateSandboxFromSnapshotParams:
    return CreateSandboxFromSnapshotParams(name=name, **params)


@pytest.mark.parametrize("quantity", ["CPU", "memory", "disk"])
def test_a_quota_is_a_400_that_names_the_quantity(emulator: DaytonaEmulator, quantity: str) -> None:
    daytona = Daytona()
    emulator.set(quota={quantity.lower(): 3})
    held = daytona.create(named(f"holds-{quantity}"))
    with pytest.raises(DaytonaBadRequestError, match=f"Total {quantity} limit exceeded") as refused:
        for number in range(3):
            daytona.create(named(f"over-{quantity}-{number}"))
    assert refused.value.status_code == 400
    emulator.set(quota={"cpu": 250, "memory": 500, "disk": 2000})
    for one in [held, *daytona.list()]:
        if emulator.sandbox(one.id)["state"] == "started":
            one.delete(wait=True)


def test_a_stopped_sandbox_holds_its_disk_and_an_archived_one_nothing(
    emulator: DaytonaEmulator,
) -> None:
    sandbox = Daytona().create(named("holds"))
    usage = emulator.state()["usage"]
    assert (usage["cpu"], usage["memory"], usage["disk"]) == (1, 1, 3)
    sandbox.stop()
    usage = emulator.state()["usage"]
    assert (usage["cpu"], usage["memory"], usage["disk"]) == (0, 0, 3)
    sandbox.archive()
    wait_until(lambda: emulator.state()["usage"]["disk"] == 0)
    sandbox.delete(wait=True)


def test_one_sandbox_may_be_only_so_big(emulator: DaytonaEmulator) -> None:
    params = CreateSandboxFromImageParams(image="debian:12", resources=Resources(cpu=5))
    with pytest.raises(DaytonaBadRequestError, match="exceeds maximum allowed per sandbox"):
        Daytona().create(params)


def test_a_throttler_answers_429_with_its_own_headers(emulator: DaytonaEmulator) -> None:
    emulator.advance(61)
    emulator.set(rate_per_minute={"sandbox-create": 2})
    daytona = Daytona()
    made = [daytona.create(named(f"paced-{n}", auto_stop_interval=0)) for n in range(2)]
    with pytest.raises(DaytonaRateLimitError, match="ThrottlerException") as refused:
        daytona.create(named("paced-2"))
    headers = {name.lower(): value for name, value in refused.value.headers.items()}
    assert headers["x-ratelimit-limit-sandbox-create"] == "2"
    assert headers["x-ratelimit-remaining-sandbox-create"] == "0"
    retry_s = int(headers["retry-after-sandbox-create"])
    assert 1 <= retry_s <= 60
    emulator.advance(retry_s)
    made.append(daytona.create(named("paced-2")))
    emulator.set(rate_per_minute={"sandbox-create": None})
    for one in made:
        one.delete(wait=True)


def test_gpu_sandboxes_are_ephemeral_and_spot_needs_a_gpu(emulator: DaytonaEmulator) -> None:
    daytona = Daytona()
    with pytest.raises(DaytonaBadRequestError, match="ephemeral"):
        daytona.create(gpu("kept", ephemeral=False))
    with pytest.raises(DaytonaBadRequestError, match="only available for GPU"):
        daytona.create(named("plain", spot=True))
    sandbox = daytona.create(gpu("gpu"))
    assert (sandbox.gpu, sandbox.gpu_type, sandbox.target) == (1, GpuType.H100, "earth")
    sandbox.delete(wait=True)


def test_an_evicted_spot_sandbox_can_be_read_by_its_id_for_a_day(
    emulator: DaytonaEmulator,
) -> None:
    daytona = Daytona()
    sandbox = daytona.create(gpu("spotty", spot=True, auto_stop_interval=0))
    emulator.evict("spotty")
    wait_until(lambda: emulator.sandbox(sandbox.id)["state"] == "destroyed")
    assert emulator.sandbox(sandbox.id)["pids"] == []
    found = daytona.get(sandbox.id)
    until_state(found, "destroyed")
    assert found.spot_evicted_at is not None
    with pytest.raises(DaytonaSpotEvictedError):
        found.wait_for_sandbox_start()
    with pytest.raises(DaytonaNotFoundError):
        daytona.get("spotty")
    emulator.advance(DAY_S + 1)
    with pytest.raises(DaytonaNotFoundError):
        daytona.get(sandbox.id)


def test_who_finds_no_gpu_waits_and_is_destroyed_when_its_time_is_over(
    emulator: DaytonaEmulator,
) -> None:
    emulator.set(gpus_per_type=1)
    daytona = Daytona()
    first = daytona.create(gpu("first", auto_stop_interval=0))
    outcome: list[BaseException] = []

    def second() -> None:
        try:
            Daytona().create(gpu("second", queue_timeout=5), timeout=120)
        except DaytonaError as error:
            outcome.append(error)

    waiting = threading.Thread(target=second)
    waiting.start()
    wait_until(lambda: [one for one in emulator.state()["present"] if one["name"] == "second"])
    emulator.advance(5 * 60 + 1)
    waiting.join()
    assert isinstance(outcome[0], DaytonaQueueTimeoutError)
    assert emulator.sandbox("second")["pids"] == []
    first.delete(wait=True)
    emulator.set(gpus_per_type=1000)


def test_who_waits_for_a_gpu_gets_the_next_that_is_free(emulator: DaytonaEmulator) -> None:
    emulator.set(gpus_per_type=1)
    daytona = Daytona()
    first = daytona.create(gpu("holder"))
    threading.Timer(0.3, first.delete).start()
    second = daytona.create(gpu("next"))
    assert emulator.sandbox("next")["state"] == "started"
    second.delete(wait=True)
    emulator.set(gpus_per_type=1000)


def test_lower_tiers_cannot_change_network_settings(emulator: DaytonaEmulator) -> None:
    emulator.set(restricted_egress=True)
    sandbox = Daytona().create(named("restricted"))
    assert sandbox.network_block_all is True
    with pytest.raises(DaytonaForbiddenError):
        sandbox.update_network_settings(network_block_all=False)
    emulator.set(restricted_egress=False)
    sandbox.delete(wait=True)
