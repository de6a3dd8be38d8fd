"""What people see of retention: what would go, and that a log is past it and was never missing."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.controllers.kinds.retention_decision import RetentionLimits, RetentionSort
from tests.unit.retention.disk_world import Disk


def said(*words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)"""
    raw, talk = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", newline="")
    code = run_guarded(
        list(words), Screen(out, talk, out_is_terminal=False, talk_is_terminal=False)
    )
    out.flush()
    return code, raw.getvalue().decode("utf-8", "replace"), talk.getvalue()


def test_a_dry_run_names_what_would_go_and_logs_tell_of_what_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    code, _, talk = said("gc", "--dry-run")
    assert code == 4 and "there is no store" in talk
    disk = Disk(tmp_path)
    disk.object("a")
    for number in range(12):
        disk.run("a", f"fl-{number}", index=number)
        disk.write(f"a/runs/fl-{number}.log", 5000, 100.0 + number)
    code, out, talk = said("gc", "--dry-run", "-o", "wide")
    assert code == 0 and "2 things would be deleted" in talk and "nothing was changed" in talk
    assert [it.split()[2] for it in out.splitlines() if it.endswith("maxAge")] == ["fl-0", "fl-1"]
    (found,) = (it for it in json.loads(said("gc", "--dry-run", "-o", "json")[1]) if it["goes"])
    assert (found["sort"], found["items"], len(found["goes"])) == ("logs", 12, 2)
    disk.let_go(RetentionSort.LOGS, RetentionLimits(max_age_s=0.0, keep_last=11))
    code, out, talk = said("logs", "job/job-a", "--index", "0,2", "--tail", "1")
    assert code == 0 and talk.startswith("[0/1] -- its log is past retention, and was deleted on ")
    assert "no output" not in talk and out.startswith("[2/1] ")
    disk.store.close()
