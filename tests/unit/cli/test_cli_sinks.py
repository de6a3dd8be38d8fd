"""Addresses of sinks that an earlier version stored with a token: no screen shows the token."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.kinds.notices import sink_of
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store

TOKEN = "hunter2-of-the-hook"
URL = f"https://hooks.example.org?room=7&token={TOKEN}"
NOTIFY = [
    {"when": ["Failed"], "webhook": {"url": URL}},
    {"when": ["SourceFailed"], "commitStatus": {"url": URL, "secret": "s"}},
]
JOB = {"template": {"script": "true"}, "notify": NOTIFY}
SPECS: Mapping[str, Mapping[str, object]] = {
    "Notifier": {"notify": NOTIFY},
    "BatchJob": JOB,
    "Budget": {"maxCost": 1.0, "notify": NOTIFY},
    "Source": {"git": {"url": "https://git.example.org/a"}, "notify": NOTIFY},
    "Schedule": {"schedule": "0 3 * * *", "template": {"kind": "BatchJob", "spec": JOB}},
}
OUTPUTS = ("yaml", "json", "wide", "jsonpath={.spec}", "name")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("FLEETCTL_HOME", str(place))
    monkeypatch.chdir(tmp_path)
    store = open_store(place, SystemClock())
    with store.transaction():
        for kind, spec in SPECS.items():
            row = Resource(f"u-{kind}", kind, "x", 1, 0, json.dumps(spec), "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
    store.close()
    return place


def shown(*words: str) -> str:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    assert code == 0, talk.getvalue()
    return out.getvalue() + talk.getvalue()


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.usefixtures("home")
def test_no_screen_shows_the_token_of_an_earlier_version(kind: str) -> None:
    key = f"{kind.lower()}/x"
    for words in (*(("get", key, "-o", output) for output in OUTPUTS), ("describe", key)):
        assert TOKEN not in shown(*words), words
    whole = json.loads(shown("get", key, "-o", "json"))
    assert "https://hooks.example.org?room=7&token=***" in json.dumps(whole)


def test_an_edit_shows_no_token_and_cannot_store_the_mask(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, seen = home.parent / "editor", home.parent / "seen"
    program.write_text(f'#!/bin/sh\ncp "$1" {seen}\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("FLEETCTL_EDITOR", str(program))
    out, talk = io.StringIO(), io.StringIO()
    run_guarded(["edit", "notifier/x"], Screen(out, talk))
    assert "token=***" in seen.read_text()
    assert TOKEN not in seen.read_text() + out.getvalue() + talk.getvalue()
    talk.truncate(0)
    assert run_guarded(["validate", "-f", str(seen)], Screen(out, talk)) == 2
    for field in ("webhook", "commitStatus"):
        assert f"{field}.url holds what looks like a credential" in talk.getvalue()


def test_the_title_of_a_sink_is_its_host_alone() -> None:
    for url in (URL, f"https://hooks.example.org/{TOKEN}", f"https://hooks.example.org#{TOKEN}"):
        sink = sink_of(json.dumps({"namespace": "default", "webhook": {"url": url}}))
        assert sink.title == "webhook https://hooks.example.org"
