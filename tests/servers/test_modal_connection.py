"""Reaching Modal, or not: what is said without the package, without a token, with a wrong one, and
when nobody answers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.modal.connection.modal_connection import ModalConnection
from fleetctl.providers.modal.modal_provider import ModalProvider
from tests.contracts.modal_worlds import emulated
from tests.emulators.modal.running import ModalEmulator
from tests.emulators.modal.state import NO_ACCESS_TOKEN_ID

PATIENCE_S = 240.0  # with who answers; the machine may be busy


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


def refusal(ask: Callable[[ModalConnection], Awaitable[object]], connect_s: float) -> FleetctlError:
    """What a new connection says when it is asked."""

    async def play() -> FleetctlError:
        connection = ModalConnection("store-a", connect_s=connect_s)
        try:
            await ask(connection)
        except FleetctlError as error:
            return error
        finally:
            await connection.close()
        raise AssertionError("it answered")

    return asyncio.run(play())


def test_a_token_that_modal_does_not_know_is_refused(
    emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-wrong-secret")
    error = refusal(ModalConnection.app, connect_s=PATIENCE_S)
    assert isinstance(error, Unavailable)
    assert (error.account, error.reason) == (True, "KeyRefused")
    assert "does not accept the token" in str(error)
    assert "MODAL_TOKEN_ID" in error.hint
    assert "as-wrong-secret" not in f"{error}{error.hint}"


def test_a_token_without_access_is_refused(
    emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_TOKEN_ID", NO_ACCESS_TOKEN_ID)
    error = refusal(ModalConnection.app, connect_s=PATIENCE_S)
    assert isinstance(error, Unavailable)
    assert (error.account, error.reason) == (True, "AccessDenied")
    assert "no access" in str(error)


def test_no_token_at_all_is_refused_with_the_way_to_get_one(
    emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODAL_TOKEN_ID")
    monkeypatch.delenv("MODAL_TOKEN_SECRET")
    error = refusal(ModalConnection.client, connect_s=PATIENCE_S)
    assert isinstance(error, Unavailable)
    assert (error.account, error.reason) == (True, "KeyMissing")
    assert "modal token new" in error.hint


@pytest.mark.parametrize("listens", [False, True], ids=["closed", "silent"])
def test_a_server_that_does_not_answer_is_unavailable_within_our_own_deadline(
    emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        monkeypatch.setenv("MODAL_SERVER_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        error = refusal(ModalConnection.app, connect_s=0.5)
    assert isinstance(error, Unavailable)
    assert "does not answer" in str(error)


def test_a_hundred_starts_that_wait_for_a_dead_server_wait_for_one_deadline(
    emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MODAL_SERVER_URL", f"http://127.0.0.1:{server.getsockname()[1]}")

        async def play() -> list[object]:
            connection = ModalConnection("store-a", connect_s=0.5)
            began_s = time.monotonic()
            answers = await asyncio.gather(
                *(connection.app() for _ in range(100)), return_exceptions=True
            )
            assert time.monotonic() - began_s < 100 * 0.5
            await connection.close()
            return answers

        answers = asyncio.run(play())
    assert [type(answer) for answer in answers] == [Unavailable] * 100


def test_a_connection_that_was_refused_is_tried_again_at_once(
    emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        connection = ModalConnection("store-a", connect_s=PATIENCE_S)
        with monkeypatch.context() as without:
            without.delenv("MODAL_TOKEN_ID")
            with pytest.raises(Unavailable):
                await connection.app()
        assert (await connection.app()).app_id
        await connection.close()

    asyncio.run(play())


def test_without_the_package_the_refusal_says_how_to_install_it(tmp_path: Path) -> None:
    code = """
import asyncio, sys
sys.modules["modal"] = None
from fleetctl.common.errors import Unavailable
from fleetctl.providers.modal.connection.modal_connection import ModalConnection
try:
    asyncio.run(ModalConnection("store").client())
except Unavailable as error:
    assert error.account
    print(error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == install_hint("modal") + "\n"


def test_a_provider_that_nothing_was_asked_of_never_imports_the_sdk(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from fleetctl.providers.contract.base import RunRef
from fleetctl.wiring.account_registry import AccountRegistry
async def play():
    registry = AccountRegistry(Path({str(tmp_path)!r}), store_id="s", notify=print)
    provider = registry.backends["modal"]
    assert await provider.owned() == []
    await provider.remove_scratch("uid-1", keep_logs=False)
    await provider.close()
asyncio.run(play())
print("modal" in sys.modules, "grpclib" in sys.modules)
"""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=60, check=True, env=environ,
    )  # fmt: skip
    assert done.stdout == "False False\n"


@pytest.mark.usefixtures("emulator")
def test_a_wrong_setting_is_told_to_who_needs_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_MODAL_CALL_S", "soon")
    from tests.contracts.local_worlds import LocalWorld

    order = LocalWorld(tmp_path).order()

    async def play() -> None:
        provider = ModalProvider(tmp_path, store_id="s", notify=print)
        # Of this machine, and of no template: a wrong variable must end no job.
        with pytest.raises(Unavailable, match="FLEETCTL_MODAL_CALL_S") as told:
            await provider.start(order)
        assert told.value.account
        await provider.close()

    asyncio.run(play())
