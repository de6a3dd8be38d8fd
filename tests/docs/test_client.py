"""The Python client on a real controller: the page's examples, and what scripts rely on."""

from __future__ import annotations

import asyncio
import contextlib
import io
from pathlib import Path

import pytest

from fleetctl import BatchJob, GoalMissed, Sweep
from fleetctl import Fleet as Client
from fleetctl.common.errors import Conflict, NotFound, Refused, UsageError
from tests.docs.fleet import EXAMPLES, ROOT, Fleet
from tests.docs.screens import blocks

PAGE = ROOT / "docs" / "how-to" / "use-python.md"


@pytest.fixture
def client(empty: Fleet) -> Client:
    empty.start_controller()
    return Client(empty.home)


def job(name: str, python: str, **spec: object) -> BatchJob:
    return BatchJob(name, template={"python": python}, **spec)


def test_the_examples_of_the_page_print_what_they_should(
    empty: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(empty.home))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for example in blocks(PAGE.read_text("utf-8"), "python"):
            exec(compile(example, str(PAGE), "exec"), {})
    assert said.getvalue().splitlines() == [
        "batchjob/squares created",
        "Succeeded 8",
        "[0, 1, 4, 9, 16, 25, 36, 49]",
        "squaring 3",
        "140",
        "['squares']",
        "Completed",
        "create 2 new $0.00",
        "FailedIndexes [1]",
        "0.0",
        "['Succeeded', 'Succeeded', 'Succeeded']",
    ]
    assert empty.ok("get", "all", "-o", "name") == ""


def test_what_python_applies_the_command_line_shows_and_the_other_way_round(
    empty: Fleet, client: Client
) -> None:
    client.apply(job("one", "SUBMIT(a=1)", parallelism=1))
    assert empty.ok("get", "jobs", "-o", "name") == "batchjob/one\n"
    (again,) = client.apply(empty.ok("get", "job/one", "-o", "yaml"))
    assert (again.key, again.outcome) == ("batchjob/one", "unchanged")
    (from_file,) = client.apply(EXAMPLES / "hello.yaml")
    assert (from_file.key, from_file.outcome) == ("batchjob/hello", "created")
    assert [it.name for it in client.list("jobs")] == ["one", "hello"]
    assert [it.name for it in client.list(labels="team=nobody")] == []


def test_a_dry_run_stores_nothing(client: Client) -> None:
    (would,) = client.apply(job("dry", "pass"), dry_run=True)
    assert would.outcome == "created"
    assert client.list() == []


def test_a_failed_object_cannot_complete_and_says_why(client: Client) -> None:
    client.apply(job("bad", "raise ValueError('no')"))
    with pytest.raises(GoalMissed, match="FailedIndexes"):
        client.wait("job/bad")
    assert client.wait("job/bad", "failed").phase == "Failed"
    (row,) = client.results("job/bad")
    assert (row.state, row.result) == ("Failed", None)
    assert any("ValueError: no" in line.text for line in client.logs("job/bad"))


def test_a_wait_may_take_too_long(client: Client) -> None:
    client.apply(job("never", "pass", parallelism=0))
    with pytest.raises(TimeoutError, match="job/never"):
        client.wait("job/never", timeout_s=0.05)


def test_a_wait_ends_where_another_made_other_work_of_it(
    empty: Fleet, client: Client, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs.yaml"
    client.apply(job("two", "SUBMIT(mine=1)", parallelism=0))
    empty.ok("set", "job/two", "maxInfraRetries=7")  # changes no work
    with pytest.raises(TimeoutError):
        client.wait("job/two", timeout_s=0.05)
    theirs.write_text(
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: two}\n"
        "spec: {parallelism: 1, template: {python: SUBMIT(theirs=1)}}\n"
    )
    empty.ok("apply", "-f", str(theirs), "--wait", "--yes")
    with pytest.raises(Conflict, match=r"theirs\.yaml") as told:
        client.wait("job/two", timeout_s=600)
    assert "batchjob/two" in str(told.value)
    assert client.wait("job/two", timeout_s=600).phase == "Succeeded"


def test_of_several_that_are_deleted_each_is_reported_and_none_stops_another(
    client: Client,
) -> None:
    client.apply(
        job("a", "pass", parallelism=0),
        job("b", "pass", parallelism=0),
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: v}\n"
        "spec: {deletionPolicy: Delete}\n",
    )
    with pytest.raises(NotFound) as told:
        client.delete("job/a", "job/nope", "volume/v", "job/b")
    said = str(told.value)
    assert all(it in said for it in ("nope", "volume/v", "batchjob/a", "batchjob/b"))
    assert [(it.kind, it.name) for it in client.list()] == [("Volume", "v")]
    (gone,) = client.delete("volume/v", yes=True)
    assert (gone.key, gone.outcome) == ("volume/v", "deleted")


def test_what_is_finished_is_kept_or_run_again_as_one_says(client: Client) -> None:
    client.apply(job("first", "import time; SUBMIT(a=1)"))
    client.wait("job/first", timeout_s=600)
    client.apply(job("first", "SUBMIT(a=2)"), keep_finished=True)
    assert client.wait("job/first", timeout_s=600).status["outdated"] == 1
    client.apply(job("first", "SUBMIT(a=2)"), rerun=True)
    client.wait("job/first", timeout_s=600)
    assert [row.result for row in client.results("job/first")] == [{"a": 2}]


def test_a_volume_with_its_data_goes_only_by_who_says_yes(client: Client) -> None:
    client.apply(
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: v}\n"
        "spec: {deletionPolicy: Delete}\n"
    )
    with pytest.raises(Refused, match="deletes its data"):
        client.delete("volume/v")
    client.delete("volume/v", yes=True)
    assert client.list() == []


def test_what_is_not_there_is_told_with_the_nearest_name(client: Client, tmp_path: Path) -> None:
    client.apply(job("chunks", "pass", parallelism=0))
    with pytest.raises(NotFound) as told:
        client.get("job/chunk")
    assert told.value.hint == "did you mean `chunks`?"
    with pytest.raises(NotFound, match="no file or directory"):
        client.apply(tmp_path / "none.yaml")


def test_a_manifest_is_checked_as_it_is_made() -> None:
    with pytest.raises(UsageError) as told:
        BatchJob("x", paralellism=4)
    assert "did you mean `parallelism`?" in str(told.value)
    with pytest.raises(UsageError, match=r"metadata\.name is `X`"):
        Sweep("X", search={"method": "grid", "parameters": {"x": {"value": 1}}}, template={})


def test_fields_are_written_as_in_yaml_or_in_snake_case() -> None:
    camel = BatchJob("x", backoffLimitPerIndex=2, template={"script": "true"})
    snake = BatchJob("x", backoff_limit_per_index=2, template={"script": "true"})
    assert camel.manifest() == snake.manifest()
    assert camel.manifest()["spec"] == {
        "backoffLimitPerIndex": 2,
        "template": {"script": "true"},
    }


def test_it_works_inside_a_running_event_loop(client: Client) -> None:
    async def cell() -> str:
        client.apply(job("loop", "SUBMIT(a=1)"))
        return client.wait("job/loop", timeout_s=600).phase

    assert asyncio.run(cell()) == "Succeeded"


def test_reading_needs_no_controller(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    assert client.list() == [] and client.events() == []
    assert not (tmp_path / "home").exists()


def test_a_sweep_is_changed_and_asked_about_as_by_the_command_line(
    empty: Fleet, client: Client
) -> None:
    reports = "for step in range(3): report(loss=x + step, step=step)\nSUBMIT(y=x)"
    client.apply(job("ask", reports, tasks={"items": [{"x": 1}, {"x": 2}]}))
    client.wait("job/ask", timeout_s=600)
    losses = client.metrics("job/ask", "loss", index=1)
    assert [(it.step, it.value) for it in losses] == [(0, 2.0), (1, 3.0), (2, 4.0)]
    found = client.query("select name, phase from objects where name = ?", ["ask"])
    assert (found.columns, list(found)) == (("name", "phase"), [("ask", "Succeeded")])

    (suspended,) = client.suspend("job/ask")
    assert (suspended.key, suspended.outcome) == ("batchjob/ask", "suspended")
    assert client.get("job/ask").spec["suspend"] is True
    client.resume("job/ask")
    assert client.retry("job/ask", failed=True) == 0
    assert client.retry("job/ask", indexes=[1]) == 1
    client.wait("job/ask", timeout_s=600)
    assert client.rerun("job/ask") == 2
    client.wait("job/ask", timeout_s=600)
    assert [row.attempts for row in client.results("job/ask")] == [2, 3]

    client.scale("job/ask", 1)
    client.set("job/ask", {"budget.maxCost": 4, "backoffLimitPerIndex": 2})
    spec = client.get("job/ask").spec
    assert (spec["parallelism"], spec["budget"]["maxCost"]) == (1, 4)
    assert spec["backoffLimitPerIndex"] == 2
    client.set("job/ask", {"budget": None})
    assert "budget" not in client.get("job/ask").spec


def test_what_cannot_be_asked_is_refused_with_the_right_words(client: Client) -> None:
    with pytest.raises(UsageError, match="one of failed, indexes, stage"):
        client.retry("job/none")
    with pytest.raises(UsageError, match="runs nothing"):
        client.suspend("vol/none")
    with pytest.raises(NotFound):
        client.suspend("job/none")
    with pytest.raises(UsageError, match="no such column"):
        client.query("select absent from objects")


def test_a_notebook_shows_tables_whose_texts_are_no_markup(client: Client) -> None:
    applied = client.apply(job("shown", "raise ValueError('<b>')", parallelism=0))
    assert repr(applied) == "AppliedObjects(1 object)"
    assert "<td>batchjob/shown</td><td>created</td>" in applied._repr_html_()
    assert repr(client.get("job/shown")).startswith("<batchjob/shown ")
    rows = client.query("select '<script>' as text")
    assert "<td>&lt;script&gt;</td>" in rows._repr_html_()
    assert repr(client.list("jobs")) == "FleetObjects(1 object)"
