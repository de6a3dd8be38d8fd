"""What a plan shows of runs of several machines, and of such that ask endpoints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen

TRAINING = """\
apiVersion: fleetctl.dev/v1alpha1
kind: TrainingRun
metadata: {name: x}
spec:
  placement: {provider: local}
  nodes: {min: 2, max: 3}
  stages:
  - {name: data, nodes: 1, script: x}
  - {name: train, script: x}
"""


def test_a_plan_shows_the_nodes_of_each_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    path = tmp_path / "train.yaml"
    path.write_text(TRAINING)
    out = io.StringIO()
    run_guarded(["plan", "-f", str(path)], Screen(out, io.StringIO()))
    lines = out.getvalue().splitlines()
    at = next(n for n, line in enumerate(lines) if "PLACEMENT of trainingrun/x" in line)
    column = lines[at].index("NODES")
    assert [line[column:].split("  ")[0] for line in lines[at + 1 : at + 3]] == ["1", "2 to 3"]
    assert "data" in lines[at + 1] and "train" in lines[at + 2]


def test_a_plan_does_not_bound_what_is_asked_of_endpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    path = tmp_path / "ask.yaml"
    path.write_text(
        "apiVersion: fleetctl.dev/v1alpha1\n"
        "kind: Endpoint\n"
        "metadata: {name: small}\n"
        'spec: {servers: [{url: "http://127.0.0.1:9"}]}\n'
        "---\n"
        "apiVersion: fleetctl.dev/v1alpha1\n"
        "kind: BatchJob\n"
        "metadata: {name: ask}\n"
        "spec: {budget: {maxCost: 2}, template: {endpoints: [small], script: x}}\n"
    )
    out = io.StringIO()
    run_guarded(["plan", "-f", str(path)], Screen(out, io.StringIO()))
    assert "calls of endpoint/small are charged as they are made" in out.getvalue()
    assert "nothing bounds this apply, $2.00 left: it may stop at the cap" in out.getvalue()
