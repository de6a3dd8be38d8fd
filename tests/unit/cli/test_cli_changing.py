"""`label`, `annotate`, `edit`, `scale`: what is asked of the controller, and what is not."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store
from tests.cli_controller import controller

SPEC = '{"parallelism": 2, "template": {"python": "SUBMIT(x=1)\\nprint(2)"}}'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("FLEETCTL_HOME", str(place))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    store = open_store(place, SystemClock())
    with store.transaction():
        for name, labels in (("a", {"team": "rlm"}), ("b", {"team": "x"})):
            fields = {"note": "mine", "fleetctl.dev/estimate": "{}"}
            row = Resource(f"u-{name}", "BatchJob", name, 3, 0, SPEC, "", labels, fields, 5.0)
            store.resources.put(row, expected_version=None)
    store.close()
    return place


def asked(home: Path, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what the controller is asked, and what is said."""
    out, talk = io.StringIO(), io.StringIO()
    with controller(home, lambda _: b'{"ok": true, "results": []}\n') as lines:
        code = run_guarded(list(words), Screen(out, talk))
    return code, [json.loads(line) for line in lines], talk.getvalue()


def words_of(requests: list[dict[str, Any]], noun: str = "labels") -> list[tuple[str, Any]]:
    return [(it["key"], it[noun]) for it in requests]


def test_labels_are_set_and_taken_away(home: Path) -> None:
    code, requests, _ = asked(home, "label", "job/a", "stage=test", "old-")
    assert (code, words_of(requests)) == (0, [("batchjob/a", {"stage": "test", "old": None})])
    _, requests, _ = asked(home, "annotate", "job", "a", "b", "why=a = b", "--overwrite")
    assert words_of(requests, "annotations") == [
        ("batchjob/a", {"why": "a = b"}),
        ("batchjob/b", {"why": "a = b"}),
    ]
    _, requests, _ = asked(home, "label", "jobs", "-l", "team=x", "new=1")
    assert words_of(requests) == [("batchjob/b", {"new": "1"})]
    _, requests, _ = asked(home, "label", "all", "--all", "new=")
    assert words_of(requests) == [("batchjob/a", {"new": ""}), ("batchjob/b", {"new": ""})]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("label job/a team=vision", 5, "batchjob/a has team=rlm already"),
        ("label job/b job/a team=x", 5, "batchjob/a has team=rlm already"),
        ("label job/a", 2, "say what to change, and how"),
        ("label team=x", 2, "say what to change, and how"),
        ("label job/a x=1 x=2", 2, "`x` is given twice"),
        ("label job/a x=1 job/b", 2, "`job/b` is neither KEY=VALUE nor KEY-"),
        ("label job/a job/n job/m x=1", 4, "no BatchJob `n`\nerror: there is no BatchJob `m`"),
        ("label jobs -l team=none x=1", 4, "there is no such object"),
        ("annotate job/a note=other", 5, "has note=mine already"),
    ],
)
def test_what_is_not_meant_asks_for_nothing(home: Path, words: str, code: int, said: str) -> None:
    found, requests, talk = asked(home, *words.split())
    assert (found, requests) == (code, [])
    assert said in talk


def test_the_same_value_again_is_no_conflict(home: Path) -> None:
    code, requests, _ = asked(home, "label", "job/a", "job/b", "team-", "x=1")
    assert (code, len(requests)) == (0, 2)


def editor(home: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = home.parent / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("FLEETCTL_EDITOR", str(program))


def kept(home: Path) -> list[str]:
    return os.listdir(home.parent / "tmp")


def test_an_edit_sends_the_new_spec_and_what_differs_in_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = "sed -i -e 's/parallelism: 2/parallelism: 5/' -e 's/team: rlm/crew: rlm/' \"$1\""
    editor(home, monkeypatch, change)
    code, (request,), said = asked(home, "edit", "job/a", "--rollout", "finish-running")
    assert code == 0, said
    assert request["spec"] == {**json.loads(SPEC), "parallelism": 5}
    assert (request["key"], request["generation"]) == ("batchjob/a", 3)
    assert request["labels"] == {"team": None, "crew": "rlm"}
    assert request["annotations"] == {}
    assert request["rollout"] == "FinishRunning"
    assert kept(home) == []


def test_an_edit_that_changes_nothing_stores_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(home, monkeypatch, 'grep -q fleetctl.dev/estimate "$1" && exit 9; exit 0')
    code, requests, said = asked(home, "edit", "job", "a")
    assert (code, requests) == (0, [])
    assert said == "batchjob/a unchanged; nothing was stored\n"
    assert kept(home) == []


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ('echo "spec: [" > "$1"', 2, ".yaml:1:7: "),
        ('sed -i s/BatchJob/Sweep/ "$1"', 2, "is no longer of batchjob/a"),
        (': > "$1"', 2, "must hold one document"),
        ('echo x >> "$1"; exit 3', 1, "exited with code 3"),
    ],
)
def test_what_cannot_be_stored_is_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch, script: str, code: int, said: str
) -> None:
    editor(home, monkeypatch, script)
    found, requests, talk = asked(home, "edit", "job/a")
    assert (found, requests) == (code, [])
    assert said in talk
    (name,) = kept(home)
    assert f"your text is kept in {home.parent}/tmp/{name}" in talk


def test_an_editor_that_is_not_there_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_EDITOR", "/no/such/editor")
    code, _, said = asked(home, "edit", "job/a")
    assert code == 1 and "the editor `/no/such/editor` cannot be started" in said
    assert kept(home) == []


def test_scale_takes_the_flag_that_its_refusal_names(home: Path) -> None:
    _, (request,), _ = asked(home, "scale", "job/a", "--parallelism", "1", "--rollout", "replace")
    assert (request["fields"], request["rollout"]) == (["parallelism=1"], "Replace")
