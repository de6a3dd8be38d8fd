"""What `-o parquet` writes, read back with pyarrow."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyarrow import parquet

from fleetctl.cli.main import guarded
from fleetctl.cli.output.render import Screen
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
    assert guarded([*words, "-o", "parquet"], screen) == 0
    table = parquet.read_table(io.BytesIO(raw.getvalue()))
    assert table.schema.names == names
    assert (list(table.to_pylist()[0].values()) if first else table.num_rows) == (first or 0)
