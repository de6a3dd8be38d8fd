"""The order of results, how many, and how they fit a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.documents import write_csv
from fleetctl.cli.output.live import progress_text
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.report.results import STATES, _fit_rows
from fleetctl.common.clock import SystemClock
from fleetctl.common.text import cell_width
from fleetctl.controllers.model import Metric, Resource, Run, RunState
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.stores.sqlite.store import open_store
from fleetctl.views.objects import build_view

LOSSES = {0: 0.5, 1: None, 2: 0.25, 3: 3.0, 5: 0.125}


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four trials with a loss, one without; the last has a number above the total."""
    stored(tmp_path, monkeypatch, metric={"name": "loss", "goal": "minimize"})


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a second metric, which is the parameter."""
    wanted = [{"name": "loss", "goal": "minimize"}, {"name": "lr", "goal": "minimize"}]
    stored(tmp_path, monkeypatch, metrics=wanted)


def test_a_metric_that_is_spelled_otherwise_is_found_in_describe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, monkeypatch, metric={"name": "val/los"}, succeeded=4)
    out = io.StringIO()
    assert run_guarded(["describe", "sweep/x"], Screen(out, io.StringIO())) == 0
    assert "Reported:    epoch, val/loss (trial 0); did you mean `val/loss`?" in out.getvalue()


def stored(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failed: RunState = RunState.SUCCEEDED,
    **aim: object,
) -> None:
    """failed: the state of trial 1."""
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    status = {
        "observedGeneration": 1, "phase": "Succeeded", "total": 4, "unwantedIndexes": "0", **aim,
    }  # fmt: skip
    store = open_store(tmp_path / "home", SystemClock())
    with store.transaction():
        row = Resource("u", "Sweep", "x", 1, 0, "{}", "", {}, {}, 5.0)
        stored = store.resources.put(row, expected_version=None)
        store.resources.put_status("u", json.dumps(status), expected_version=stored.version)
        for index, loss in LOSSES.items():
            name, params = f"r-{index}", json.dumps({"lr": index, "note": "x" * 50})
            run = Run(name, "u", index, 1, RunState.STARTING, "local", name, "t", params, "p", 6.0)
            store.runs.begin([run])
            state = RunState.SUCCEEDED if index != 1 else failed
            done = replace(run, state=state, started_at_s=6.0, ended_at_s=8.5)
            result = (
                None if loss is None else json.dumps({"loss": loss, "lr": index, "text": "y" * 90})
            )
            told = [Metric(at, 0, name, 1.0, 7.0) for at, name in enumerate(("val/loss", "epoch"))]
            store.runs.advance(done, result=result, metrics=told)
    store.close()


def results(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(["results", "sweep/x", *words], Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def order(*words: str) -> list[int]:
    return [row["index"] for row in json.loads(results(*words, "-o", "json")[1])]


def test_what_is_no_longer_wanted_is_left_out_and_a_high_number_is_not(sweep: None) -> None:
    assert order() == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--best"], [5]),
        (["--best", "--top", "9"], [5, 2, 3, 1]),
        (["--best", "--top", "2"], [5, 2]),
        (["--sort-by", "result.loss"], [5, 2, 3, 1]),
        (["--sort-by=-result.loss"], [3, 2, 5, 1]),
        (["--sort-by=-params.lr", "--top", "1"], [5]),
        (["--sort-by", "loss"], [5, 2, 3, 1]),
        (["--sort-by", "loss:desc"], [3, 2, 5, 1]),
        (["--sort-by", "params.lr:asc"], [1, 2, 3, 5]),
        (["--sort-by", "{.result.loss}"], [5, 2, 3, 1]),
        (["--top", "0"], []),
    ],
)
def test_results_come_in_the_order_that_is_asked_for(
    sweep: None, words: list[str], found: list[int]
) -> None:
    assert order(*words) == found


def test_of_several_metrics_the_best_are_those_that_none_beats(several: None) -> None:
    assert order("--best") == [5, 2]  # 3 has a greater loss than 2, and a greater lr
    assert order("--best", "--sort-by", "lr") == [2, 5]
    header, first, *_ = results("--best")[1].splitlines()
    assert header.split()[:5] == ["INDEX", "STATE", "ATTEMPTS", "loss", "lr"]
    assert first.split()[:5] == ["5", "Succeeded", "1", "0.125", "5"]
    assert json.loads(results("--top", "1", "-o", "json")[1])[0]["metrics"] == {
        "loss": None,
        "lr": None,
    }
    assert "metric.loss,metric.lr," in results("-o", "csv")[1].splitlines()[0]


def test_a_plot_of_several_metrics_draws_the_same_front(several: None) -> None:
    out = io.StringIO()
    assert run_guarded(["plot", "sweep/x", "--kind", "front"], Screen(out, io.StringIO())) == 0
    assert "2 trials of 3 that no other one beats: 2, 5" in out.getvalue()


def test_an_order_that_there_is_not_says_which_there_are(sweep: None) -> None:
    code, out, talk = results("--sort-by", "result.los")
    assert (code, out) == (2, "") and "did you mean `result.loss`?" in talk
    assert results("--best", "--sort-by", "index")[0] == 2


def test_rows_of_some_states_and_some_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = {"name": "loss", "goal": "minimize"}
    stored(tmp_path, monkeypatch, failed=RunState.FAILED, metric=metric)
    assert {*RunState} < {*STATES}
    assert order("--failed") == order("--state", "failed,lost") == [1]
    assert order("--state", "Succeeded", "--sort-by=-lr") == [5, 3, 2]
    assert results("--failed", "--columns", "index,lr")[1] == "INDEX  PARAMS.LR\n1      1\n"
    assert results("--columns", "index,result.loss", "-o", "csv")[1].splitlines() == [
        "index,result.loss", "1,", "2,0.25", "3,3.0", "5,0.125",
    ]  # fmt: skip
    rows = json.loads(results("--columns", "result.loss", "--top", "2", "-o", "json")[1])
    assert rows == [{"result.loss": None}, {"result.loss": 0.25}]
    code, _, talk = results("--columns", "index,los")
    assert code == 2 and "no row has a field `los`" in talk
    code, _, talk = results("--state", "succeded")
    assert code == 2 and "did you mean `Succeeded`?" in talk
    assert results("--state", "Refused") == (
        0, "", "no trial of sweep/x is Refused\n",
    )  # fmt: skip


def test_a_table_cuts_long_cells_with_a_mark_and_other_formats_do_not(sweep: None) -> None:
    store = open_store(Path(os.environ["FLEETCTL_HOME"]), SystemClock())
    with store.transaction():
        run = Run("r-9", "u", 9, 1, RunState.STARTING, "local", "r-9", "t",
                  json.dumps({"prompt": "p" * 200_000}), "p", 6.0)  # fmt: skip
        store.runs.begin([run])
        store.runs.advance(replace(run, state=RunState.SUCCEEDED))
    store.close()
    long = results("--sort-by=-index", "--top", "1")[1].splitlines()[1]
    assert len(long) < 600 and "ppp…" in long
    assert "p" * 200_000 in results("-o", "csv")[1]


def test_a_row_is_one_line_of_a_terminal() -> None:
    header = ["INDEX", "STATE", "PARAMS", "RESULT"]
    for params, result in (("a" * 90, "b" * 90), ("a" * 90, "b"), ("a", "b" * 90), ("a", "b")):
        (row,) = _fit_rows(header, [["0", "Succeeded", params, result]], 80)
        line = Screen(io.StringIO(), io.StringIO()).table_lines(header, [row])[1]
        assert cell_width(line) <= 80
        assert min(len(row[2]), len(row[3])) >= min(len(params), len(result), 16)
    assert row == ["0", "Succeeded", "a", "b"]


def seen(**status: Any) -> Any:
    filled = {"observedGeneration": 1, "phase": "Running", "total": 2000, **status}
    row = ResourceRow("u", "BatchJob", "x", 1, 1, 0.0, None, {}, {}, json.dumps(filled))
    return build_view(row, lambda: "{}")


def test_beside_a_bar_the_counts_stay_and_the_reason_gives_way() -> None:
    waits = seen(phase="Pending", waitingOn=["task 0: needs 8 GPUs of any kind, and so on"])
    counts = "Pending  0/2000 done"
    assert progress_text(waits, 20) == progress_text(waits, 29) == counts
    assert progress_text(waits, 40) == f"{counts}  task 0: needs 8 G…"
    assert progress_text(waits, 200).endswith("of any kind, and so on")


def test_a_cell_of_csv_is_no_formula_and_numbers_stay_numbers() -> None:
    out = io.StringIO()
    row = ["=1+1", "+a", "-a", "@a", "\ta", "\ra", "-5", "+1e3", -5, "a=b", None, "'=", "-"]
    write_csv(["=head", "x"], [row], Screen(out, io.StringIO()))
    header, cells = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert header == ["'=head", "x"]
    assert cells == [
        *("'=1+1", "'+a", "'-a", "'@a", "'\ta", "'\ra"),
        *("-5", "+1e3", "-5", "a=b", "", "'=", "'-"),
    ]
