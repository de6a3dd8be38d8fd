"""A blocking input for each reader of a manifest's texts and files: meanwhile the controller serves
other requests, and limits, deletes and its shutdown still work.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fleetctl.daemon.client.socket_client import ping_controller
from tests.docs.fleet import Fleet
from tests.living import alive

# Of one answer. Half a second is usual; other work on the machine may make it many times that, and
# a stopper is for ever.
ANSWER_S = 90.0
ENDS_S = 120.0
GROWING = "[object.spec.template.python]" + ".map(x, x + x + x + x)" * 12 + ".size() > 0"
SCRIPT = "printf '%060d!\\n' 0 | tr 0 a; sleep 600"


class Watch:
    """Asks the controller for its state again and again, and keeps the longest wait."""

    def __init__(self, home: Path) -> None:
        self._home, self._over = home, threading.Event()
        self.longest_s, self.answers = 0.0, 0
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(ENDS_S)

    def _ask(self) -> None:
        while not self._over.is_set():
            began_s = time.monotonic()
            self.answers += ping_controller(self._home) is not None
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
            time.sleep(0.02)


def document(kind: str, name: str, spec: Any) -> str:
    head = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


def job(name: str, **template: Any) -> str:
    return document(
        "BatchJob", name, {"completions": 1, "template": {"script": "echo", **template}}
    )


def stoppers(here: Path) -> dict[str, str]:
    """Manifests by the place where each would stop a reader."""
    os.mkfifo(here / "rows.jsonl")
    os.mkfifo(here / "sweep.yaml")
    os.mkfifo(here / "packages.txt")
    (here / "src").mkdir()
    (here / "src" / ("a" * 200)).write_text("")
    text = "a" * 900_000
    regex = {"from": "stdout", "regex": "(?P<loss>(?:a?){4000000000}b)"}
    stars = ["*a" * 12 + "*b"]
    rows = {"tasks": {"fromFile": "rows.jsonl"}, "template": {"script": "x"}}
    return {
        "regex": job("regex", metrics=regex),
        "glob": job("glob", source={"path": "src", "exclude": stars}),
        "pipe of rows": document("BatchJob", "rows", rows),
        "pipe of a search": document("Sweep", "search", {"searchFrom": {"file": "sweep.yaml"}}),
        "pipe of packages": job("packages", image={"pip": ["-r packages.txt"]}),
        "kernel": job("kernel", source={"path": "/proc"}),
        "policy": document("Policy", "growing", {"rules": [{"expression": GROWING}]}),
        "text": document(
            "BatchJob", "text", {"completions": 1, "template": {"python": f"x = '{text}'"}}
        ),
        "deep": '{"apiVersion": ' + "[" * 100_000,
        "dots": job("dots", env={"A": "." * 200_000}),
        "long": "".join(f"- {{a: [{number}]}}\n" for number in range(200_000)),
    }


def test_a_stopper_holds_nobody_up(tmp_path: Path) -> None:
    here = tmp_path / "manifests"
    here.mkdir()
    pytest.importorskip("cel")
    fleet = Fleet(tmp_path / "home")
    try:
        spec = {
            "completions": 1,
            "template": {
                "script": SCRIPT,
                "timeoutSeconds": 2,
                "metrics": {"from": "stdout", "regex": "(?P<loss>(a+)+)$"},
            },
        }
        (here / "slow.yaml").write_text(document("BatchJob", "slow", spec))
        spec["template"] = {**spec["template"], "timeoutSeconds": 500}  # type: ignore[dict-item]
        for name in ("kept", "deleted"):
            (here / f"{name}.yaml").write_text(document("BatchJob", name, spec))
            assert fleet.run("apply", "-f", str(here / f"{name}.yaml")).code == 0
        with Watch(fleet.home) as watch:
            answer = fleet.run("apply", "-f", str(here / "slow.yaml"), "--wait")
            assert answer.code == 1 and "Timeout" in answer.out + answer.talk
            for place, text in stoppers(here).items():
                file = here / f"{place.replace(' ', '-')}.yaml"
                file.write_text(text)
                found = fleet.run("apply", "-f", str(file))
                assert found.code in (0, 2, 3), f"{place}: {found.talk}"
                file.unlink()
            assert fleet.run("delete", "job", "deleted", "--yes").code == 0
        assert watch.answers > 0 and watch.longest_s < ANSWER_S
        supervisors = [int(it) for it in os.listdir("/proc") if it.isdigit() and _is_of(it, fleet)]
        assert fleet.run("down").code == 0
        assert ping_controller(fleet.home) is None
    finally:
        fleet.run("down", "--force")
        shutil.rmtree(fleet.home, ignore_errors=True)
    _until_gone(supervisors)


def _is_of(pid: str, fleet: Fleet) -> bool:
    """Returns whether a process works below a home: it has a file or directory there open."""
    try:
        return (
            any(
                os.readlink(f"/proc/{pid}/fd/{it}").startswith(f"{fleet.home}/")
                for it in os.listdir(f"/proc/{pid}/fd")
            )
            and int(pid) != os.getpid()
        )
    except OSError:
        return False


def _until_gone(pids: list[int]) -> None:
    until_s = time.monotonic() + ENDS_S
    while left := [it for it in pids if alive(it)]:
        assert time.monotonic() < until_s, left
        time.sleep(0.1)
