"""One odd answer of Daytona, or of what stands before it, ends no job and doubles no work."""

from __future__ import annotations

import json

import pytest

from fleetctl.controllers.history.retry_limits import MAKE_IT_FIT
from fleetctl.providers.daytona.runs import daytona_creator
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


def test_a_create_that_is_never_answered_is_asked_for_again_where_it_made_nothing(
    on_daytona: Play, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona_creator, "LOOK_S", 0.1)
    monkeypatch.setattr(daytona_creator, "UNANSWERED_S", 5.0)
    monkeypatch.setattr(daytona_creator, "FAILED_AFTER_S", 0.1)

    async def tale(fleet: Fleet) -> None:
        # Longer than any deadline of the test.
        fleet.emulator.fault(operation="createSandbox", delay_s=1200.0, count=1)
        fleet.apply({"python": tally.python()})
        await fleet.phase("Succeeded")
        assert tally.begun == {"0/1": 1}
        assert len(fleet.made()) == 1
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
            code += "if not place.exists():\n    place.write_text('1')\n    time.sleep(600)\n"
            code += "SUBMIT(at=place.read_text())"
            volumes = [{"name": "kept", "mountPath": "/data"}]
            template = {"python": code, "volumes": volumes, "terminationGracePeriodSeconds": 1}
            fleet.apply(template, maxInfraRetries=1)

            async def left() -> bool:
                return any(run.reason == "MaxLifetime" for run in fleet.runs())

            await eventually(left, "the first sandbox was left")
            fleet.emulator.set(lifespan_s=1e9)
            await fleet.phase("Succeeded")
            reasons = [run.reason for run in fleet.runs()]
            assert reasons == ["MaxLifetime", "Completed"]
            assert fleet.results() == {0: {"at": "1"}}
        finally:
            fleet.emulator.set(lifespan_s=1e9)

    on_daytona(tale)


def test_a_task_that_fits_into_no_sandbox_fails_once_they_have_brought_it_no_further(
    on_daytona: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.emulator.set(lifespan_s=4.0)
        try:
            template = {"command": ["sleep", "600"], "terminationGracePeriodSeconds": 0}
            fleet.apply(template, maxInfraRetries=1)
            status = await fleet.phase("Failed")
            assert [run.reason for run in fleet.runs()] == ["MaxLifetime", "MaxLifetime"]
            assert status["lastFailure"]["reason"] == "MaxLifetime"
            assert fleet.runs()[-1].hint == MAKE_IT_FIT
            assert fleet.live() == []
        finally:
            fleet.emulator.set(lifespan_s=1e9)

    on_daytona(tale)


@pytest.mark.parametrize(
    ("network", "asked"),
    [
        ({}, {"block_all": True}),
        (
            {"allow": ["10.0.0.0/8", "pkg.example.org", "10.1.0.0/16"]},
            {"allow_list": "10.0.0.0/8,10.1.0.0/16", "domains": "pkg.example.org"},
        ),
    ],
)
def test_a_sandbox_may_reach_what_its_template_says(
    on_daytona: Play, tally: Tally, network: dict[str, object], asked: dict[str, object]
) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(), "network": network})
        await fleet.phase("Succeeded")
        [box] = fleet.made()
        assert {name: box["network"][name] for name in asked} == asked

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
