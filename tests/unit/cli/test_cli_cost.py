"""What was spent, to the cent: live attempts up to now, unknown prices apart, shares of a span."""

from __future__ import annotations

import io
import json
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.state_paths import STATE_DB
from fleetctl.controllers.model import CACHED, Resource, Run, RunState
from fleetctl.stores.base import CachedSuccess
from fleetctl.stores.sqlite.store import open_store
from tests.golden.cli.cli_world import NOW_S
from tests.unit.stores.asking_world import build_costs


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(SystemClock, "now_s", lambda _: NOW_S)
    build_costs(tmp_path / "home", labels={"team": "rlm"})
    return tmp_path / "home"


def answer(*words: str) -> tuple[str, str]:
    out, talk = io.StringIO(), io.StringIO()
    assert run_guarded(list(words), Screen(out, talk)) == 0
    return out.getvalue(), talk.getvalue()


def only(*words: str) -> dict[str, Any]:
    (row,) = json.loads(answer(*words, "-o", "json")[0])
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}


@pytest.mark.parametrize(
    ("by", "key"),
    [("job", "batchjob/x"), ("kind", "BatchJob"), ("provider", "modal"), ("label=team", "rlm"),
     ("label=other", None)],
)  # fmt: skip
def test_every_group_has_the_same_sum(home: Path, by: str, key: str | None) -> None:
    row = only("cost", "--by", by)
    assert row["key"] == key
    assert (row["attempts"], row["usd"], row["failed_usd"], row["unpriced"]) == (5, 0.35, 0.1, 1)


def test_an_estimate_is_held_against_what_was_paid_once_the_object_is_over(home: Path) -> None:
    def stands(phase: str) -> dict[str, Any]:
        status = {"phase": phase, "cost": {"actual": 0.35, "estimated": 0.28}}
        with sqlite3.connect(home / STATE_DB) as database:
            database.execute("update resources set status = ?", (json.dumps(status),))
        database.close()
        return only("cost")

    running = stands("Running")
    assert (running["estimate"], running["error"]) == (0.28, None)
    assert stands("Succeeded")["error"] is None  # of one attempt nobody knows what it cost
    with sqlite3.connect(home / STATE_DB) as database:
        database.execute("update runs set usd_per_s = 0.0 where usd_per_s is null")
    database.close()
    over = stands("Succeeded")
    assert (over["estimate"], over["usd"], over["error"]) == (0.28, 0.35, 0.25)
    assert only("cost", "--by", "label=team")["error"] == 0.25
    assert "error" not in only("cost", "--by", "provider")


def test_attempts_without_a_price_are_said_and_not_added(home: Path) -> None:
    assert answer("cost")[1] == (
        "warning: 1 attempt without a known price: its cost is not in it\n"
    )


def test_a_span_takes_its_share_of_what_reaches_into_it(home: Path) -> None:
    """Attempts that ran from 500 to 400 seconds ago, at 0.001 and 0.002 USD a second; the live one
    began 50 seconds ago.
    """
    assert only("cost", "--since", "450s")["usd"] == round(50 * 0.003 + 50 * 0.001, 6)
    assert only("cost", "--since", "10s")["usd"] == round(10 * 0.001, 6)


def test_nothing_spent_is_said(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "none"))
    assert answer("cost") == ("", "nothing has run\n")
    assert answer("cost", "-o", "json") == ("[]\n", "")
    assert answer("top") == ("", "nothing runs\n")


def test_top_jobs_adds_what_live_attempts_cost_an_hour(home: Path) -> None:
    row = only("top")
    assert (row["active"], row["starting"], row["usd_per_h"], row["usd"]) == (1, 1, 7.2, 0.35)


def test_top_tells_how_busy_gpus_are_where_any_has_samples(home: Path) -> None:
    assert "GPU%" not in answer("top")[0]
    with sqlite3.connect(home / STATE_DB) as database:
        status = {"phase": "Running", "usage": {"gpus": 8, "gpuPercent": 93}}
        database.execute("update resources set status = ?", (json.dumps(status),))
    assert only("top")["gpu_percent"] == 93
    head, row = answer("top")[0].splitlines()[:2]
    assert head.split()[-1] == "GPU%" and row.split()[-1] == "93"


def test_top_providers_tells_of_the_last_hour(home: Path) -> None:
    row = only("top", "providers")
    assert (row["running"], row["starting"], row["ended"], row["failed"]) == (1, 1, 3, 1)
    assert (row["p50_start_s"], row["usd_per_h"]) == (0.0, 7.2)


def test_a_tasks_cost_is_that_of_all_its_attempts_in_every_answer(home: Path) -> None:
    def costs(*words: str) -> list[float | None]:
        items = json.loads(answer("get", *words, "job/x", "-o", "json")[0])["items"]
        return [item["status"]["cost"]["actual"] for item in items]

    assert costs("tasks") == [0.3, None, 0.05, 0.0]
    assert costs("attempts") == [0.1, 0.2, None, 0.05, 0.0]
    asked = answer("query", "select round(usd, 6) usd from tasks order by idx", "-o", "json")[0]
    assert [row["usd"] for row in json.loads(asked)] == costs("tasks")


def test_a_result_of_equal_work_is_called_cached_in_every_answer(home: Path) -> None:
    with sqlite3.connect(home / STATE_DB) as database:
        database.execute("update runs set reason = 'Cached' where state = 3 and idx = 0")
    database.close()
    for what in ("tasks", "attempts"):
        items = json.loads(answer("get", what, "job/x", "-o", "json")[0])["items"]
        shown = [item["status"]["phase"] for item in items if item["metadata"]["index"] == 0]
        sql = f"select state from {what} where idx = 0"
        asked = [row["state"] for row in json.loads(answer("query", sql, "-o", "json")[0])]
        assert asked == shown
        assert "Cached" in asked


def in_namespace(home: Path, name: str) -> None:
    with sqlite3.connect(home / STATE_DB) as database:
        database.execute("update resources set namespace = ?", (name,))
    database.close()


@pytest.mark.parametrize("verb", ["cost", "top"])
def test_a_namespace_is_asked_about_alone_and_others_are_mentioned(home: Path, verb: str) -> None:
    in_namespace(home, "team")
    out, said = answer(verb)
    assert out == "" and "hint: 1 other namespace not shown: -A shows all" in said
    for words in (("-n", "team"), ("-A",)):
        assert "batchjob/x -n team" in answer(verb, *words)[0]
        assert "not shown" not in answer(verb, *words)[1]
    assert answer(verb, "-n", "none", "-o", "json")[0] == "[]\n"


def test_providers_are_of_all_namespaces_unless_one_is_named(home: Path) -> None:
    in_namespace(home, "team")
    assert only("top", "providers")["running"] == 1
    assert only("top", "providers", "-n", "team")["p50_start_s"] == 0.0
    assert answer("top", "providers", "-n", "none", "-o", "json")[0] == "[]\n"


def test_what_the_cache_saved_is_a_column_where_there_is_any(home: Path) -> None:
    assert "saved_usd" not in only("cost")
    assert "CACHE SAVED" not in answer("cost")[0]
    store = open_store(home, SystemClock())
    known = CachedSuccess("t", "u", "{}", "{}", "run-a", "batchjob/a", 7, 5.0, 0.25, NOW_S, "u")
    unit = partial(Run, uid="u", state=RunState.STARTING, provider="", attempt=1, params="{}",
                   template_hash="t", params_hash="p", created_at_s=NOW_S)  # fmt: skip
    with store.transaction():
        store.cache.remember([known])
        for index in (4, 5):
            run = unit(name=f"c-{index}", sandbox=f"c-{index}", index=index)
            store.runs.begin([run])
            taken = replace(
                run, state=RunState.SUCCEEDED, reason=CACHED, started_at_s=None, ended_at_s=NOW_S,
                usd_per_s=0.0, message="the result of batchjob/a 7, run run-a",
            )  # fmt: skip
            assert store.runs.advance(taken)
    store.close()
    for by in ("job", "kind", "label=team"):
        assert only("cost", "--by", by)["saved_usd"] == 0.5
    assert "saved_usd" not in answer("cost", "--by", "provider", "-o", "json")[0]
    assert "CACHE SAVED" in answer("cost")[0]
    sql = "select idx, of_object, of_idx, saved_usd from reuses order by 1 limit 1"
    (row,) = json.loads(answer("query", sql, "-o", "json")[0])
    assert row == {"idx": 4, "of_object": "batchjob/a", "of_idx": 7, "saved_usd": 0.25}


WARM_FOR_S = 1_000.0  # of which the first 700 s are charged


def keep_warm(home: Path, *, usd_per_s: float | None, warm: bool = True) -> None:
    """A Function with two containers, beside the job."""
    began_s = NOW_S - WARM_FOR_S
    charged = {"actual": (usd_per_s or 0.0) * 700, "seconds": 1400.0, "until": began_s + 700}
    status: dict[str, Any] = {"cost": {"from": began_s, "provider": "modal", **charged}}
    if warm:
        since = {"since": began_s + 700, "idle": 60.0}
        status["warm"] = {"containers": 2, "usdPerSecond": usd_per_s, **since}
    store = open_store(home, SystemClock())
    with store.transaction():
        labels = {"team": "rlm"}
        row = Resource("f", "Function", "warm", 1, 0, "{}", json.dumps(status), labels, {}, NOW_S)
        store.resources.put(row, expected_version=None)
    store.close()


def test_what_a_function_keeps_warm_is_in_the_sum_up_to_now(home: Path) -> None:
    keep_warm(home, usd_per_s=0.01)
    by_job = {row["key"]: row for row in json.loads(answer("cost", "-o", "json")[0])}
    row = by_job["function/warm"]
    assert (row["attempts"], round(row["usd"], 6), row["seconds"]) == (0, 10.0, 2000.0)
    for by, key in (("provider", "modal"), ("label=team", "rlm")):
        summed = only("cost", "--by", by)
        assert (summed["key"], summed["objects"], summed["usd"]) == (key, 2, 10.35)
    by_kind = {row["key"]: row["usd"] for row in json.loads(answer("cost", "--by", "kind", "-o",
                                                                   "json")[0])}  # fmt: skip
    assert by_kind["Function"] == pytest.approx(10.0)


def test_a_span_takes_the_share_of_what_was_warm_in_it(home: Path) -> None:
    keep_warm(home, usd_per_s=0.01)
    rows = json.loads(answer("cost", "--since", "100s", "-o", "json")[0])
    assert {row["key"]: round(row["usd"], 3) for row in rows}["function/warm"] == 1.0


def test_what_is_warm_no_more_still_counts_and_only_where_it_was(home: Path) -> None:
    keep_warm(home, usd_per_s=0.01, warm=False)
    rows = json.loads(answer("cost", "-o", "json")[0])
    assert {row["key"]: round(row["usd"], 3) for row in rows}["function/warm"] == 7.0
    rows = json.loads(answer("cost", "--since", "100s", "-o", "json")[0])
    assert "function/warm" not in {row["key"] for row in rows}


def test_a_warm_function_without_a_price_is_said_and_not_free(home: Path) -> None:
    keep_warm(home, usd_per_s=None)
    assert answer("cost")[1].splitlines()[-1] == (
        "warning: 1 Function without a known price of what stays warm: its cost is not in it"
    )
    rows = {row["key"]: row for row in json.loads(answer("cost", "-o", "json")[0])}
    assert rows["function/warm"]["usd"] is None


@pytest.mark.parametrize(
    ("usd_per_s", "warm", "line"),
    [
        (0.01, True, "$10.00 so far, $36.00/h while it exists: 2 containers stay warm, whether or "
                     "not anything runs"),
        (0.01, False, "$7.00 spent"),
        (None, True, "an unknown price while it exists: 2 containers stay warm, whether or not "
                     "anything runs"),
    ],
)  # fmt: skip
def test_describe_tells_what_a_function_costs(
    home: Path, usd_per_s: float | None, warm: bool, line: str
) -> None:
    keep_warm(home, usd_per_s=usd_per_s, warm=warm)
    assert f"Cost:        {line}\n" in answer("describe", "function/warm")[0]


def test_get_shows_what_a_function_costs_an_hour_where_one_does(home: Path) -> None:
    keep_warm(home, usd_per_s=0.01)
    header, row = answer("get", "functions")[0].splitlines()
    assert row[header.index("$/H") :].startswith("$36.00 ")
