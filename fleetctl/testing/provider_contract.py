"""The contract of every provider, as tests: a test module subclasses ProviderContract, and defines
how a world is built.

Each test looks at what the world shows through the provider's own verbs; none looks inside.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Alive, Ended, Gone
from fleetctl.providers.contract.base import RunRef
from fleetctl.specs.blocks.template import Template
from fleetctl.testing.provider_world import (
    ProviderWorld,
    command_task,
    contract_test,
    python_task,
    script_task,
    wait_until,
)

DEAF = """import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(600)"""
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


class ProviderContract:
    """A provider is held to all of it. A test that it cannot pass, such as that of volumes, is set
    to None in the subclass, and what it would need is refused there.
    """

    def world(self, tmp_path: Path) -> ProviderWorld:
        """Returns a new world. tmp_path: a directory of the test's own."""
        raise NotImplementedError(f"{type(self).__name__} defines `world`")

    # Beginning

    @contract_test
    async def test_a_run_is_seen_alive_and_then_ended_with_its_result(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task("SUBMIT(total=sum(range(1000)))"))
        seen = await world.ended(ref)
        assert seen.ok
        assert seen.reason == "Completed"
        assert seen.exit_code == 0
        assert json.loads(seen.result or "") == {"total": 499500}
        assert seen.started_at_s is not None
        assert seen.started_at_s <= seen.ended_at_s

    @contract_test
    async def test_the_same_order_twice_is_one_run(self, world: ProviderWorld) -> None:
        order = world.order(python_task("print('once', flush=True)"))
        ref, same = await asyncio.gather(world.begin(order), world.begin(order))
        assert ref == same
        await world.ended(ref)
        assert await world.log(ref) == b"once\n"

    @contract_test
    async def test_an_order_for_a_run_that_ended_adopts_it(self, world: ProviderWorld) -> None:
        order = world.order(python_task("print('once', flush=True)"))
        ref = await world.begin(order)
        await world.ended(ref)
        assert await world.begin(order, world.again()) == ref
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"once\n"

    @contract_test
    async def test_who_orders_a_run_that_ended_while_nobody_listened_hears_of_it(
        self, world: ProviderWorld
    ) -> None:
        order = world.order(python_task("print('once', flush=True)"))
        await world.ended(await world.begin(order))
        await world.provider.close()
        world.told.clear()
        world.provider = world.again()
        await world.begin(order)

        async def told() -> bool:
            return order.run in world.told

        await wait_until(told, f"{order.run} was named")

    @contract_test
    async def test_the_next_controller_adopts_a_living_run(self, world: ProviderWorld) -> None:
        order = world.order(python_task(WAITS))
        ref = await world.begin(order)
        await world.log_holds(ref, b"begun")
        world.provider = world.again()
        assert await world.begin(order) == ref
        assert isinstance(await world.see(ref), Alive)
        assert await world.log(ref) == b"begun\n"

    @contract_test
    async def test_two_controllers_that_race_begin_a_run_once(self, world: ProviderWorld) -> None:
        order = world.order(python_task("print('once', flush=True)"))
        both = (world.again(), world.again())
        begun = await asyncio.gather(
            *(world.begin(order, one) for one in both), return_exceptions=True
        )
        # One may come to the other's sandbox when its work is over and it is gone: it cannot know,
        # and waits, or gets Unavailable.
        assert RunRef in {type(one) for one in begun} <= {RunRef, TimeoutError, Unavailable}, begun
        ref = RunRef(order.run, order.run, "", 0, order.uid)
        await world.ended(ref)
        assert await world.log(ref) == b"once\n"

    @contract_test
    async def test_a_start_whose_first_answer_was_lost_makes_one_sandbox(
        self, world: ProviderWorld
    ) -> None:
        order = world.order(python_task("print('once', flush=True)\nimport time\ntime.sleep(600)"))
        await world.provider.start(order)
        ref = await world.begin(order, world.again())
        await world.log_holds(ref, b"once")
        assert [one.handle for one in await world.provider.owned()] == [ref.handle]
        assert await world.log(ref) == b"once\n"

    @contract_test
    async def test_a_run_is_found_by_its_name_when_its_handle_was_lost(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task(WAITS))
        lost = RunRef(ref.run, ref.sandbox, "", 0, ref.uid)
        assert (await world.alive(lost)).handle == ref.handle

    @contract_test
    async def test_parameters_reach_every_sort_of_task(self, world: ProviderWorld) -> None:
        params = {"lr": 0.5, "model-name": "small", "layers": [1, 2]}
        ref = await world.start(
            python_task("print(lr, layers, params['model-name'])"), params=params
        )
        await world.ended(ref)
        assert await world.log(ref) == b"0.5 [1, 2] small\n"
        text = "echo $TASK_LR $TASK_MODEL_NAME $TASK_LAYERS $JOB_COMPLETION_INDEX"
        text += "; cat $FLEETCTL_PARAMS"
        ref = await world.start(
            script_task(text), run="run-1", params=params, template_hash="hash-2", index=7
        )
        await world.ended(ref)
        first, _, rest = (await world.log(ref)).partition(b"\n")
        assert first == b"0.5 small [1, 2] 7"
        assert json.loads(rest) == params

    # Ending

    @contract_test
    async def test_an_exit_code_is_told_exactly(self, world: ProviderWorld) -> None:
        seen = await world.run(command_task("sh", "-c", "exit 7"))
        assert (seen.ok, seen.infrastructure) == (False, False)
        assert (seen.reason, seen.exit_code) == ("ExitCode:7", 7)

    @contract_test
    async def test_sys_exit_of_a_python_task_is_its_exit_code(self, world: ProviderWorld) -> None:
        seen = await world.run(python_task("import sys; sys.exit(3)"))
        assert (seen.ok, seen.reason, seen.exit_code) == (False, "ExitCode:3", 3)
        assert (
            await world.run(python_task("import sys; sys.exit(0)"), run="r1", template_hash="h2")
        ).ok

    @contract_test
    async def test_a_signal_is_told_by_its_name(self, world: ProviderWorld) -> None:
        seen = await world.run(script_task("kill -SEGV $$"))
        assert (seen.ok, seen.reason, seen.exit_code) == (False, "Signal:SEGV", 128 + 11)

    @contract_test
    async def test_an_exception_fails_the_run_and_its_traceback_shows_the_task_alone(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task("def half(x):\n    return x / 0\nhalf(4)"))
        seen = await world.ended(ref)
        assert (seen.ok, seen.reason) == (False, "Error")
        assert seen.message.endswith("ZeroDivisionError: division by zero")
        log = (await world.log(ref)).decode()
        assert "return x / 0" in log
        assert log.count("File ") == 2

    @contract_test
    async def test_a_command_that_is_not_there_says_so(self, world: ProviderWorld) -> None:
        seen = await world.run(command_task("no-such-program"))
        assert not seen.ok
        assert "no-such-program" in seen.message

    @contract_test
    async def test_a_run_that_takes_too_long_ends_with_timeout(self, world: ProviderWorld) -> None:
        seen = await world.run(
            python_task(WAITS, timeoutSeconds=0.5, terminationGracePeriodSeconds=0)
        )
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, False, "Timeout")
        assert seen.message.startswith("it ran longer than timeoutSeconds, which is ")

    @contract_test
    async def test_a_stop_is_confirmed_by_observation(self, world: ProviderWorld) -> None:
        """Also for a program that ignores signals."""
        ref = await world.start(python_task(DEAF))
        await world.log_holds(ref, b"begun")
        await world.provider.stop(ref, grace_s=0.1)
        seen = await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")
        assert isinstance(seen, Gone) or (isinstance(seen, Ended) and not seen.ok)
        assert ref.sandbox not in [one.sandbox for one in await world.provider.owned()]

    @contract_test
    async def test_a_task_may_clean_up_when_it_is_stopped(self, world: ProviderWorld) -> None:
        ref = await world.start(
            script_task("trap 'echo cleaned; exit 0' TERM; echo begun; sleep 600 & wait")
        )
        await world.log_holds(ref, b"begun")
        await world.provider.stop(ref, grace_s=60)
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")
        assert b"cleaned" in await world.log(ref)

    @contract_test
    async def test_stopping_what_was_never_there_or_has_ended_is_no_error(
        self, world: ProviderWorld
    ) -> None:
        await world.provider.stop(RunRef("never", "never", "", 0, "uid-1"), grace_s=0)
        ref = await world.start(python_task("SUBMIT(a=1)"))
        await world.ended(ref)
        await world.provider.stop(ref, grace_s=0)
        seen = await world.ended(ref)
        assert seen.ok

    @contract_test
    async def test_what_was_never_there_is_gone(self, world: ProviderWorld) -> None:
        assert isinstance(await world.see(RunRef("never", "never", "", 0, "uid-1")), Gone)

    @contract_test
    async def test_a_run_whose_machine_died_is_lost_and_stays_lost(
        self, world: ProviderWorld
    ) -> None:
        order = world.order(python_task(WAITS))
        ref = await world.begin(order)
        await world.alive(ref)
        await world.lose(ref)
        await world.lost(ref)
        await world.begin(order)  # adopted: its work must not begin a second time
        await world.lost(ref)
        assert ref.sandbox not in [one.sandbox for one in await world.provider.owned()]

    @contract_test
    async def test_the_outcome_of_an_ended_run_is_known_after_its_machine_died(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task("SUBMIT(a=1)"))
        before = await world.ended(ref)
        await world.lose(ref)
        assert await world.ended(ref) == before

    # Owning

    @contract_test
    async def test_only_what_carries_our_tag_is_listed_and_stopped(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task(WAITS))
        await world.alive(ref)
        stranger = world.again("store-b")
        assert [one.sandbox for one in await world.provider.owned()] == [ref.sandbox]
        assert list(await stranger.owned()) == []
        await stranger.stop(ref, grace_s=0)
        await asyncio.sleep(0.3)
        assert isinstance(await world.see(ref), Alive)

    @contract_test
    async def test_a_listed_sandbox_can_be_stopped_with_nothing_but_its_handle(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task(WAITS))
        await world.alive(ref)
        [box] = await world.provider.owned()
        await world.provider.stop(RunRef(box.sandbox, box.sandbox, box.handle, 0, ""), grace_s=0)
        await world.until(ref, lambda seen: not isinstance(seen, Alive), "stopped")

    @contract_test
    async def test_notify_names_a_run_that_changed(self, world: ProviderWorld) -> None:
        ref = await world.start(python_task("report(loss=1)"))
        await world.ended(ref)

        async def told() -> bool:
            return ref.run in world.told

        # The word travels beside what an observation reads.
        await wait_until(told, f"{ref.run} was named")

    # Refusing

    @contract_test
    async def test_a_refused_order_begins_nothing(self, world: ProviderWorld) -> None:
        order = world.order(self.refused())
        with pytest.raises(Refused) as caught:
            await world.provider.start(order)
        assert caught.value.hint
        ref = RunRef(order.run, order.run, "", 0, order.uid)
        assert isinstance(await world.see(ref), Gone)

    def refused(self) -> Template:
        """A template that this provider refuses."""
        raise NotImplementedError(f"{type(self).__name__} defines `refused`")

    # Assets

    @contract_test
    async def test_a_volume_outlives_the_runs_that_use_it_and_removing_it_empties_it(
        self, world: ProviderWorld
    ) -> None:
        volumes = [{"name": world.volume, "mountPath": "/data-of-suite"}]
        await world.provider.ensure_volume(world.volume)
        await world.provider.ensure_volume(world.volume)
        await world.run(python_task("save_to_volume('a.txt', 'kept')", volumes=volumes))
        reading = python_task("SUBMIT(text=load_from_volume('a.txt'))", volumes=volumes)
        seen = await world.run(reading, run="run-1", template_hash="h2")
        assert seen.result == '{"text":"kept"}'
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        await world.provider.remove_volume(world.volume)
        await world.provider.remove_volume(world.volume)
        seen = await world.run(reading, run="run-2", template_hash="h3", uid="uid-2")
        assert "not found" in (seen.result or "")

    @contract_test
    async def test_scratch_goes_and_logs_stay_when_they_are_to_be_kept(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task("print('said')\n1 / 0"))
        await world.ended(ref)
        await world.provider.remove_scratch(ref.uid, keep_logs=True)
        assert (await world.log(ref)).startswith(b"said")
        await world.provider.remove_scratch(ref.uid, keep_logs=False)
        await world.provider.remove_scratch(ref.uid, keep_logs=False)
        assert await world.log(ref) == b""

    # Contract

    @contract_test
    async def test_a_start_is_visible_within_the_bound_of_the_contract(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task(WAITS))
        await asyncio.sleep(world.provider.contract.visibility_bound_s)
        assert isinstance(await world.see(ref), Alive)
        assert [one.sandbox for one in await world.provider.owned()] == [ref.sandbox]

    @contract_test
    async def test_a_list_shows_finished_sandboxes_only_if_the_contract_says_so(
        self, world: ProviderWorld
    ) -> None:
        ref = await world.start(python_task("pass"))
        await world.ended(ref)
        await asyncio.sleep(world.provider.contract.visibility_bound_s)

        async def as_declared() -> bool:
            """A busy machine takes longer to remove what has ended."""
            listed = ref.sandbox in [one.sandbox for one in await world.provider.owned()]
            return listed == world.provider.contract.list_shows_finished

        await wait_until(as_declared, "finished sandboxes are listed as the contract says")
