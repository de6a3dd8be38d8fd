"""The winner of a search, trained by the program of the search: with W&B's own library, and with
arguments as most such programs take them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.fleet import Fleet

PROGRAM = """
import argparse, wandb
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=9.0)
p.add_argument("--epochs", type=int, default=9)
a = p.parse_args()
run = wandb.init(project="p", config=vars(a))
for epoch in range(a.epochs):
    run.log({"loss": a.lr})
run.summary["lr"], run.summary["epochs"] = a.lr, a.epochs
run.finish()
"""
SWEEP = """
apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {name: short}
spec:
  parallelism: 2
  search:
    program: train.py
    command: [PYTHON, "${program}", "${args}"]
    method: grid
    metric: {name: loss, goal: minimize}
    parameters: {lr: {values: [0.5, 0.25]}, epochs: {value: 2}}
  template: {source: {path: .}, timeoutSeconds: 600}
"""
FULL = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: NAME}
spec:
  paramsFrom: {sweep: short, best: true}
  tasks: {matrix: {epochs: [3, 4]}}
  template: {source: {path: .}, timeoutSeconds: 600WORK}
"""


def full(name: str, *words: str) -> str:
    listed = ", ".join(f'"{it}"' for it in (sys.executable, *words))
    work = f", command: [{listed}]" if words else ""
    return FULL.replace("NAME", name).replace("WORK", work)


def test_the_winner_is_trained_with_what_won(empty: Fleet, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    path = tmp_path / "all.yaml"
    texts = [
        SWEEP.replace("PYTHON", f'"{sys.executable}"'),
        full("by-default"),
        full("with-args", "train.py", "${args}"),
        full("without", "train.py"),
    ]
    path.write_text("---".join(texts))
    done = empty.run("apply", "-f", str(path), "--wait")
    # The third looks as a program does that reads `wandb.config`, so it is no failure, and said.
    assert done.code == 0, done.talk + empty.run("logs", "sweep/short").out
    assert "spec.template.command has no `${args}`" in done.talk
    for name in ("by-default", "with-args"):
        rows = empty.results(f"job/{name}")
        assert [(it["result"]["lr"], it["result"]["epochs"]) for it in rows] == [
            (0.25, 3),
            (0.25, 4),
        ]
    described = empty.ok("get", "attempts", "job/without", "-o", "json")
    assert "ParametersUnread" in described and "lr=9.0 and not 0.25" in described
