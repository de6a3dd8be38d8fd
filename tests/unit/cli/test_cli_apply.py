"""`apply` as a thin client: what it sends, and what it makes of each reply."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.sqlite.store import open_store
from tests.cli_controller import controller

OK = {"ok": True, "results": [{"key": "batchjob/x", "outcome": "created", "message": "3 tasks"}]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("FLEETCTL_HOME", str(place))
    monkeypatch.chdir(tmp_path)
    return place


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def replies(*answers: dict[str, object]) -> Callable[[bytes], bytes]:
    """Each request gets the next answer, the last one for ever."""
    left = list(answers)

    def respond(_line: bytes) -> bytes:
        return json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode() + b"\n"

    return respond


def sent(asked: Sequence[bytes]) -> list[dict[str, object]]:
    return [json.loads(line) for line in asked]


def test_the_raw_text_is_sent_with_its_path_and_directory(home: Path) -> None:
    Path("jobs").mkdir()
    Path("jobs/a.yaml").write_text("kind: no: yaml\n")
    with controller(home, replies(OK)) as asked:
        code, out, _ = fleetctl("apply", "-f", "jobs/a.yaml")
    assert (code, out) == (0, "batchjob/x created  3 tasks\n")
    (request,) = sent(asked)
    assert request["verb"] == "apply"
    assert "env" not in request
    (document,) = request["documents"]  # type: ignore[misc]
    assert document["path"] == "jobs/a.yaml"
    assert document["text"] == "kind: no: yaml\n"
    assert document["dir"] == str(Path("jobs").absolute())


def test_a_directory_stands_for_its_manifests_in_order(home: Path) -> None:
    Path("d").mkdir()
    for name in ("b.yaml", "a.yml", "c.json", ".hidden.yaml", "note.txt"):
        Path("d", name).write_text(f"kind: {name}")
    with controller(home, replies(OK)) as asked:
        fleetctl("apply", "-f", "d")
    documents: Any = sent(asked)[0]["documents"]
    assert [one["path"] for one in documents] == ["d/a.yml", "d/b.yaml", "d/c.json"]


def test_variables_are_sent_only_when_they_are_asked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.yaml").write_text("x")
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    monkeypatch.delenv("OTHER_TOKEN", raising=False)
    need = {"ok": False, "needEnv": ["HF_TOKEN", "OTHER_TOKEN"]}
    with controller(home, replies(need, OK)) as asked:
        code, out, talk = fleetctl("apply", "-f", "a.yaml")
    first, second = sent(asked)
    assert "env" not in first
    assert second["env"] == {"HF_TOKEN": "s3cret"}
    assert code == 0
    assert "s3cret" not in out + talk


def test_all_errors_of_a_refusal_are_shown_with_their_hints_and_code(home: Path) -> None:
    Path("a.yaml").write_text("x")
    hint = "did you mean `y`?"
    no = {
        "ok": False,
        "code": 2,
        "errors": ["a.yaml:1:2: bad", "a.yaml:3:4: bad"],
        "findings": [
            {"file": "a.yaml", "line": 1, "column": 2, "message": "bad", "hint": hint},
            {"file": "a.yaml", "line": 3, "column": 4, "message": "bad", "severity": "later"},
        ],
    }
    with controller(home, replies(no)):
        code, out, talk = fleetctl("apply", "-f", "a.yaml", "--wait")
    assert (code, out) == (2, "")
    assert talk == ("error: a.yaml:1:2: bad\nhint: did you mean `y`?\nerror: a.yaml:3:4: bad\n")


def test_warnings_are_talk_and_outcomes_are_data(home: Path) -> None:
    Path("a.yaml").write_text("x")
    with controller(home, replies({**OK, "warnings": ["env KEY looks like a secret\x1b[2J"]})):
        code, out, talk = fleetctl("apply", "-f", "a.yaml")
    assert code == 0
    assert out == "batchjob/x created  3 tasks\n"
    assert talk == "warning: env KEY looks like a secret\\x1b[2J\n"


def test_a_file_that_is_not_there_is_told_before_anything_is_sent(home: Path) -> None:
    Path("sweep.yaml").write_text("x")
    with controller(home, replies(OK)) as asked:
        code, _, talk = fleetctl("apply", "-f", "sweeep.yaml")
    assert code == 4
    assert "hint: did you mean `sweep.yaml`?" in talk
    assert asked == []


def test_suspend_says_what_the_controller_did(home: Path) -> None:
    done = {"ok": True, "results": [{"key": "batchjob/x", "outcome": "unchanged", "message": ""}]}
    with controller(home, replies(done)) as asked:
        code, out, _ = fleetctl("suspend", "job/x")
    assert (code, out) == (0, "batchjob/x unchanged\n")
    assert sent(asked) == [{"verb": "suspend", "keys": ["batchjob/x"], "each": True}]


LOSS = {
    "ok": False,
    "code": 3,
    "errors": ["batchjob/x: 2 running tasks would be replaced"],
    "losses": ["batchjob/x: 2 running tasks would be replaced"],
    "hint": "add --yes to do it all the same",
}


class Typed(io.TextIOWrapper):
    """What a person types, or what comes in while a person sits there."""

    def __init__(self, text: str) -> None:
        super().__init__(io.BytesIO(text.encode()))

    def isatty(self) -> bool:
        return True


def on_a_terminal(answer: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    """Exit code and talk of a command whose terminal answers so."""
    monkeypatch.setattr("sys.stdin", Typed(answer))
    talk = io.StringIO()
    code = run_guarded(list(words), Screen(io.StringIO(), talk, talk_is_terminal=True))
    return code, talk.getvalue()


def test_losses_are_refused_without_a_terminal_and_never_asked(home: Path) -> None:
    Path("a.yaml").write_text("x")
    with controller(home, replies(LOSS, OK)) as asked:
        code, _, talk = fleetctl("apply", "-f", "a.yaml")
    assert (code, len(asked)) == (3, 1)
    assert talk == (
        "error: batchjob/x: 2 running tasks would be replaced\n"
        "hint: add --yes to do it all the same\n"
    )


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 3), ("", 3)])
def test_a_person_at_a_terminal_is_asked_and_only_a_yes_is_a_yes(
    home: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    Path("a.yaml").write_text("x")
    with controller(home, replies(LOSS, OK)) as asked:
        ended, talk = on_a_terminal(answer, monkeypatch, "apply", "-f", "a.yaml")
    assert ended == code
    assert "warning: batchjob/x: 2 running tasks would be replaced\ngo on? [y/N] " in talk
    assert [one.get("yes") for one in sent(asked)] == ([None, True] if code == 0 else [None])


def test_nobody_is_asked_where_stdin_is_the_manifest(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Typed("x"))
    talk = io.StringIO()
    with controller(home, replies(LOSS, OK)):
        code = run_guarded(["apply", "-f", "-"], Screen(io.StringIO(), talk, talk_is_terminal=True))
    assert (code, "go on?" in talk.getvalue()) == (3, False)


def test_the_question_names_what_would_spare_the_work(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.yaml").write_text("x")
    spared = {**LOSS, "hint": "add --yes, or --rollout=FinishRunning to let running work end first"}
    with controller(home, replies(spared)):
        _, talk = on_a_terminal("n\n", monkeypatch, "apply", "-f", "a.yaml")
    assert "hint: with --rollout=FinishRunning running work ends first\ngo on?" in talk


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 3)])
def test_suspending_running_work_is_asked_about_on_a_terminal(
    home: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    store = open_store(home, SystemClock())
    run = Run("r", "u", 0, 1, RunState.STARTING, "local", "r", "t", "{}", "p", 5.0)
    live = replace(run, state=RunState.RUNNING, started_at_s=SystemClock().now_s() - 41)
    with store.transaction():
        row = Resource("u", "BatchJob", "x", 1, 0, "{}", "", {}, {}, 5.0)
        store.resources.put(row, expected_version=None)
        store.runs.begin([run])
        store.runs.advance(live)
    store.close()
    done = {"ok": True, "results": [{"key": "batchjob/x", "outcome": "suspended", "message": ""}]}
    with controller(home, replies(done, done)) as asked:
        ended, talk = on_a_terminal(answer, monkeypatch, "suspend", "job/x")
        silent = fleetctl("suspend", "job/x")
    assert (ended, len(asked)) == (code, 2 if code == 0 else 1)
    assert "batchjob/x: 1 running task (4" in talk and "would be stopped\ngo on? [y/N]" in talk
    assert silent[1].startswith("batchjob/x suspended  1 running task (4")


def test_a_server_dry_run_warns_as_the_other_one_does(home: Path) -> None:
    Path("a.yaml").write_text("x")
    reply = {**OK, "losses": LOSS["losses"], "hint": "add --yes"}
    with controller(home, replies(reply)):
        code, _, talk = fleetctl("apply", "-f", "a.yaml", "--dry-run=server")
    assert code == 0
    assert talk.endswith(
        "warning: batchjob/x: 2 running tasks would be replaced\nhint: to apply it: add --yes\n"
    )
