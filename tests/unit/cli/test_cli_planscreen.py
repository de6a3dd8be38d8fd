"""What a plan says of fields that are too long to be shown."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store

MANIFEST = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: x}
spec:
  completions: 1
  template:
    script: |
"""


def test_a_program_that_changed_leads_to_the_verb_that_shows_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    lines = [f"echo step {number}" for number in range(9)]
    spec = {"completions": 1, "template": {"script": "\n".join(lines) + "\n"}}
    row = Resource("u", "BatchJob", "x", 1, 0, json.dumps(spec), "", {}, {}, 5.0)
    store = open_store(tmp_path / "home", SystemClock())
    with store.transaction():
        store.resources.put(row, expected_version=None)
    store.close()
    file = tmp_path / "x.yaml"
    file.write_text(MANIFEST + "".join(f"      {line} now\n" for line in lines))
    out = io.StringIO()
    assert run_guarded(["plan", "-f", str(file)], Screen(out, io.StringIO())) == 0
    [changed] = [line for line in out.getvalue().splitlines() if "template.script" in line]
    assert changed.split(maxsplit=1)[1] == "changed; `fleetctl diff` shows its lines"
