"""Reaching Daytona, or not: what is said without the package, without a key, with a wrong one, and
when nobody answers; and what none of that costs.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.daytona.connection.daytona_connection import (
    DaytonaConnection,
    DaytonaSettings,
    from_environment,
)
from fleetctl.providers.daytona.daytona_provider import DaytonaProvider
from tests.contracts.daytona_worlds import emulated
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.daytona.settings import API_KEY_WITHOUT_ACCESS


@pytest.fixture(scope="module")
def emulator() -> Iterator[DaytonaEmulator]:
    with emulated() as one:
        yield one


def refusal(connect_s: float | None = None) -> FleetctlError:
    """What a new connection says when it is asked."""

    async def play() -> FleetctlError:
        connection = DaytonaConnection(connect_s=connect_s)
        try:
            await connection.client()
        except FleetctlError as error:
            return error
        finally:
            await connection.close()
        raise AssertionError("it answered")

    return asyncio.run(play())


def test_a_key_that_daytona_does_not_know_is_refused(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_wrong")
    error = refusal()
    assert isinstance(error, Unavailable) and error.account
    assert "does not accept the key" in str(error)
    assert "cannot reach" not in str(error)  # it was reached: it answered
    assert "DAYTONA_API_KEY" in error.hint
    assert "dtn_wrong" not in f"{error}{error.hint}"


def test_a_key_without_access_is_refused(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYTONA_API_KEY", API_KEY_WITHOUT_ACCESS)
    error = refusal()
    assert isinstance(error, Unavailable) and error.account
    assert "the key has no access" in str(error)


def test_without_a_key_it_is_said_how_to_get_one(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY")
    monkeypatch.chdir(tmp_path)
    error = refusal()
    assert isinstance(error, Unavailable) and error.account
    assert (str(error), "dashboard/keys" in error.hint) == ("there is no key for Daytona", True)


def test_a_server_that_does_not_answer_is_told_within_the_deadline(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DaytonaSettings().connect_s <= 5.0  # what is left of ten seconds is the SDK's import
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        monkeypatch.setenv("DAYTONA_API_URL", place)
        begun_s = time.monotonic()
        error = refusal(connect_s=0.5)
        assert isinstance(error, Unavailable)
        assert f"cannot reach Daytona at `{place}`: Daytona does not answer" in str(error)
        assert time.monotonic() - begun_s >= 0.5


def test_a_server_that_is_not_there_is_told(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    monkeypatch.setenv("DAYTONA_API_URL", f"http://127.0.0.1:{port}/api")
    error = refusal()
    assert isinstance(error, Unavailable)
    assert "cannot reach Daytona" in str(error)


def test_a_hundred_who_wait_hear_of_one_failure(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_wrong")
    emulator.forget_requests()

    async def play() -> list[object]:
        connection = DaytonaConnection()
        asked = (connection.client() for _ in range(100))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await connection.close()
        return list(answers)

    assert {type(answer) for answer in asyncio.run(play())} == {Unavailable}
    assert emulator.state()["requests"].get("getAllSnapshots", 0) <= 1


def test_a_setting_that_is_no_number_is_refused() -> None:
    assert from_environment({"FLEETCTL_DAYTONA_CREATES_PER_S": "2.5"}) == DaytonaSettings(
        creates_per_s=2.5
    )
    for wrong in ("0", "-1", "many", "inf", "nan"):
        with pytest.raises(Refused, match="FLEETCTL_DAYTONA_QUEUE_S is"):
            from_environment({"FLEETCTL_DAYTONA_QUEUE_S": wrong})


def test_the_sdk_is_not_imported_before_something_is_asked_of_daytona(tmp_path: Path) -> None:
    """By the sweep of a store that never used it neither."""
    code = f"""
import asyncio, sys
from pathlib import Path
from fleetctl.providers.contract.account import built_in
from fleetctl.wiring.account_registry import AccountRegistry, volume_files
async def play():
    made = AccountRegistry(Path({str(tmp_path)!r}), store_id="s", notify=print).backends
    volume_files(built_in("daytona"), Path({str(tmp_path)!r}))
    assert await made["daytona"].owned() == []
    for provider in made.values():
        await provider.close()
asyncio.run(play())
assert not [name for name in sys.modules if name.split(".")[0] in ("daytona", "aiohttp")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_package_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "daytona", None)

    async def play() -> None:
        provider = DaytonaProvider(tmp_path, store_id="s", notify=print)
        with pytest.raises(Refused, match="needs the package `daytona`") as caught:
            await provider.ensure_volume("v")
        assert caught.value.hint == install_hint("daytona")
        await provider.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("good", "answers and knows the key"),
        ("dtn_wrong", "Daytona does not accept the key"),
        (API_KEY_WITHOUT_ACCESS, "the key has no access"),
        ("", "there is none"),
    ],
)
def test_doctor_tells_what_a_key_may_do(
    emulator: DaytonaEmulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    if key != "good":
        monkeypatch.setenv("DAYTONA_API_KEY", key)
    lines, said = doctor()
    assert [line["what"] for line in lines[:2]] == ["version", "package"]
    assert says in lines[-1]["says"]
    assert lines[-1]["ok"] == (key == "good")
    assert emulator.env["DAYTONA_API_KEY"] not in said
    assert not key or key == "good" or key not in said


def test_doctor_says_what_to_install_when_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "daytona", None)
    lines, _ = doctor()
    [line] = [one for one in lines if one["what"] == "package"]
    assert line["ok"] is False
    assert line["says"] == "`daytona` is not installed"
    assert install_hint("daytona") in json.dumps(line)


def test_doctor_tells_of_a_server_that_does_not_answer(
    emulator: DaytonaEmulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLEETCTL_DAYTONA_CONNECT_S", "0.3")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        monkeypatch.setenv("DAYTONA_API_URL", place)
        lines, _ = doctor()
    assert [(line["what"], line["ok"]) for line in lines] == [
        ("version", True), ("package", True), ("key", True), ("access", False),
    ]  # fmt: skip
    assert lines[-1]["says"].startswith(f"unreachable: cannot reach Daytona at `{place}`: ")


def doctor() -> tuple[list[dict[str, Any]], str]:
    """Its lines about Daytona, and all that it said."""
    out, talk = io.StringIO(), io.StringIO()
    run_guarded(["doctor", "-o", "json"], Screen(out, talk))
    lines = [one for one in json.loads(out.getvalue()) if one["topic"] == "daytona"]
    return lines, out.getvalue() + talk.getvalue()
