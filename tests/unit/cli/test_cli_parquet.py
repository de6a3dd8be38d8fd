"""What makes rows a table with typed columns, and what is said where pyarrow is not installed."""

from __future__ import annotations

import io
import sys

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.parquet import unify_column
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.report.query import make_unique
from fleetctl.common.install import install_hint


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, 2, None], [1, 2, None]),
        ([1, 2.5, None], [1.0, 2.5, None]),
        (["a", None], ["a", None]),
        ([True, None], [True, None]),
        ([1, "a"], ["1", "a"]),
        ([True, 1], ["true", "1"]),
        ([[1], None], ["[1]", None]),
        ([{"a": 1}, "x"], ['{"a": 1}', "x"]),
        ([1, 10**25, None], ["1", str(10**25), None]),
        ([0.5, -(2**63) - 1], ["0.5", str(-(2**63) - 1)]),
        ([2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ([None], [None]),
        ([], []),
    ],
)
def test_a_column_has_one_type(values: list[object], column: list[object]) -> None:
    assert unify_column(values) == column


def test_columns_of_one_name_are_told_apart() -> None:
    assert make_unique(("n", "n", "m", "n")) == ["n", "n_2", "m", "n_3"]


def test_without_pyarrow_the_command_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out, talk = io.StringIO(), io.StringIO()
    assert run_guarded(["query", "select 1 n", "-o", "parquet"], Screen(out, talk)) == 3
    assert talk.getvalue() == (
        "error: `-o parquet` needs pyarrow, which is not installed\n"
        f"hint: {install_hint('parquet')}, or take `-o csv`\n"
    )
    assert out.getvalue() == ""
