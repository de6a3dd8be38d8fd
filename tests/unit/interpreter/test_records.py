"""Sandboxes of interpreters are on record before they are made, with the one whose code asked for
them, and end with their program, however that ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleetctl import Interpreter
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.state_paths import INTERPRETERS_DB, find_state_dir
from fleetctl.daemon.background_work import sweep_forever
from fleetctl.interpreter.asking import rlm
from fleetctl.providers.contract.sandbox_access import Session, SessionRequest
from fleetctl.stores.interpreters import InterpreterRun, InterpreterRuns
from fleetctl.views.spending import open_asking
from fleetctl.wiring import account_registry, interpreters
from tests.interpreters import Place
from tests.unit.interpreter.conftest import Make
from tests.unit.interpreter.test_recursion import one_step

NESTED = "SUBMIT(answer=rlm_query(context, context='print(llm_query(\"deep\"))'))"
# A program that waits in the code of a child for a word that never comes.
PROGRAM = """
import os, sys
from fleetctl import Interpreter
from fleetctl.interpreter.asking import rlm
from tests.unit.interpreter.test_recursion import one_step
rlm.answer_query, rlm.check_installed = one_step, lambda: None
def model(prompt):
    print('asked', flush=True)
    sys.stdin.read()
options = {'sub_lm': model, 'children': 'sandbox', 'llm_call_timeout': 600}
with Interpreter(provider=sys.argv[1], **options) as interpreter:
    interpreter.execute("rlm_query('llm_query(context)', context='x')")
"""


@pytest.fixture
def _loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlm, "answer_query", one_step)
    monkeypatch.setattr(rlm, "check_installed", lambda: None)


def rows() -> list[dict[str, Any]]:
    with open_asking(find_state_dir()) as asking:
        answer = asking.ask("select * from interpreters order by depth, created_at")
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


@contextmanager
def program(place: Place) -> Iterator[subprocess.Popen[str]]:
    """It has a sandbox and one below it, whose code waits."""
    env = {**os.environ, **place.variables}
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, place.name],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None and started.stdout.readline() == "asked\n"
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.usefixtures("_loop")
def test_a_sandbox_below_another_is_on_record_with_its_parent_depth_and_use(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[tuple[str, str]] = []
    opener = account_registry.session_opener

    def watched(provider: str, home: Path) -> Any:
        async def open_session(where: Path, request: SessionRequest) -> Session:
            known.append(
                (request.parent, {row["run"]: row["state"] for row in rows()}[request.name])
            )
            return await opener(provider, home)(where, request)

        return open_session

    monkeypatch.setattr(account_registry, "session_opener", watched)
    interpreter = make(sub_lm=str.upper, children="sandbox")
    interpreter.execute("print(llm_query('a')); rlm_query(code, context=code)", {"code": NESTED})
    first, second, third = rows()
    assert known == [("", "Starting"), (first["run"], "Starting"), (second["run"], "Starting")]
    assert [row["parent"] for row in (first, second, third)] == [None, first["run"], second["run"]]
    assert [row["state"] for row in (first, second, third)] == ["Running", "Stopped", "Stopped"]
    assert [row["calls"] for row in (first, second, third)] == [None, 0, 1]
    assert json.loads(third["usage"])[0]["depth"] == 2
    interpreter.shutdown()
    (first, *_) = rows()
    assert (first["state"], first["calls"], first["depth"]) == ("Stopped", 1, 0)
    assert not InterpreterRuns(find_state_dir()).living()


def test_a_context_is_in_the_sandbox_of_its_parent_and_its_calls_count_there(
    _loop: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    with Interpreter(provider="local", sub_lm=str.upper) as interpreter:
        interpreter.execute("llm_query('a')")
        interpreter.execute("rlm_query('llm_query(\"b\")')")
    (only,) = rows()
    assert [(use["depth"], use["calls"]) for use in json.loads(only["usage"])] == [(0, 1), (1, 1)]


def test_what_a_killed_program_left_is_ended_and_what_a_living_one_uses_is_not(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    from fleetctl.cli.main import main

    with program(place) as killed, program(place) as living:
        assert place.sandboxes() == 4
        killed.kill()
        killed.wait()
        listing = ["orphans", "--provider", place.name, "-o", "json"]
        if place.name != "local":  # where sandboxes of a killed program end by themselves
            assert main(listing) == 0
            listed = json.loads(capsys.readouterr().out)
            pids = {row["run"]: row["pid"] for row in rows()}
            assert {pids[one["run"]] for one in listed} == {killed.pid}
            assert sorted(one["parent"] is None for one in listed) == [False, True]
        ended = asyncio.run(interpreters.sweep_interpreters(find_state_dir()))
        assert [one.depth for one in ended] == [1, 0] and ended[0].parent == ended[1].name
        assert place.sandboxes() == 2
        told = {(row["pid"], row["state"], row["reason"], row["calls"]) for row in rows()}
        assert told == {
            (killed.pid, "Lost", "ProgramEnded", None),
            (living.pid, "Running", None, None),
        }
        assert asyncio.run(interpreters.sweep_interpreters(find_state_dir())) == []
        assert main(["get", "interpreters"]) == 0
        lines = capsys.readouterr().out.splitlines()
        tree = [line for line in lines if "Lost" in line]
        assert tree[0].startswith(ended[1].name) and tree[1].startswith(f"  {ended[0].name}")
    asyncio.run(interpreters.sweep_interpreters(find_state_dir()))


def test_a_program_that_begins_ends_what_another_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLEETCTL_PROVIDER", raising=False)
    code = (
        "import sys, os; from pathlib import Path; from fleetctl.stores.interpreters import *;"
        "runs = InterpreterRuns(Path(sys.argv[1]));"
        "runs.begin(InterpreterRun('left', '', 0, 'local')); runs.started('left'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(find_state_dir())], check=False)
    assert [run.name for run in InterpreterRuns(find_state_dir()).left()] == ["left"]
    with Interpreter(provider="local") as interpreter:
        interpreter.execute("1")
        # In its own time: it is in nobody's way.
        until = 0
        while InterpreterRuns(find_state_dir()).left():
            interpreter.execute("2")
            until += 1
            assert until < 1000
    assert {row["run"]: row["state"] for row in rows()}["left"] == "Lost"


def test_without_a_place_for_records_an_interpreter_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    (tmp_path / INTERPRETERS_DB).parent.write_text("not a directory")
    with Interpreter(provider="local") as interpreter:
        assert interpreter.execute("print(1)") == "1\n"
    assert "not recorded" in caplog.text


def test_a_request_that_may_still_make_a_sandbox_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    young = InterpreterRun("young", "", 0, "local", {}, created_at_s=1e12)
    old = InterpreterRun("old", "", 0, "local", {}, created_at_s=0.0)
    monkeypatch.setattr(InterpreterRuns, "left", lambda _: [young, old])
    InterpreterRuns(tmp_path).begin(young)
    assert asyncio.run(interpreters.sweep_interpreters(tmp_path)) == [old]


def test_a_program_of_another_machine_is_nobodys_to_judge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = InterpreterRuns(tmp_path)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.node", lambda: "elsewhere")
        runs.begin(InterpreterRun("theirs", "", 0, "local"))
    monkeypatch.setattr("fleetctl.stores.interpreters.is_held", lambda _: False)
    runs.begin(InterpreterRun("ours", "", 0, "local"))
    assert [run.name for run in runs.left()] == ["ours"]


def test_a_controller_ends_what_killed_programs_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = InterpreterRuns(tmp_path)
    runs.begin(InterpreterRun("left", "", 0, "local"))
    runs.started("left")

    async def controller() -> None:
        sweeping = asyncio.ensure_future(sweep_forever(tmp_path, every_s=0.0))
        assert runs.living() == {"left"}
        for _ in range(20):
            await asyncio.sleep(0)
        assert runs.living() == {"left"}
        monkeypatch.setattr("fleetctl.stores.interpreters.is_held", lambda _: False)
        while runs.left():
            await asyncio.sleep(0)
        sweeping.cancel()

    asyncio.run(controller())


def test_a_sandbox_that_cannot_be_removed_keeps_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = InterpreterRuns(tmp_path)
    for name in ("a", "b"):
        runs.begin(InterpreterRun(name, "", 0, "local"))
        runs.started(name)

    async def end(_: Path, name: str, __: object) -> bool:
        if name == "a":
            raise PermissionError("a directory of somebody else")
        return True

    monkeypatch.setattr(interpreters, "session_ender", lambda *_: end)
    monkeypatch.setattr("fleetctl.stores.interpreters.is_held", lambda _: False)
    assert [run.name for run in asyncio.run(interpreters.sweep_interpreters(tmp_path))] == ["b"]
    assert [run.name for run in runs.left()] == ["a"]


def test_a_sandbox_that_may_have_been_made_stays_on_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Until the sweep has asked for it: that its request was not answered is no end."""
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    errors = [Unavailable("no answer"), Refused("no such image", hint="name another")]

    def failing(*_: object) -> Any:
        async def open_session(*_: object) -> Session:
            raise errors.pop(0)

        return open_session

    monkeypatch.setattr(account_registry, "session_opener", failing)
    for error in tuple(errors):
        with pytest.raises(type(error)):
            Interpreter(provider="local").execute("1")
    assert sorted(row["state"] for row in rows()) == ["Refused", "Starting"]
    assert len(InterpreterRuns(find_state_dir()).living()) == 1
