"""`-n`, `-A` and `get namespaces`, as they are typed and answered."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.controllers.model import Resource
from fleetctl.stores.base import EventRow
from fleetctl.stores.sqlite.store import open_store

OBJECTS = (
    ("BatchJob", "chunks", "default"),
    ("BatchJob", "chunks", "team"),
    ("BatchJob", "other", "team"),
    ("Volume", "data", "team"),
    ("Provider", "local", "default"),
)


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "home"
    store = open_store(place, FixedClock())
    with store.transaction():
        for number, (kind, name, namespace) in enumerate(OBJECTS):
            row = Resource(
                f"u{number}", kind, name, 1, 0, "{}", "", {}, {}, 5.0, namespace=namespace
            )
            store.resources.put(row, expected_version=None)
            store.events.record([EventRow(f"u{number}", 5.0, "Normal", "Created", "made")])
    store.close()
    monkeypatch.setenv("FLEETCTL_HOME", str(place))
    monkeypatch.delenv("FLEETCTL_NAMESPACE", raising=False)


def run(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def names(*words: str) -> list[str]:
    code, out, talk = run(*words, "-o", "name")
    assert (code, talk) == (0, "")
    return out.split()


def test_a_list_shows_one_namespace_and_the_flag_says_which() -> None:
    assert names("get", "jobs") == ["batchjob/chunks"]
    assert names("get", "jobs", "-n", "team") == ["batchjob/chunks", "batchjob/other"]
    assert names("get", "job/chunks", "-n", "team") == ["batchjob/chunks"]


def test_the_environment_says_where_no_flag_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_NAMESPACE", "team")
    assert names("get", "volumes") == ["volume/data"]
    assert names("get", "volumes", "-n", "default") == []
    monkeypatch.setenv("FLEETCTL_NAMESPACE", "Team")
    assert run("get", "jobs")[0] == 2


def test_a_provider_is_there_in_every_namespace() -> None:
    assert names("get", "providers", "-n", "team") == ["provider/local"]
    assert names("get", "provider/local", "-n", "team") == ["provider/local"]


def test_everything_has_a_column_that_says_where() -> None:
    code, out, _ = run("get", "jobs", "-A")
    rows = [line.split()[:2] for line in out.splitlines()]
    assert code == 0
    assert rows == [
        ["NAMESPACE", "NAME"], ["default", "chunks"], ["team", "chunks"], ["team", "other"],
    ]  # fmt: skip
    code, _, talk = run("get", "job/chunks", "-A")
    assert (code, "a name is looked for in one namespace" in talk) == (2, True)


def test_a_document_says_its_namespace_and_a_provider_has_none() -> None:
    found = json.loads(run("get", "volume/data", "-n", "team", "-o", "json")[1])
    assert found["metadata"]["namespace"] == "team"
    provider = json.loads(run("get", "provider/local", "-o", "json")[1])
    assert "namespace" not in provider["metadata"]


def test_what_is_missing_is_told_with_its_namespace() -> None:
    code, _, talk = run("describe", "job/nothing-like-it", "-n", "team")
    assert code == 4
    assert "there is no BatchJob `nothing-like-it` in namespace `team`" in talk
    assert "`fleetctl get batchjobs -n team` lists what there is" in talk


def test_namespaces_are_listed_with_what_is_in_them() -> None:
    _, out, _ = run("get", "namespaces")
    assert [line.split(maxsplit=2) for line in out.splitlines()] == [
        ["NAME", "OBJECTS", "KINDS"],
        ["default", "1", "1 batchjob"],
        ["team", "3", "2 batchjobs, 1 volume"],
    ]
    assert run("get", "ns", "nobody")[0] == 4


def test_events_are_those_of_the_namespace_or_of_all() -> None:
    def objects(*words: str) -> list[str]:
        return [it["object"] for it in json.loads(run("events", *words, "-o", "json")[1])]

    assert objects("-n", "team") == [
        "batchjob/chunks -n team", "batchjob/other -n team", "volume/data -n team",
    ]  # fmt: skip
    assert len(objects("-A")) == len(OBJECTS)


def test_a_query_tells_equal_names_apart() -> None:
    sql = "SELECT object, namespace FROM objects WHERE name = 'chunks' ORDER BY 1"
    _, out, _ = run("query", sql, "-o", "json")
    assert json.loads(out) == [
        {"object": "batchjob/chunks", "namespace": "default"},
        {"object": "batchjob/chunks -n team", "namespace": "team"},
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (["get", "job/"], ["job/chunks"]),
        (["get", "-n", "team", "job/"], ["job/chunks", "job/other"]),
        (["get", "jobs", "--namespace=team", "o"], ["other"]),
        (["get", "-n", "t"], ["team"]),
    ],
)
def test_the_tab_key_knows_the_names_of_the_namespace(line: list[str], found: list[str]) -> None:
    code, out, _ = run("__complete", *line)
    assert (code, [it.partition("\t")[0] for it in out.splitlines()]) == (0, found)
