"""Provider `modal` when things go wrong: the real SDK against the emulator, whose ground truth says
what was really begun and what still lives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import (
    Alive,
    CheckpointOrder,
    Ended,
    Gone,
    Observation,
    WandbTrial,
)
from fleetctl.controllers.wandb import observe_template
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.modal.runs import modal_creator
from tests.contracts.modal_worlds import ModalWorld, emulated
from tests.contracts.provider_worlds import command, eventually, python, script
from tests.emulators.modal.running import ModalEmulator

SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
GPU = {"resources": {"gpu": "A100:1"}}
Tale = Callable[[ModalWorld], Awaitable[None]]
Play = Callable[[Tale], None]


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: ModalEmulator) -> Iterator[Play]:
    """Tells a tale in a world of its own; afterwards the service is as it was."""

    def told(tale: Tale) -> None:
        async def scene() -> None:
            world = ModalWorld(tmp_path, emulator)
            try:
                await tale(world)
            finally:
                await world.close()

        asyncio.run(scene())

    yield told
    emulator.do("clear_faults")
    emulator.do("settings", gpu_capacity={})
    for left in emulator.live():
        emulator.do("end_sandbox", sandbox_id=left["sandbox_id"])


def made(world: ModalWorld) -> list[dict[str, Any]]:
    """Every sandbox that was ever made for this world's store."""
    fleet = f"store-a-{world.salt}"
    boxes = world.emulator.state()["sandboxes"]
    return [one for one in boxes if one["tags"].get("fleet") == fleet]


async def nothing_lives(world: ModalWorld) -> None:
    async def all_over() -> bool:
        return not any(one["live"] for one in made(world))

    await eventually(all_over, "every sandbox was over")


# -- queues ----------------------------------------------------------------------------------------


def test_a_gpu_that_is_not_free_is_said_to_be_waited_for_and_begins_once_when_it_is(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.2)

    async def tale(world: ModalWorld) -> None:
        world.emulator.do("settings", gpu_capacity={"A100": 0})
        order = world.order(python("print('once', flush=True)", **GPU))
        for _ in range(2):
            with pytest.raises(Unavailable, match="waiting for A100:1 since") as caught:
                await world.provider.start(order)
            assert caught.value.reason == "Queued"
        ref = RunRef(order.run, order.run, "", 0, order.uid)
        assert await world.see(ref) is None
        world.told.clear()
        world.emulator.do("settings", gpu_capacity={"A100": 8})

        async def told() -> bool:
            return order.run in world.told

        await eventually(told, "the start was told to go on")
        ref = await world.begin(order)
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"once\n"
        assert [one["backend"] for one in made(world)] == ["v1"]
        await nothing_lives(world)

    play(tale)


def test_stopping_a_start_that_waits_for_a_gpu_takes_it_out_of_the_queue(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.2)

    async def tale(world: ModalWorld) -> None:
        world.emulator.do("settings", gpu_capacity={"A100": 0})
        order = world.order(python(SLEEPS, **GPU))
        with pytest.raises(Unavailable):
            await world.provider.start(order)
        ref = RunRef(order.run, order.run, "", 0, order.uid)
        await world.provider.stop(ref, grace_s=10)
        await nothing_lives(world)
        assert isinstance(await world.see(ref), Gone)
        world.emulator.do("settings", gpu_capacity={"A100": 8})
        assert list(await world.provider.owned()) == []

    play(tale)


def test_the_next_controller_takes_over_a_sandbox_that_waits_for_a_gpu(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_creator, "PATIENCE_S", 0.2)

    async def tale(world: ModalWorld) -> None:
        world.emulator.do("settings", gpu_capacity={"A100": 0})
        order = world.order(python("print('once', flush=True)", **GPU))
        with pytest.raises(Unavailable):
            await world.provider.start(order)
        after = world.again()
        with pytest.raises(Unavailable) as caught:
            await after.start(order)
        assert caught.value.reason == "Queued"
        world.emulator.do("settings", gpu_capacity={"A100": 8})

        async def through() -> bool:
            try:
                return bool(await after.start(order))
            except Unavailable:
                return False

        await eventually(through, "the sandbox got its machine")
        ref = await world.begin(order, after)
        assert (await world.ended(ref)).ok
        assert len(made(world)) == 1

    play(tale)


# -- answers that are lost -------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["UNAVAILABLE", "INTERNAL", "DISCONNECT"])
def test_a_create_whose_answer_is_lost_makes_one_sandbox(play: Play, status: str) -> None:
    async def tale(world: ModalWorld) -> None:
        world.emulator.do("fault", rpc="SandboxCreateV2", status=status, when="after", count=20)
        order = world.order(python("print('once', flush=True)"))
        handle = await world.provider.start(order)
        world.emulator.do("clear_faults")
        ref = await world.begin(order)
        assert ref.handle == handle
        assert (await world.ended(ref)).ok
        assert [one["sandbox_id"] for one in made(world)] == [handle]
        await nothing_lives(world)

    play(tale)


def test_a_create_that_never_arrived_is_not_taken_for_a_refusal(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        world.emulator.do("fault", rpc="SandboxCreateV2", status="UNAVAILABLE", count=20)
        order = world.order(python("pass"))
        with pytest.raises(Unavailable, match="injected") as told:
            await world.provider.start(order)
        assert told.value.perhaps_made
        world.emulator.do("clear_faults")
        assert (await world.ended(await world.begin(order))).ok
        assert len(made(world)) == 1

    play(tale)


def test_a_terminate_whose_answer_is_lost_is_asked_again_until_it_is_confirmed(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        world.emulator.do("fault", rpc="SandboxTerminateV2", status="UNAVAILABLE", count=5)
        seen = await world.ended(await world.start(python("SUBMIT(a=1)")))
        assert (seen.ok, seen.result) == (True, '{"a":1}')
        assert not any(one["live"] for one in made(world))

    play(tale)


def test_a_router_that_is_lost_for_a_while_costs_no_output(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        text = "for i in $(seq 1 30); do echo line $i; sleep 0.05; done"
        ref = await world.start(script(text))
        await world.log_holds(ref, b"line 3")
        world.emulator.do("lose", endpoint="router", refuse_s=0.5)
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"".join(b"line %d\n" % i for i in range(1, 31))

    play(tale)


def test_a_listing_or_tags_that_cannot_be_read_are_never_an_empty_list(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        ref = await world.start(python(SLEEPS))
        for rpc in ("SandboxListV2", "SandboxTagsGetV2"):
            world.emulator.do("fault", rpc=rpc, status="UNAVAILABLE", count=50)
            with pytest.raises(Unavailable):
                await world.again().owned()
            world.emulator.do("clear_faults")
        assert [one.handle for one in await world.again().owned()] == [ref.handle]
        world.emulator.do("fault", rpc="SandboxTagsGetV2", status="UNAVAILABLE", count=50)
        with pytest.raises(Unavailable):
            await world.again().stop(ref, grace_s=0)
        assert isinstance(await world.see(ref), Alive)

    play(tale)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "after_s", "reason"),
    [
        ("Sandbox creation rate limit (5/s) exceeded", 1.5, "RateLimited"),
        ("the workspace's spend limit is reached", None, "SpendLimit"),
        ("too many containers", None, "Quota"),
    ],
)
def test_an_exhausted_limit_says_which_and_begins_nothing(
    play: Play, message: str, after_s: float | None, reason: str
) -> None:
    async def tale(world: ModalWorld) -> None:
        options = {} if after_s is None else {"retry_after_s": after_s}
        status = "RESOURCE_EXHAUSTED"
        world.emulator.do("fault", rpc="SandboxCreateV2", status=status, message=message, **options)
        order = world.order(python("pass"))
        with pytest.raises(Unavailable) as caught:
            await world.provider.start(order)
        assert caught.value.reason == reason
        assert after_s is None or caught.value.retry_after_s == after_s
        assert made(world) == []

    play(tale)


def test_a_sandbox_of_that_name_which_is_not_ours_is_left_alone(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        import modal

        app = await modal.App.lookup.aio(f"fleetctl-store-a-{world.salt}", create_if_missing=True)
        image = modal.Image.debian_slim()
        theirs = await modal.Sandbox.create.aio(
            "sleep", "600", app=app, image=image, name="run-0", tags={"fleet": "somebody"}
        )
        with pytest.raises(Refused, match="is not ours") as caught:
            await world.provider.start(world.order(python("pass")))
        assert theirs.object_id in caught.value.hint
        with pytest.raises(Refused):
            await world.provider.stop(RunRef("run-0", "run-0", "", 0, "uid-1"), grace_s=0)
        await world.provider.stop(RunRef("run-0", "run-0", theirs.object_id, 0, "uid-1"), grace_s=0)
        assert world.emulator.sandbox(theirs.object_id)["live"]

    play(tale)


# -- lives and deaths ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "verb", "reason"),
    [
        ({"gpu": "A100:1"}, "preempt", "Preempted"),
        ({}, "preempt", "ProviderLost"),
        ({}, "end_sandbox", "Terminated"),
    ],
)
def test_a_sandbox_that_somebody_else_ended_is_no_success_and_no_failure_of_the_task(
    play: Play, resources: dict[str, str], verb: str, reason: str
) -> None:
    async def tale(world: ModalWorld) -> None:
        ref = await world.start(python(SLEEPS, resources=resources))
        await world.log_holds(ref, b"begun")
        world.emulator.do(verb, sandbox_id=ref.handle)
        seen = await world.lost(ref)
        assert (seen.reason if isinstance(seen, Ended) else "gone") == reason
        assert await world.log(ref) == b"begun\n"

    play(tale)


def test_a_task_without_a_limit_is_ended_before_its_sandbox_is_and_goes_on_elsewhere(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Eight seconds of work: the sandbox is made and the trap is set by then on a busy machine too.
    monkeypatch.setenv("FLEETCTL_MODAL_LIFETIME_S", "308")

    async def tale(world: ModalWorld) -> None:
        text = "trap 'echo saved; exit 0' TERM; echo begun; sleep 600 & wait"
        ref = await world.start(script(text))
        seen = await world.ended(ref)
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, True, "MaxLifetime")
        assert b"saved" in await world.log(ref)

    play(tale)


def test_an_inert_sandbox_is_ended_by_a_stop_and_never_begins(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        order = world.order(python("print('begun', flush=True)"))
        handle = await world.provider.start(order)
        ref = RunRef(order.run, order.run, handle, 0, order.uid)
        await world.provider.stop(ref, grace_s=60)
        await nothing_lives(world)
        await world.lost(ref)
        assert await world.log(ref) == b""

    play(tale)


def test_an_order_for_an_inert_sandbox_that_is_over_is_lost_and_begins_nothing(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        order = world.order(python("print('begun', flush=True)"))
        handle = await world.provider.start(order)
        world.emulator.do("end_sandbox", sandbox_id=handle)
        assert await world.provider.start(replace(order, handle=handle)) == handle
        await world.lost(RunRef(order.run, order.run, handle, 0, order.uid))
        assert len(made(world)) == 1

    play(tale)


def test_a_volume_that_somebody_deleted_is_made_again_for_the_next_start(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        import modal

        name = f"data-{world.salt}"
        volumes = [{"name": name, "mountPath": "/data-of-test"}]
        template = python("save_to_volume('a', 'b')", volumes=volumes)
        assert (await world.run(template)).ok
        await modal.Volume.objects.delete.aio(name)
        order = world.order(template, run="run-1")
        with pytest.raises(Unavailable):
            await world.provider.start(order)
        assert (await world.ended(await world.begin(order))).ok

    play(tale)


def test_commands_run_in_an_image_that_has_no_python(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        text = """echo out; echo '{"a": [1]}' > $FLEETCTL_RESULT; test "$TOKEN" = hush"""
        bare = {"registry": "example.org/bare"}
        template = script(text, image=bare)
        ref = await world.start(template, secrets={"TOKEN": "hush"})
        seen = await world.ended(ref)
        assert (seen.ok, seen.result) == (True, '{"a":[1]}')
        assert await world.log(ref) == b"out\n"
        seen = await world.run(
            script("exit 7", image={"registry": "example.org/bare"}), run="run-1"
        )
        assert (seen.ok, seen.reason) == (False, "ExitCode:7")
        assert [one["tags"]["guest"] for one in made(world)] == ["posix", "posix"]

    play(tale)


def test_in_an_image_of_a_registry_wandb_is_told_the_parameters_too(play: Play) -> None:
    """Its program is Python, so Python is there to follow what it tells."""

    async def tale(world: ModalWorld) -> None:
        text = "import os; print(open(os.environ['WANDB_SWEEP_PARAM_PATH']).read())"
        wandb = WandbTrial("lr", "", "", only=False)
        template = observe_template(command("python3", "-c", text, image="example.org/bare"), wandb)
        ref = await world.start(template, params={"lr": 3e-05}, wandb=wandb)
        assert (await world.ended(ref)).ok
        assert b"3.0e-05" in await world.log(ref)
        assert [one["tags"]["guest"] for one in made(world)] == ["python"]

    play(tale)


# -- manners ---------------------------------------------------------------------------------------


def test_a_run_that_goes_on_is_followed_without_calls(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        refs = [await world.start(python(SLEEPS), run=f"run-{n}") for n in range(3)]
        for ref in refs:
            await world.log_holds(ref, b"begun")
        world.emulator.do("clear_log")
        for _ in range(30):
            assert len(await world.provider.observe(refs)) == 3
            await asyncio.sleep(0.02)
        assert world.emulator.log() == []

    play(tale)


def test_a_task_costs_five_calls_once_its_image_is_known(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        await world.run(python("pass"))
        world.emulator.do("clear_log")
        await world.run(python("pass"), run="run-1")
        assert world.emulator.rpcs() == {
            "SandboxCreateV2": 1,
            "TaskExecStart": 1,
            "TaskExecStdioRead": 1,
            "SandboxTerminateV2": 1,
            "SandboxWaitV2": 1,
        }

    play(tale)


def test_values_of_secrets_reach_the_task_and_nothing_else(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        template = command("sh", "-c", 'test "$TOKEN" = hush-hush && echo same')
        ref = await world.start(template, secrets={"TOKEN": "hush-hush"})
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"same\n"
        assert "hush-hush" not in json.dumps([world.emulator.state(), world.emulator.log()])
        kept = [path for path in world.directory.rglob("*") if path.is_file()]
        assert kept
        assert not any(b"hush-hush" in path.read_bytes() for path in kept)

    play(tale)


def test_an_order_larger_than_an_argument_may_be_reaches_the_guest(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        ref = await world.start(python("SUBMIT(n=len(text))"), params={"text": "x" * 100_000})
        assert (await world.ended(ref)).result == '{"n":100000}'

    play(tale)


def test_secrets_that_modal_keeps_are_in_the_environment(play: Play) -> None:
    async def tale(world: ModalWorld) -> None:
        world.emulator.do("secret", name="wandb", values={"WANDB_API_KEY": "kept-there"})
        ref = await world.start(command("sh", "-c", "echo $WANDB_API_KEY"), secret_refs=("wandb",))
        await world.ended(ref)
        assert await world.log(ref) == b"kept-there\n"

    play(tale)


# -- checkpoints -----------------------------------------------------------------------------------


def test_case_3_a_preemption_loses_no_published_checkpoint(play: Play) -> None:
    """Long before the next commit of a volume is due: each complete checkpoint has its own."""
    saves = """
cd /data/run
mkdir -p step-00000075 step-00000080
echo weights > step-00000075/model
echo '{"format": 1, "step": 75, "files": {"model": [8, null]}}' > step-00000075/_COMPLETE.json
echo half > step-00000080/model
sleep 600
"""
    goes_on = 'echo "from ${FLEETCTL_RESUME_FROM:-nothing} $FLEETCTL_RESUME_STEP"; ls -A /data/run'
    checkpoint = CheckpointOrder("/data/run", "auto", "Latest")

    async def tale(world: ModalWorld) -> None:
        volume = f"checkpoints-{world.salt}"
        volumes = [{"name": volume, "mountPath": "/data"}]
        text = f"mkdir -p /data/run; {saves}"
        ref = await world.start(script(text, volumes=volumes), checkpoint=checkpoint)
        seen = await world.until(ref, _saved_one, "saved a checkpoint")
        assert [one.step for one in seen.checkpoints.saved] == [75]  # type: ignore[union-attr]
        world.emulator.do("preempt", sandbox_id=ref.handle)
        await world.lost(ref)
        second = await world.start(
            script(goes_on, volumes=volumes), run="run-1", attempt=2, checkpoint=checkpoint
        )
        ended = await world.ended(second)
        assert (ended.ok, ended.checkpoints.resumed) == (True, 75)
        log = (await world.log(second)).decode()
        assert "from /data/run/step-00000075 75\n" in log
        # What is not there is told before a sandbox is made.
        made = len(world.emulator.state()["sandboxes"])
        missing = replace(checkpoint, resume="step:70")
        with pytest.raises(Refused, match=r"step:70`.*no such checkpoint; the newest are: 75"):
            await world.start(script(goes_on, volumes=volumes), run="run-2", checkpoint=missing)
        assert len(world.emulator.state()["sandboxes"]) == made

    play(tale)


def test_a_mirror_that_the_image_cannot_reach_is_told_and_ends_nothing(play: Play) -> None:
    saves = """
mkdir -p /data/run/step-00000010 && cd /data/run/step-00000010
echo weights > model
echo '{"format": 1, "step": 10, "files": {"model": [8, null]}}' > _COMPLETE.json
"""
    asked = CheckpointOrder("/data/run", "auto", "Latest", mirror="file:///copies")

    async def tale(world: ModalWorld) -> None:
        volumes = [{"name": f"mirrored-{world.salt}", "mountPath": "/data"}]
        ref = await world.start(script(saves, volumes=volumes), checkpoint=asked)
        ended = await world.ended(ref)
        assert ended.ok and [one.step for one in ended.checkpoints.saved] == [10]
        restored, copied = ended.checkpoints.unmirrored
        why = "No module named 'fsspec': add the package to `image.pip`"
        assert restored == f"nothing was brought back from the mirror: {why}"
        assert copied == f"checkpoint `step-00000010` is not at the mirror: {why}"

    play(tale)


def _saved_one(seen: Observation) -> bool:
    return isinstance(seen, Alive | Ended) and bool(seen.checkpoints.saved)
