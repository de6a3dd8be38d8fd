"""Provider `daytona`: how it asks, what it keeps to itself, and what it leaves alone. The real SDK
against the emulator, whose ground truth says what was asked and what is there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Alive, Ended, Gone
from fleetctl.providers.contract.base import RunRef
from tests.contracts.daytona_worlds import DaytonaWorld, Play, emulated, played
from tests.contracts.provider_worlds import command, eventually, python, script
from tests.emulators.daytona.running import DaytonaEmulator

DAY_S = 86_400
FOLLOWS = "GET /toolbox/{sandbox}/process/session/{session}/command/{command}/logs"
SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


@pytest.fixture(scope="module")
def emulator() -> Iterator[DaytonaEmulator]:
    with emulated() as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: DaytonaEmulator) -> Iterator[Play]:
    with played(tmp_path, emulator) as told:
        yield told


# -- manners ---------------------------------------------------------------------------------------


def test_a_task_that_ends_soon_costs_five_calls_once_its_image_is_known(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_DAYTONA_QUICK_S", "60")

    async def tale(world: DaytonaWorld) -> None:
        await world.run(python("pass"))
        world.emulator.forget_requests()
        began_s = time.monotonic()
        await world.run(python("print('some output')"), run="run-1")
        asked = world.emulator.state()["requests"]
        # The SDK's own: one when it begins to wait for a state, and one for each second that it
        # waits.
        assert asked.pop("getSandbox") <= 2 + (time.monotonic() - began_s)
        assert asked == {
            "createSandbox": 1,
            "POST /toolbox/{sandbox}/process/execute": 1,
            "deleteSandbox": 1,
        }

    play(tale)


def test_a_run_that_goes_on_is_followed_without_calls(play: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        world.emulator.forget_requests()
        refs = [await world.start(python(SLEEPS), run=f"run-{n}") for n in range(3)]
        for ref in refs:
            await world.log_holds(ref, b"begun")

        async def streams() -> bool:
            # What is open for a moment only, on the way to a stream, is none.
            open_now = sum(one["open_requests"] for one in world.present())
            return world.emulator.count(FOLLOWS) >= 3 and bool(open_now == 3)

        await eventually(streams, "three streams were open")
        world.emulator.forget_requests()
        for _ in range(30):
            assert len(await world.provider.observe(refs)) == 3
            await asyncio.sleep(0.02)
        assert world.emulator.state()["requests"] == {}

    play(tale)


def test_a_run_is_followed_in_a_session_of_its_own_name_and_only_one(play: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        ref = await world.start(script("while :; do echo tick; sleep 0.05; done"))
        for _ in range(3):
            before = len(await world.log(ref))

            async def goes_on(before: int = before) -> bool:
                return len(await world.log(ref)) > before + 20

            await eventually(goes_on, "it went on")
            world.emulator.cut(ref.handle)
        from daytona import AsyncDaytona

        async with AsyncDaytona() as client:
            sandbox = await client.get(ref.handle)
            sessions = await sandbox.process.list_sessions()
        assert [one.session_id for one in sessions] == [ref.run]

    play(tale)


def test_a_controller_that_comes_after_another_follows_its_runs_to_their_end(play: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        text = "for i in $(seq 1 60); do echo line $i; sleep 0.05; done"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"line 12\n")
        await world.provider.close()  # and with it all that it knew of its sessions
        world.provider = world.again()
        assert (await world.ended(ref)).ok
        lines = [b"line %d\n" % number for number in range(1, 61)]
        assert await world.log(ref) == b"".join(lines)

    play(tale)


# -- answers that say that nothing was made --------------------------------------------------------


def test_a_limit_that_is_met_after_the_create_does_not_say_that_nothing_was_made(
    play: Play,
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        soon = {"Retry-After-authenticated": "0.2"}
        world.emulator.fault(path="/toolbox/*", status=429, headers=soon, count=1)
        world.emulator.fault(operation="createSandbox", when="after", drop=True, count=1)
        world.emulator.fault(operation="getSandbox", status=429, headers=soon, count=1)
        order = world.order(script("true", image={"snapshot": "daytona-small"}))
        parts = []
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                await world.provider.start(order)
            parts.append(caught.value.perhaps_made)
            await asyncio.sleep(caught.value.retry_after_s)
        assert parts == [True, True]
        [box] = world.present()
        assert await world.provider.start(order) == box["id"]

    play(tale)


# -- secrets, and large orders ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 100_000])
def test_values_of_secrets_reach_the_task_and_nothing_else(play: Play, size: int) -> None:
    async def tale(world: DaytonaWorld) -> None:
        text = 'test "$TOKEN" = hush-hush && echo same; sleep 0.6; env >&2'
        template = command("sh", "-c", text)
        ref = await world.start(
            template, secrets={"TOKEN": "hush-hush"}, params={"text": "x" * size}
        )
        assert (await world.ended(ref)).ok
        assert (await world.log(ref)).startswith(b"same\n")
        state = json.dumps(world.emulator.state(requests=True))
        assert "hush-hush" not in state
        home = world.directory / "home"
        kept = [path for path in home.rglob("*") if path.is_file() and path.suffix != ".log"]
        assert kept
        assert not any(b"hush-hush" in path.read_bytes() for path in kept)

    play(tale)


def test_secrets_that_daytona_would_hide_from_the_task_are_refused(play: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        with pytest.raises(Refused, match="secret `wandb` has `fromProvider`"):
            await world.provider.start(world.order(command("true"), secret_refs=("wandb",)))

    play(tale)


# -- what is not known, and what is not ours -------------------------------------------------------


def test_a_listing_that_cannot_be_read_is_never_an_empty_list(play: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        ref = await world.start(python(SLEEPS))
        world.emulator.fault(operation="listSandboxes", status=503)
        with pytest.raises(Unavailable):
            await world.provider.owned()
        world.emulator.remove_faults()
        assert [one.handle for one in await world.provider.owned()] == [ref.handle]
        world.emulator.fault(operation="getSandbox", status=503)
        with pytest.raises(Unavailable):
            await world.again().stop(ref, grace_s=0)
        assert isinstance(await world.see(ref), Alive)

    play(tale)


def test_a_sandbox_of_that_name_which_is_not_ours_is_left_alone(play: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        from daytona import AsyncDaytona, CreateSandboxFromSnapshotParams

        order = world.order(python("pass"))
        name = f"{world.store_id}-{world.salt}-{order.run}"
        async with AsyncDaytona() as client:
            params = CreateSandboxFromSnapshotParams(name=name, labels={"fleet": "somebody"})
            theirs = await client.create(params)
        with pytest.raises(Refused, match="is not ours") as caught:
            await world.provider.start(order)
        assert theirs.id in caught.value.hint
        ref = RunRef(order.run, order.run, theirs.id, 0, order.uid)
        await world.provider.stop(ref, grace_s=0)
        await asyncio.sleep(0.3)
        assert world.emulator.sandbox(theirs.id)["state"] == "started"

    play(tale)


def test_a_sandbox_that_somebody_deleted_is_no_success_and_no_failure_of_the_task(
    play: Play,
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        from daytona import AsyncDaytona

        ref = await world.start(python(SLEEPS))
        await world.log_holds(ref, b"begun")
        async with AsyncDaytona() as client:
            await (await client.get(ref.handle)).delete(wait=True)
        seen = await world.lost(ref)
        assert isinstance(seen, Gone) or (isinstance(seen, Ended) and seen.infrastructure)
        assert await world.log(ref) == b"begun\n"

    play(tale)


def test_an_inert_sandbox_is_ended_by_a_stop_and_never_begins(play: Play) -> None:
    async def tale(world: DaytonaWorld) -> None:
        order = world.order(python("print('begun', flush=True)"))
        handle = await world.provider.start(order)
        ref = RunRef(order.run, order.run, handle, 0, order.uid)
        await world.provider.stop(ref, grace_s=60)
        await world.lost(ref)
        assert await world.log(ref) == b""
        assert world.present() == []

    play(tale)


def test_a_task_without_a_limit_is_ended_before_its_sandbox_is_and_goes_on_elsewhere(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_DAYTONA_LIFETIME_S", "6")  # a fifth of it is to save

    async def tale(world: DaytonaWorld) -> None:
        ref = await world.start(script("trap 'echo saved; exit 0' TERM; sleep 600 & wait"))
        seen = await world.ended(ref)
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, True, "MaxLifetime")
        assert b"saved" in await world.log(ref)

    play(tale)


def test_a_task_has_all_the_time_that_it_names_however_short_sandboxes_live_by_default(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_DAYTONA_LIFETIME_S", "301")

    async def tale(world: DaytonaWorld) -> None:
        template = script("sleep 2; echo all of it", timeoutSeconds=3 * DAY_S)
        ref = await world.start(template)
        world.emulator.advance(3 * DAY_S)
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, b"all of it\n")

    play(tale)


@pytest.mark.parametrize(
    ("template", "reusable", "least_s"),
    [
        ({"timeoutSeconds": 3 * DAY_S}, False, 3 * DAY_S),
        ({"timeoutSeconds": 3 * DAY_S}, True, 3 * DAY_S),
        ({"timeoutSeconds": 60}, True, DAY_S),
        ({}, False, DAY_S),
        ({}, True, DAY_S),
        # In line for a GPU first, for an hour perhaps.
        ({"timeoutSeconds": 60, "resources": {"gpu": "H100:1"}}, False, 3600 + 60),
    ],
)
def test_how_long_a_sandbox_lives_at_most_is_said_when_it_is_made(
    play: Play, template: dict[str, Any], reusable: bool, least_s: float
) -> None:
    async def tale(world: DaytonaWorld) -> None:
        await world.provider.start(world.order(python("pass", **template), reusable=reusable))
        [box] = world.present()
        assert least_s <= box["destroy_at_s"] - box["created_at_s"] <= least_s + 1200

    play(tale)
