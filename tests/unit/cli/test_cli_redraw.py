"""`get -w` on a terminal: the whole table in place, until there is nothing left."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.live import fit_lines
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store


def test_a_table_that_fits_is_shown_whole() -> None:
    assert fit_lines(["NAME", "a", "b"], 24) == ["NAME", "a", "b"]


def test_of_too_many_rows_the_newest_stay_under_the_header() -> None:
    lines = ["NAME", *[f"job-{number}" for number in range(100)]]
    shown = fit_lines(lines, 10)
    assert shown[:2] == ["NAME", "... 93 more above"]
    assert shown[2:] == lines[-7:]
    assert len(shown) < 10


@pytest.mark.parametrize("words", [["get", "job/x", "-w"], ["get", "tasks", "job/x", "-w"]])
def test_the_table_is_redrawn_until_its_object_is_gone(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    store = open_store(tmp_path / "home", SystemClock())
    row = Resource("u", "BatchJob", "x", 1, 0, "{}", "", {}, {}, SystemClock().now_s())
    with store.transaction():
        store.resources.put(row, expected_version=None)
    out = io.StringIO()
    screen = Screen(out, io.StringIO(), out_is_terminal=True, talk_is_terminal=True)
    code: list[int] = []
    watching = threading.Thread(target=lambda: code.append(run_guarded(words, screen)))
    watching.start()
    while ("Pending" if words[1] == "job/x" else "INDEX") not in out.getvalue():
        assert watching.is_alive()
        watching.join(0.01)
    with store.transaction():
        store.resources.delete("u")
    watching.join(300)
    store.close()
    assert code == [0]
    assert "\x1b[1A" in out.getvalue() or "\x1b[2K" in out.getvalue()
