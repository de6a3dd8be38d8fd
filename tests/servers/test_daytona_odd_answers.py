"""One odd answer of Daytona, or of what stands before it, ends no job and doubles no work."""

from __future__ import annotations

import json

import pytest

from tests.contracts.daytona_worlds import PAGE
from tests.contracts.provider_worlds import eventually
from tests.emulators.daytona.settings import API_KEY
from tests.servers.daytona_fleet import Fleet, Play
from tests.servers.fleets import Tally

NAP = "\nimport time\ntime.sleep(2)\n"


async def begun(tally: Tally, count: int) -> None:
    async def they_are() -> bool:
        return tally.begun.total() >= count

    await eventually(they_are, f"{count} tasks have begun")


def body(status: int, message: str) -> dict[str, object]:
    return {"statusCode": status, "message": message, "source": "DAYTONA_API"}


def test_a_proxys_404_doubles_no_work_and_leaves_no_sandbox(on_daytona: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(NAP)}, tasks={"completions": 3}, parallelism=3)
        await begun(tally, 3)
        fleet.emulator.fault(method="GET", path="/api/sandbox/*", status=404, body=PAGE, count=9)
        for box in fleet.live():
            fleet.emulator.cut(box["id"])
        await fleet.phase("Succeeded")
        assert [run.attempt for run in fleet.runs()] == [1, 1, 1]
        assert tally.begun.total() == 3
        assert fleet.live() == []

    on_daytona(tale)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"status": 400, "body": body(400, "No available runners")}, id="no-runners"),
        pytest.param({"status": 403, "body": PAGE}, id="page-403"),
        pytest.param({"status": 401, "body": body(401, "Unauthorized")}, id="one-401"),
        pytest.param({"status": 422, "body": body(422, "odd")}, id="one-refusal"),
        pytest.param({"status": 500, "body": body(500, "Internal server error")}, id="one-500"),
    ],
)
def test_one_odd_answer_to_a_create_ends_nothing(
    on_daytona: Play, tally: Tally, answer: dict[str, object]
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.fault(operation="createSandbox", skip=2, count=1, **answer)
        fleet.apply({"python": tally.python()}, tasks={"completions": 5}, parallelism=2)
        await fleet.phase("Succeeded")
        assert fleet.emulator.faults()[0]["met"] == 1
        assert [run.attempt for run in fleet.runs()] == [1] * 5
        assert tally.begun.total() == 5
        assert fleet.live() == []

    on_daytona(tale)


def test_a_500_is_told_in_its_own_words(on_daytona: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        text = "the database is on holiday"
        fleet.emulator.fault(operation="createSandbox", status=500, body=body(500, text))
        fleet.apply({"python": "pass"})
        status = await fleet.waits("Unavailable")
        assert text in status["message"]
        assert "in time" not in json.dumps(status)
        fleet.emulator.remove_faults()
        await fleet.phase("Succeeded")

    on_daytona(tale)


def test_a_key_that_is_revoked_is_told_by_running_work_and_ends_none(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        work = tally.python("\nimport time\ntime.sleep(8)\n")
        fleet.apply({"python": work}, tasks={"completions": 2}, parallelism=1)
        await begun(tally, 1)
        try:
            fleet.emulator.set(keys={API_KEY: False})
            status = await fleet.waits("AccessDenied")
            assert status["phase"] == "Running"
            assert "the key has no access" in status["message"]
            assert "DAYTONA_API_KEY" in status["hint"]
        finally:
            fleet.emulator.set(keys={API_KEY: True})
        await fleet.phase("Succeeded")
        assert [run.attempt for run in fleet.runs()] == [1, 1]
        assert tally.begun.total() == 2
        assert fleet.live() == []

    on_daytona(tale)


def test_an_organizations_own_limit_of_a_sandboxes_life_is_known_and_left_in_time(
    on_daytona: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(lifespan_s=15.0)
        try:
            # What it has is kept where the next attempt finds it.
            code = "import pathlib, time\nplace = pathlib.Path('/data/at')\n"
            code += "at = int(place.read_text()) if place.exists() else 0\n"
            code += "for step in range(at, 15):\n    time.sleep(1)\n"
            code += "    place.write_text(str(step + 1))\nSUBMIT(done=True)"
            volumes = [{"name": "kept", "mountPath": "/data"}]
            template = {"python": code, "volumes": volumes, "terminationGracePeriodSeconds": 1}
            fleet.apply(template, maxInfraRetries=0)
            await fleet.phase("Succeeded")
            reasons = [run.reason for run in fleet.runs()]
            assert reasons == ["MaxLifetime", "Completed"]
        finally:
            fleet.emulator.set(lifespan_s=1e9)

    on_daytona(tale)


def test_a_sandbox_that_somebody_paused_says_so(on_daytona: Play, tally: Tally) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python("\nimport time\ntime.sleep(600)\n")})
        await begun(tally, 1)
        [box] = fleet.live()
        fleet.emulator.pause(box["id"])
        fleet.emulator.cut(box["id"])

        async def says_so() -> bool:
            return "`paused` at Daytona" in json.dumps(fleet.status())

        await eventually(says_so, "its object says that it is paused")
        fleet.delete("job")
        await fleet.gone("job")
        assert fleet.live() == []

    on_daytona(tale)


def test_parallelism_above_the_quota_is_as_quick_as_at_the_quota(
    on_daytona: Play, tally: Tally
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(quota={"cpu": 2})
        fleet.apply({"python": tally.python()}, tasks={"completions": 12}, parallelism=8)
        await fleet.phase("Succeeded")
        assert [run.attempt for run in fleet.runs()] == [1] * 12
        assert fleet.live() == []

    on_daytona(tale)
