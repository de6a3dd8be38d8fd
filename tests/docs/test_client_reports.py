"""Plans, differences, costs, charts and kept files of the Python client, on a real controller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl import BatchJob, GoalMissed, Sweep, TimedOut
from fleetctl import Fleet as Client
from fleetctl.common.errors import Conflict, NotFound, UsageError
from fleetctl.manifest.problems import ManifestErrors
from tests.docs.fleet import EXAMPLES, Fleet

WAIT_S = 600


@pytest.fixture
def client(empty: Fleet) -> Client:
    empty.start_controller()
    return Client(empty.home)


def job(name: str, python: str, **spec: object) -> BatchJob:
    template = {"python": python, **spec.pop("template", {})}  # type: ignore[dict-item]
    return BatchJob(name, template=template, **spec)


def test_a_plan_shows_the_effect_and_stores_nothing(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    wide = job("wide", "SUBMIT(y=x)", tasks={"items": [{"x": it} for it in range(3)]})
    plan = client.plan(wide)
    (planned,) = plan.changes
    assert (planned.key, planned.action, planned.new) == ("batchjob/wide", "create", 3)
    assert (planned.units, planned.where) == ("3 new", {"local": 3})
    assert plan.cost.expected == 0.0
    assert repr(plan) == "<FleetPlan 1 to create: $0.00>"
    assert str(plan).splitlines()[0].startswith("batchjob/wide  create  3 new")
    assert "<td>batchjob/wide</td><td>create</td><td>3 new</td>" in plan._repr_html_()
    assert client.list() == [] and not (tmp_path / "home").exists()


def test_a_plan_and_a_diff_raise_every_mistake_as_an_apply_would(client: Client) -> None:
    wrong = "kind: BatchJob\nname: a\npython: pass\nparalellism: 2\n---\nkind: Swep\nname: b\n"
    for ask in (client.plan, client.diff, client.validate):
        with pytest.raises(ManifestErrors) as told:
            ask(wrong)
        assert "did you mean `parallelism`?" in str(told.value)
        assert {it.line for it in told.value.problems} == {4, 6, 7}
    assert [it.key for it in client.validate(EXAMPLES / "hello.yaml")] == ["batchjob/hello"]


def test_a_diff_is_that_of_the_command_line(empty: Fleet, client: Client, tmp_path: Path) -> None:
    client.apply(job("two", "pass", parallelism=0))
    changed = job("two", "pass", parallelism=0, maxInfraRetries=7)
    file = tmp_path / "two.json"
    file.write_text(changed.document().text)
    (found,) = client.diff(changed)
    assert (found.key, found.outcome) == ("batchjob/two", "configured")
    assert "+  maxInfraRetries: 7" in found.text.splitlines()
    shown = empty.run("diff", "-f", str(file))
    assert (shown.code, shown.out.rstrip()) == (1, str(client.diff(changed)).rstrip())
    assert "<ins>+  maxInfraRetries: 7</ins>" in client.diff(changed)._repr_html_()
    client.apply(changed)
    assert client.diff(changed) == []
    (kept,) = client.plan(changed).objects
    assert (kept.action, client.plan(changed).changes) == ("keep", ())


def test_costs_charts_and_kept_files_of_work(client: Client, tmp_path: Path) -> None:
    writes = (
        "from pathlib import Path\nPath('out').mkdir()\nPath('out/n.txt').write_text(str(x))\n"
        "for step in range(3): report(loss=x + step, step=step)\nSUBMIT(y=x)"
    )
    began = datetime.now(UTC)
    two = [{"x": 1}, {"x": 2}]
    client.apply(job("made", writes, tasks={"items": two}, template={"outputs": ["out/**"]}))
    client.wait("job/made", timeout_s=WAIT_S)

    files = client.artifacts("job/made")
    assert [(it.index, it.path, it.size) for it in files] == [
        (0, "out/n.txt", 1),
        (1, "out/n.txt", 1),
    ]
    assert [it.read_text() for it in files] == ["1", "2"]
    assert (files[1].modified - began).total_seconds() > -1
    assert "<td>out/n.txt</td>" in files._repr_html_()
    assert repr(files[0]) == "<0/out/n.txt 1 bytes>"
    fetched = client.fetch_artifacts("job/made", tmp_path / "all")
    assert [it.relative_to(tmp_path / "all") for it in fetched] == [
        Path("0/out/n.txt"), Path("1/out/n.txt"),
    ]  # fmt: skip
    (one,) = client.fetch_artifacts("job/made", tmp_path / "one", index=1, path="out")
    assert (one, one.read_text()) == (tmp_path / "one/out/n.txt", "2")
    with pytest.raises(NotFound, match="at `model`"):
        client.fetch_artifacts("job/made", tmp_path, path="model")

    spent = client.cost()
    assert [(it.key, it.attempts, it.usd) for it in spent] == [("batchjob/made", 2, 0.0)]
    assert (spent.total_usd, repr(spent)) == (0.0, "CostTable(1 groups, $0.00)")
    assert [it.key for it in client.cost("provider", since=timedelta(hours=1))] == ["local"]
    assert client.cost(since=datetime.now(UTC) + timedelta(days=1)) == []
    with pytest.raises(UsageError, match="label=KEY"):
        client.cost("colour")

    plot = client.plot("job/made", metrics="loss")
    assert repr(plot) == "<FleetPlot batchjob/made: loss over step>"
    assert plot._repr_html_().startswith("<svg") and "loss" in str(plot)
    assert plot.save(tmp_path / "loss.html").read_text().startswith("<!doctype html>")
    with pytest.raises(UsageError, match="no format"):
        plot.save(tmp_path / "loss.gif")
    with pytest.raises(NotFound, match="no metric `los`"):
        client.plot("job/made", metrics=["los"])
    with pytest.raises(UsageError, match="runs nothing"):
        client.plot("vol/data")

    assert client.events("job/made", warnings=True) == []
    assert client.events("job/made", since=began)[-1].reason == "Completed"
    assert client.events(since=datetime.now(UTC) + timedelta(days=1)) == []


def test_the_charts_of_a_sweep_are_those_of_the_command_line(empty: Fleet, client: Client) -> None:
    search = {
        "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"values": [0.1, 0.2]}},
    }
    client.apply(Sweep("lr", search=search, template={"python": "SUBMIT(loss=lr)"}))
    client.wait("sweep/lr", timeout_s=WAIT_S)
    assert client.plot("sweep/lr").titles[0] == "best so far"
    assert client.plot("sweep/lr", kind="best").titles == ("best so far",)
    shown = empty.ok("plot", "sweep/lr", "--kind", "best")
    assert "best loss 0.1 (trial 0)" in shown and "best loss 0.1 (trial 0)" in str(
        client.plot("sweep/lr", kind="best")
    )
    client.apply(job("lr", "pass", parallelism=0))
    with pytest.raises(UsageError, match="batchjob/lr is none"):
        client.plot("job/lr", kind="best")


def test_labels_annotations_and_work_of_a_schedule_by_hand(client: Client) -> None:
    client.apply(job("named", "pass", parallelism=0))
    client.label("job/named", {"team": "rlm"})
    client.annotate("job/named", {"note": "ask first"})
    assert [it.name for it in client.list(labels="team=rlm")] == ["named"]
    with pytest.raises(Conflict, match="team=rlm"):
        client.label("job/named", {"team": "other"})
    client.label("job/named", {"team": "other"}, overwrite=True)
    assert client.get("job/named").metadata["labels"] == {"team": "other"}
    client.label("job/named", {"team": None})
    assert not client.get("job/named").metadata.get("labels")
    assert client.get("job/named").metadata["annotations"]["note"] == "ask first"

    nightly = {"kind": "BatchJob", "spec": {"template": {"python": "SUBMIT(a=1)"}}}
    text = {"schedule": "0 3 1 1 *", "template": nightly}
    client.apply(
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Schedule\nmetadata: {name: nightly}\n"
        f"spec: {text}\n"
    )
    (made,) = client.create("schedule/nightly", "job", "now")
    assert (made.key, made.outcome) == ("batchjob/now", "created")
    assert client.wait("job/now", timeout_s=WAIT_S).phase == "Succeeded"


def test_a_wait_that_fails_has_the_reason_and_the_failures_as_data(client: Client) -> None:
    states: list[str] = []
    client.apply(job("bad", "raise ValueError('no')"))
    with pytest.raises(GoalMissed) as told:
        client.wait("job/bad", timeout_s=WAIT_S, progress=lambda it: states.append(it.phase))
    error = told.value
    assert (error.key, error.reason) == ("batchjob/bad", "FailedIndexes")
    assert [(it.index, it.attempt) for it in error.failures] == [(0, 1)]
    assert "ValueError: no" in error.failures[0].message
    assert "unit 0: ValueError: no" in str(error)
    # Counts change too, so that a phase may come twice; none comes after the last.
    assert states.index("Failed") == len(states) - 1
    assert set(states) <= {"Pending", "Running", "Failed"}


def test_several_are_waited_for_and_a_timeout_names_what_each_lacks(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.apply(job("a", "pass"), job("b", "pass", parallelism=0))
    with pytest.raises(TimedOut) as told:
        client.wait(["job/a", "job/b"], timeout_s=0.05)
    assert isinstance(told.value, TimeoutError)
    assert "batchjob/b: " in str(told.value)
    client.scale("job/b", 1)
    done = client.wait(["job/a", "job/b"], timeout_s=WAIT_S, progress=True)
    assert [(it.name, it.phase) for it in done] == [("a", "Succeeded"), ("b", "Succeeded")]
    lines = capsys.readouterr().err.splitlines()
    assert "batchjob/b: Succeeded, 1/1 done" in lines
    client.delete("job/a", wait=False)
    assert client.wait("job/a", "delete", timeout_s=WAIT_S).name == "a"
    with pytest.raises(UsageError, match="never ends"):
        client.wait("vol/data")
