"""A short task does not pay for what it does not use, and whoever uses it finds it as usual."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.guest.ship.assemble import guest_source

RUN = """
said = []
sandbox = Sandbox([])
for code in sys.argv[1:]:
    show_source(code)
    sandbox.run(code, {}, said.append)
print([event for event in said if event["e"] == "result"][-1]["json"])
"""
LOADED = "import sys; SUBMIT([one for one in ('js' 'on', 're', 'linecache') if one in sys.modules])"


def result(tmp_path: Path, *codes: str) -> object:
    """Of the last of some tasks, run in turn by the guest in an interpreter of its own."""
    guest = tmp_path / "guest.py"
    guest.write_text(guest_source() + RUN)
    argv = [sys.executable, "-I", "-S", str(guest), *codes]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["output"]


def test_a_short_task_imports_neither_json_nor_what_shows_tracebacks(tmp_path: Path) -> None:
    assert result(tmp_path, LOADED) == []


def test_json_is_at_hand_however_it_is_named(tmp_path: Path) -> None:
    assert result(tmp_path, "SUBMIT(json.loads('[1]'))") == [1]
    assert result(tmp_path, "SUBMIT(globals()['js' + 'on'].loads('[1]'))") == [1]
    same = "import sys; SUBMIT(json is sys.modules['json'])"
    assert result(tmp_path, same) is True


def test_a_name_that_a_task_took_for_itself_stays_its_own(tmp_path: Path) -> None:
    assert result(tmp_path, "json = 1", "SUBMIT(json)") == 1


@pytest.mark.parametrize("before", ["pass", "import linecache", "1 / 0"])
def test_a_traceback_that_a_task_prints_shows_its_lines(tmp_path: Path, before: str) -> None:
    code = "import traceback\ntry:\n    1 / 0\nexcept Exception:\n"
    code += "    SUBMIT(traceback.format_exc().splitlines()[-2])"
    shown = result(tmp_path, before, code)
    assert "1 / 0" in str(shown) or "~~" in str(shown)
