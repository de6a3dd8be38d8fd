"""SQL of a person: what it sees, and that it can neither change, nor open, nor exhaust anything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.cli.report.top import query_jobs
from fleetctl.common.errors import StoreError, UsageError
from fleetctl.common.state_paths import STATE_DB
from fleetctl.controllers.model import Resource
from fleetctl.stores.queries import STATES, read_queries
from fleetctl.stores.read.query import VIEWS, SqlQuery
from fleetctl.stores.sqlite.store import open_store
from fleetctl.views.kinds import KINDS
from fleetctl.views.spending import open_asking
from fleetctl.views.store_reading import open_reading
from tests.golden.cli.cli_world import NOW_S, FixedClock, build


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("asking") / "home"
    build(place)
    return place


@pytest.fixture
def asking(home: Path) -> Iterator[SqlQuery]:
    with open_asking(home) as opened:
        yield opened


def rows(asking: SqlQuery, sql: str) -> list[tuple[object, ...]]:
    return list(asking.ask(sql).rows)


def test_without_a_store_every_view_is_empty(tmp_path: Path) -> None:
    with open_asking(tmp_path / "none") as asking:
        for view in VIEWS:
            assert rows(asking, f"select * from {view}") == []
    assert not (tmp_path / "none").exists()


def test_every_view_has_rows_of_the_store(asking: SqlQuery) -> None:
    for view in VIEWS:
        # Nothing in that store was taken from the cache or is kept warm; `cost` is tested with it.
        full = view not in ("reuses", "warm", "interpreters")
        assert bool(rows(asking, f"select * from {view}")) is full, view


def test_a_tasks_state_is_the_one_that_get_tasks_shows(home: Path, asking: SqlQuery) -> None:
    with open_reading(home) as reading:
        shown = {
            (view.key, task.run.index): (task.state, task.attempts)
            for view in reading.views()
            for task in reading.tasks(view)
        }
    asked = rows(asking, "select object, idx, state, attempts from tasks")
    assert {(key, index): (state, attempts) for key, index, state, attempts in asked} == shown


def test_an_attempts_state_is_the_one_that_get_attempts_shows(home: Path, asking: SqlQuery) -> None:
    with open_reading(home) as reading:
        shown = {
            (task.run.name, task.state)
            for view in reading.views()
            for task in reading.attempts(view)
        }
    assert set(rows(asking, "select run, state from attempts")) == shown
    assert STATES[6] == "Stopped", "the number that the view attempts calls Cancelled"


def test_what_only_tries_to_start_is_active_nowhere_while_nothing_runs(tmp_path: Path) -> None:
    """No machine may ever take it: `get`, `query` and `top` say the same."""
    build(tmp_path / "home")
    store = open_store(tmp_path / "home", FixedClock())
    with store.transaction():
        row = store.resources.get("BatchJob", "embed-docs")
        assert row is not None
        status = json.loads(row.status) | {"phase": "Pending", "active": 2, "starting": 1}
        store.resources.put_status(row.uid, json.dumps(status), expected_version=row.version)
    store.close()
    with open_reading(tmp_path / "home") as reading:
        shown = {it.key: it.active for it in reading.views()}
    assert shown["batchjob/embed-docs"] == 1
    with open_asking(tmp_path / "home") as asking:
        queried = dict(rows(asking, "select object, active from objects where total is not null"))
        assert queried == {key: shown[str(key)] for key in queried}
        live = {str(row["object"]): row["active"] for row in query_jobs(asking)}
        assert live == {key: shown[key] for key in live}


def test_money_is_of_every_attempt_and_unknown_is_not_free(tmp_path: Path) -> None:
    from tests.unit.stores.asking_world import build_costs

    build_costs(tmp_path / "home")
    with SqlQuery(tmp_path / "home", now_s=NOW_S, task_state=lambda *_, **__: "Failed") as asking:
        assert rows(asking, "select idx, attempts, round(usd, 6) from tasks order by idx") == [
            (0, 2, 0.3), (1, 1, None), (2, 1, 0.05), (3, 1, 0.0),
        ]  # fmt: skip
        costs = "select provider, attempts, unpriced_attempts, round(usd, 6), round(failed_usd, 6)"
        assert rows(asking, f"{costs} from costs") == [("modal", 5, 1, 0.35, 0.1)]


def test_rows_that_are_still_in_the_log_of_a_live_writer_are_seen(tmp_path: Path) -> None:
    store = open_store(tmp_path / "home", FixedClock())
    with store.transaction():
        row = Resource("u", "BatchJob", "x", 1, 0, "{}", "", {}, {}, NOW_S)
        store.resources.put(row, expected_version=None)
    with open_asking(tmp_path / "home") as asking:
        assert rows(asking, "select object, phase from objects") == [("batchjob/x", "Pending")]
        with store.transaction():
            store.resources.delete("u")
        assert rows(asking, "select object, phase from objects") == [("batchjob/x", "Deleted")]
    store.close()


def test_json_of_params_and_results_can_be_taken_apart(asking: SqlQuery) -> None:
    sql = "select json_extract(result, '$.loss') from results where sweep = 'lr'"
    assert rows(asking, sql) == [(3.0942457101488188,)]
    (labels,) = rows(asking, "select labels from objects where name = 'nightly-ev'")[0]
    assert json.loads(str(labels)) == {"team": "eval"}


@pytest.mark.parametrize(
    "sql",
    ["insert into tasks values (1)", "delete from tasks", "delete from state.runs",
     "update state.resources set name = 'x'", "create table x (a)", "create temp table x (a)",
     "drop view tasks", "begin", "commit", "pragma user_version", "pragma query_only = off",
     "attach 'x.db' as x", "attach ':memory:' as x", "detach state", "vacuum", "vacuum into 'x.db'",
     "select * from pragma_table_info('runs')", "select load_extension('x')", "reindex", "analyze",
     "select * from state.runs", "select spec from specs", "select * from sqlite_master",
     "select * from temp.sqlite_master", "select * from state.sqlite_schema", "select 1; select 2",
     "select", "", "-- nothing", "select nothing from tasks", "select * from nothing",
     "select zeroblob(1000000000)", "select index from tasks"],
)  # fmt: skip
def test_what_is_more_than_reading_the_views_is_refused(
    sql: str, home: Path, asking: SqlQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = (home / STATE_DB).read_bytes()
    with pytest.raises(UsageError):
        rows(asking, sql)
    assert list(tmp_path.iterdir()) == []
    assert (home / STATE_DB).read_bytes() == before
    assert rows(asking, "select count(*) from attempts") == [(21,)], "and it works on"


def test_a_wrong_column_is_answered_with_those_that_there_are(asking: SqlQuery) -> None:
    with pytest.raises(UsageError) as caught:
        rows(asking, "select loss from Results")
    assert caught.value.hint.startswith("`results` has kind, name, object, job,")


ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"


def test_a_query_that_does_not_end_is_ended(home: Path) -> None:
    begun_s = time.monotonic()
    with open_asking(home, timeout_s=0.2) as asking, pytest.raises(UsageError) as caught:
        rows(asking, ENDLESS)
    assert "took too long" in str(caught.value)
    assert time.monotonic() - begun_s < 300


def test_a_query_that_takes_all_memory_is_ended(home: Path) -> None:
    sql = (
        "with recursive c(x) as (select 1 union all select x + 1 from c limit 3000) "
        "select count(distinct randomblob(1000000) || x) from c"
    )
    # On a busy machine it would else be ended for its time.
    with open_asking(home, timeout_s=600.0) as asking, pytest.raises(UsageError) as caught:
        rows(asking, sql)
    assert "MiB of memory" in str(caught.value)


def test_a_store_of_another_program_is_refused(tmp_path: Path) -> None:
    import sqlite3

    (tmp_path / STATE_DB).parent.mkdir()
    database = sqlite3.connect(tmp_path / STATE_DB)
    database.execute("create table x (a)")
    database.execute("pragma user_version = 7")
    database.close()
    with pytest.raises(StoreError):
        open_asking(tmp_path)


def test_there_is_a_column_for_each_kind_that_runs() -> None:
    assert {name for name, kind in KINDS.items() if kind.runs} == {
        "BatchJob", "Sweep", "TrainingRun",
    }  # fmt: skip


def test_views_of_runs_carry_no_status() -> None:
    """It can have thousands of bytes, and a GROUP BY over 100,000 rows keeps all columns of each:
    599 MB with it, 23 MB without.
    """
    for view in ("attempts", "tasks", "metrics"):
        assert "status" not in read_queries("views.sql")[view].replace("task_state", "")
