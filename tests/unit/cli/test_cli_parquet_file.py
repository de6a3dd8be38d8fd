"""What `-o parquet` writes, read back with pyarrow."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import parquet

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.sqlite.store import open_store
from tests.golden.cli.cli_world import build


@pytest.mark.parametrize(
    ("words", "names", "first"),
    [
        (["results", "job/nightly-ev"],
         ["index", "state", "attempts", "params.chunk_id", "params.data", "result.chunk_id",
          "result.count", "result.note"], [0, "Succeeded", 1, 0, "[1, 2, 3]", 0, 3, None]),
        (["query", "select idx, value from metrics where metric = 'loss'"], ["idx", "value"],
         [1, 2.5]),
        (["query", "select idx from tasks where 0"], ["idx"], None),
    ],
)  # fmt: skip
def test_a_notebook_reads_what_was_written(
    words: list[str], names: list[str], first: list[object] | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    build(tmp_path / "home")
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    raw = io.BytesIO()
    screen = Screen(io.TextIOWrapper(raw, encoding="utf-8"), io.StringIO())
    assert run_guarded([*words, "-o", "parquet"], screen) == 0
    table = parquet.read_table(io.BytesIO(raw.getvalue()))
    assert table.schema.names == names
    assert (list(table.to_pylist()[0].values()) if first else table.num_rows) == (first or 0)


def test_nested_results_are_columns_and_large_numbers_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    store = open_store(tmp_path, SystemClock())
    with store.transaction():
        store.resources.put(
            Resource("u", "BatchJob", "x", 1, 0, "{}", "", {}, {}, 5.0), expected_version=None
        )
        for index, result in enumerate(
            ({"n": 10**25, "usage": {"tokens": 7, "by": {"a": [1]}}}, {"n": 1, "usage": None})
        ):
            name = f"r-{index}"
            run = Run(name, "u", index, 1, RunState.STARTING, "local", name, "t", "{}", "p", 6.0)
            store.runs.begin([run])
            store.runs.advance(replace(run, state=RunState.SUCCEEDED), result=json.dumps(result))
    store.close()
    raw = io.BytesIO()
    screen = Screen(io.TextIOWrapper(raw, encoding="utf-8"), io.StringIO())
    assert run_guarded(["results", "job/x", "-o", "parquet"], screen) == 0
    first, second = parquet.read_table(io.BytesIO(raw.getvalue())).to_pylist()
    assert first["result.n"] == str(10**25)
    assert (first["result.usage.tokens"], first["result.usage.by.a"]) == (7, "[1]")
    assert (second["result.n"], second["result.usage.tokens"]) == ("1", None)
