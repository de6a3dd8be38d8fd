"""Provider `modal` with `runtime: function` against the suite of all providers.

Left out is what speaks of sandboxes: nothing is listed for the sweep, since a call ends by itself,
and which container takes a task is Modal's choice. What stands in their place is in
tests/servers/test_modal_functions_*.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.controllers.model import Alive
from fleetctl.providers.contract.base import RunRef
from fleetctl.specs.blocks.template import Template
from tests.contracts.modal_worlds import FunctionWorld, emulated
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, python, story
from tests.emulators.modal.running import ModalEmulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


class TestModalFunctions(ProviderSuite):
    sort = "modal"
    reads_contents = False
    whole = False

    test_a_start_whose_first_answer_was_lost_makes_one_sandbox = None
    test_only_what_carries_our_tag_is_listed_and_stopped = None
    test_a_listed_sandbox_can_be_stopped_with_nothing_but_its_handle = None
    test_a_start_is_visible_within_the_bound_of_the_contract = None
    test_globals_persist_between_tasks_of_one_sandbox = None
    test_commands_of_one_sandbox_share_its_directory = None
    test_trials_of_one_sandbox_are_kept_apart = None
    test_a_task_of_a_shared_sandbox_finds_what_a_fresh_one_finds = None
    test_a_command_of_a_shared_sandbox_has_its_own_parameters_alone = None
    test_term_unwinds_a_task_whatever_the_one_before_made_of_it = None
    test_an_error_leaves_the_sandbox_open_and_a_death_closes_it = None
    test_a_task_for_a_closed_sandbox_ends_unbegun_through_no_fault_of_its_own = None
    test_stopping_an_idle_sandbox_closes_it = None
    test_a_large_file_comes_whole = None
    # Refused, or observed in tests/servers/test_modal_functions_*.py: see field_effects.py.
    test_a_task_reaches_the_hosts_of_its_network_alone = None
    test_a_task_calls_the_gateway_of_its_endpoints = None
    test_a_machine_has_the_resources_of_its_template = None
    test_a_machine_has_room_for_its_services = None
    # Calls of one container share its copy of the source; docs/how-to/run-on-modal.md says so.
    test_a_task_finds_the_source_as_it_is_whatever_the_one_before_did = None

    @pytest.fixture(autouse=True)
    def _emulator(self, emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.emulator = emulator
        monkeypatch.setenv("FLEETCTL_MODAL_LOOK_S", "0.2")
        monkeypatch.setenv("FLEETCTL_MODAL_CALL_WAIT_S", "0.2")

    @story
    async def test_a_call_of_another_store_is_not_stopped(self, world: World) -> None:
        ref = await world.start(python("import time\nprint('begun', flush=True)\ntime.sleep(600)"))
        await world.log_holds(ref, b"begun")
        await world.again("store-b").stop(ref, grace_s=0)
        await asyncio.sleep(0.5)
        assert isinstance(await world.see(ref), Alive)
        await world.provider.stop(ref, grace_s=0)
        assert not (await world.ended(ref)).ok

    @story
    async def test_a_changed_value_of_a_secret_reaches_the_next_call(self, world: World) -> None:
        shown = python("import os; SUBMIT(value=os.environ['TOKEN'])")
        for at, value in enumerate(("old", "new", "old")):
            secrets = {"TOKEN": value}
            seen = await world.run(shown, run=f"run-{at}", secrets=secrets)
            assert seen.result == f'{{"value":"{value}"}}'

    @story
    async def test_a_call_whose_id_was_lost_cannot_begin_after_its_stop(self, world: World) -> None:
        order = world.order(python("print('begun')"))
        first = await world.provider.start(order)
        waiting = RunRef(order.run, order.run, first, 0, order.uid)
        await world.provider.stop(waiting, grace_s=0)
        assert not (await world.ended(waiting)).ok
        ref = await world.begin(order)
        assert (await world.ended(ref)).reason == "Stopped"
        assert await world.log(ref) == b""

    def world(self, tmp_path: Path) -> World:
        return FunctionWorld(tmp_path, self.emulator)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})
