"""A service that takes connections and never says a word, under everything that asks it without a
controller: each says so within our own deadline, with the address, and asks no more.
"""

from __future__ import annotations

import importlib
import io
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetctl import DaytonaInterpreter, ModalInterpreter
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.wiring.account_registry import open_store

# What the SDKs would take by themselves: half a minute for a call, a minute for a list.
TOLD_S = 25.0
PROVIDERS = ("modal", "daytona")


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """The SDKs, before any time is taken: that is the machine's affair, and no server's."""
    for sdk in PROVIDERS:
        importlib.import_module(sdk)


@dataclass(frozen=True, slots=True)
class Silence:
    """provider: whose server it is. url: as its user wrote it."""

    provider: str
    url: str

    def says(self, *words: str) -> tuple[int, str, str]:
        """Exit code, data and talk of a command, which is not kept waiting."""
        out, talk = io.StringIO(), io.StringIO()
        began_s = time.monotonic()
        code = run_guarded(list(words), Screen(out, talk))
        assert time.monotonic() - began_s < TOLD_S
        return code, out.getvalue(), talk.getvalue()


@pytest.fixture(params=PROVIDERS)
def silence(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Silence]:
    """Of one provider; the other one is not there, and has no credentials."""
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "no-modal.toml"))
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        if request.param == "modal":
            given = {"SERVER_URL": url, "TOKEN_ID": "ak-hush", "TOKEN_SECRET": "as-hush"}
        else:
            url = f"{url}/api"
            given = {"API_URL": url, "API_KEY": "dtn_hush"}
        for name, value in given.items():
            monkeypatch.setenv(f"{request.param.upper()}_{name}", value)
        monkeypatch.setenv(f"FLEETCTL_{request.param.upper()}_CONNECT_S", "0.5")
        remember(tmp_path / "home", request.param)
        yield Silence(request.param, url)


def remember(home: Path, provider: str) -> None:
    """A volume there, and a task that runs there."""
    store = open_store(home, SystemClock())
    volume = json.dumps({"provider": provider})
    job = json.dumps({"template": {"python": "1"}, "placement": {"provider": provider}})
    with store.transaction():
        for uid, kind, name, spec in (
            ("u-1", "Volume", "data", volume),
            ("u-2", "BatchJob", "job", job),
        ):
            row = Resource(uid, kind, name, 1, 0, spec, "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
        run = Run(
            "run-0", "u-2", 0, 1, RunState.STARTING, provider, "run-0", "hash", "{}", "p", 6.0
        )
        store.runs.begin([run])
        fields: dict[str, Any] = {name: getattr(run, name) for name in Run.__slots__}
        running = {**fields, "state": RunState.RUNNING, "handle": "sb-01ARZ3NDEKTSV4RRFFQ69G5FAV"}
        assert store.runs.advance(Run(**running))
    store.close()


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "volume/data"),
        ("cp", "volume/data:/a", "a"),
        ("cp", "there", "volume/data:/there"),
        ("rm", "volume/data:/a"),
        ("exec", "job/job", "--", "true"),
        ("cp", "job/job:a", "a"),
        ("orphans",),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_command_says_that_the_server_does_not_answer_and_where_it_is(
    silence: Silence, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "there").write_text("x")
    code, out, talk = silence.says(*words)
    assert (code, out) == (1, ""), talk
    assert f"at `{silence.url}`: {silence.provider.capitalize()} does not answer" in talk
    assert "hush" not in talk


def test_doctor_has_a_line_for_it_also_where_nothing_declared_needs_it(
    silence: Silence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = silence.says("doctor")
    message = f"access: unreachable: cannot {'use' if silence.provider == 'modal' else 'reach'} "
    message += f"{silence.provider.capitalize()} at `{silence.url}`: "
    [line] = [line for line in out.splitlines() if "access: " in line]
    assert (code, line.split()[0], message in line) == (1, "bad", True), line

    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "another"))
    code, out, _ = silence.says("doctor")
    [line] = [line for line in out.splitlines() if "access: " in line]
    assert (line.split()[0], message in line) == ("unreachable", True), line
    assert f"fix: curl -sS {silence.url}" in out


def test_an_interpreter_says_it_too(silence: Silence) -> None:
    kind = ModalInterpreter if silence.provider == "modal" else DaytonaInterpreter
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer") as told:
        kind(provider=silence.provider).start()
    assert f"`{silence.url}`" in str(told.value)
    assert time.monotonic() - began_s < TOLD_S


def test_orphans_waits_for_all_silent_servers_together(
    silence: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked while the other one is silent."""
    host = silence.url.removesuffix("/api")
    for name, value in {
        "MODAL_SERVER_URL": host, "MODAL_TOKEN_ID": "ak-hush", "MODAL_TOKEN_SECRET": "as-hush",
        "DAYTONA_API_URL": f"{host}/api", "DAYTONA_API_KEY": "dtn_hush",
        "FLEETCTL_MODAL_CONNECT_S": "3", "FLEETCTL_DAYTONA_CONNECT_S": "3",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    code, _, talk = silence.says("orphans")
    assert code == 1
    assert [name in talk for name in ("Modal does not answer", "Daytona does not answer")] == [
        True, True,
    ]  # fmt: skip
