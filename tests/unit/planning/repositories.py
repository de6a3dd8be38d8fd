"""Git repositories of tests: each commit is a whole tree, and its digits are always the same."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

JOB = """apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: {name}}}
spec:
  completions: {tasks}
  template:
    command: [python, -c, "{program}"]
    timeoutSeconds: {seconds}
    resources: {{gpu: A100}}
    image: {{python: "3.12"}}
  placement: {{ordered: [{{provider: modal}}]}}
"""
VOLUME = """apiVersion: fleetctl.dev/v1alpha1
kind: Volume
metadata: {{name: {name}}}
spec: {{deletionPolicy: {policy}}}
"""
_WHO = {f"GIT_{it}_{what}": "x@y.z" for it in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
_WHEN = {f"GIT_{it}_DATE": "2026-11-01T12:00:00Z" for it in ("AUTHOR", "COMMITTER")}
_ENV = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **_WHO, **_WHEN}


def job(name: str, *, tasks: int = 10, program: str = "1", seconds: int = 600) -> str:
    return JOB.format(name=name, tasks=tasks, program=program, seconds=seconds)


def volume(name: str, policy: str = "Retain") -> str:
    return VOLUME.format(name=name, policy=policy)


def git(place: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=place, env={**os.environ, **_ENV}, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


def repository(place: Path, *trees: Mapping[str, str]) -> Path:
    """One commit a tree on `main`, tagged `v0`, `v1` ..."""
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "-q", "-b", "main", ".")
    for number, tree in enumerate(trees):
        commit(place, tree, f"v{number}")
    return place


def commit(place: Path, tree: Mapping[str, str], tag: str) -> None:
    git(place, "rm", "-rfq", "--ignore-unmatch", ".")
    for name, text in tree.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    git(place, "add", "-A", "-f")
    git(place, "commit", "-q", "--allow-empty", "-m", tag)
    git(place, "tag", tag)
