"""A store's sandboxes and volumes are in one environment of one workspace: who comes with another
one is told so, before anything there seems to be gone or is made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.account import built_in
from fleetctl.providers.contract.sandbox_access import ExecStreams, ExecTarget
from fleetctl.providers.modal import modal_check
from fleetctl.providers.modal.assets.modal_volumes import ModalFiles
from fleetctl.providers.modal.connection import modal_connection
from fleetctl.providers.modal.connection.modal_connection import FILE, Workspace, WorkspaceMemory
from fleetctl.providers.modal.modal_orphans import ModalOrphans
from fleetctl.providers.modal.modal_provider import ModalProvider
from fleetctl.providers.modal.runs.modal_exec import ModalEntering
from fleetctl.specs.blocks.template import Template
from tests.contracts.modal_worlds import ModalWorld
from tests.emulators.modal.running import ModalEmulator

SLEEPS = Template(script="exec sleep 600")


def provided(home: Path, tale: Callable[[ModalProvider], Awaitable[object]]) -> None:
    """As a controller that begins anew."""

    async def scene() -> None:
        provider = ModalProvider(home, store_id="s", notify=print)
        try:
            await tale(provider)
        finally:
            await provider.close()

    asyncio.run(scene())


def test_a_controller_under_another_environment_takes_nothing_over(
    tmp_path: Path, modal_emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tale() -> None:
        world = ModalWorld(tmp_path, modal_emulator)
        try:
            ref = await world.start(SLEEPS)
            monkeypatch.setenv("MODAL_ENVIRONMENT", "other")
            after = world.again()
            another = world.order(SLEEPS, run="run-1")
            for asked in (after.start(another), after.ensure_volume("v"), after.owned()):
                with pytest.raises(Unavailable, match=r"environment `other`.*is in `main`") as told:
                    await asked
                assert "export MODAL_ENVIRONMENT=main" in told.value.hint
            assert len(modal_emulator.live()) == 1
            assert modal_emulator.state()["volumes"] == []
            monkeypatch.delenv("MODAL_ENVIRONMENT")
            assert [one.sandbox for one in await world.again().owned()] == [ref.run]
        finally:
            monkeypatch.delenv("MODAL_ENVIRONMENT", raising=False)
            await world.close()

    asyncio.run(tale())
    for left in modal_emulator.live():
        modal_emulator.do("end_sandbox", sandbox_id=left["sandbox_id"])


@pytest.mark.usefixtures("modal_emulator")
def test_a_store_that_made_a_volume_alone_is_where_its_volume_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided(tmp_path, lambda provider: provider.ensure_volume("only"))
    monkeypatch.setenv("MODAL_ENVIRONMENT", "other")
    with pytest.raises(Unavailable, match="environment `other`"):
        provided(tmp_path, lambda provider: provider.ensure_volume("only"))


@pytest.mark.usefixtures("modal_emulator")
def test_commands_that_work_without_a_controller_are_told_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided(tmp_path, lambda provider: provider.ensure_volume("mine"))
    monkeypatch.setenv("MODAL_ENVIRONMENT", "other")
    account = built_in("modal")
    place = ExecTarget("run-0", "run-0", "sb-01ARZ3NDEKTSV4RRFFQ69G5FAV")

    async def asked() -> None:
        files, orphans = ModalFiles(tmp_path, account), ModalOrphans(tmp_path, account)
        entering = ModalEntering(tmp_path, account)
        streams = ExecStreams(stdin=None, out=print, err=print)
        for one in (
            files.entries("mine", ""),
            orphans.find_all(),
            entering.execute(place, ("true",), streams),
        ):
            with pytest.raises(Unavailable, match="environment `other`"):
                await one
        [*_, access] = await modal_check.check_modal(tmp_path, account)
        assert (access.ok, "environment `other`" in access.says) == (False, True)

    asyncio.run(asked())


def test_a_workspace_that_was_noted_without_its_environment_gets_it_at_the_next_making(
    tmp_path: Path,
) -> None:
    (tmp_path / FILE).write_text("acme")
    memory = WorkspaceMemory(tmp_path)
    memory.check(Workspace("acme", "dev"))
    with pytest.raises(Refused, match="workspace `other`, and what this store runs is in `acme`"):
        memory.check(Workspace("other", "dev"))
    memory.note(Workspace("acme", "dev"))
    memory.note(Workspace("acme", "main"))  # what was noted first stays
    with pytest.raises(Refused, match="environment `main`"):
        WorkspaceMemory(tmp_path).check(Workspace("acme", "main"))
    assert (tmp_path / FILE).read_text() == "acme/dev"


def test_an_environment_that_is_not_there_is_no_missing_app(
    tmp_path: Path, modal_emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    modal_emulator.do(
        "fault", rpc="EnvironmentGetOrCreate", status="NOT_FOUND", count=1, message="no such thing"
    )
    monkeypatch.setenv("MODAL_ENVIRONMENT", "mistyped")
    with pytest.raises(Unavailable, match="has no environment `mistyped`"):
        provided(tmp_path, lambda provider: provider.ensure_volume("v"))
    assert not (tmp_path / "modal" / modal_connection.FILE).exists()
