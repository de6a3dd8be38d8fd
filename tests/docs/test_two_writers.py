"""Two people at one state directory, and commands on several objects, as people type them."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.docs.fleet import Answer, Fleet

JOB = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: NAME}
spec:
  cache: {policy: Never}
  template: {timeoutSeconds: 900, script: "WORK"}
"""


def manifest(name: str, work: str = "true") -> str:
    return JOB.replace("NAME", name).replace("WORK", work)


class Waiting:
    """`apply --wait` of one terminal, while another one types."""

    def __init__(self, fleet: Fleet, path: Path) -> None:
        self._answers: list[Answer] = []
        words = ("apply", "-f", str(path), "--wait", "--yes")
        self._thread = threading.Thread(target=lambda: self._answers.append(fleet.run(*words)))
        self._thread.start()

    def answer(self) -> Answer:
        self._thread.join()
        return self._answers[0]


def applied(fleet: Fleet, path: Path, name: str) -> Waiting:
    waiting = Waiting(fleet, path)
    while fleet.run("get", f"job/{name}").code != 0:
        pass
    return waiting


def test_the_first_of_two_applies_hears_of_the_second(empty: Fleet, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine.yaml", tmp_path / "theirs.yaml"
    mine.write_text(manifest("two", "sleep 800"))
    theirs.write_text(manifest("two", "echo theirs"))
    waiting = applied(empty, mine, "two")
    assert empty.run("apply", "-f", str(theirs), "--wait", "--yes").code == 0
    first = waiting.answer()
    assert first.code == 5
    assert "succeeded" not in first.out
    assert "theirs.yaml" in first.talk


def test_a_change_that_leaves_the_work_alone_overtakes_nobody(empty: Fleet, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(manifest("same", "sleep 3"))
    waiting = applied(empty, mine, "same")
    empty.ok("set", "job/same", "maxInfraRetries=7")
    assert waiting.answer().code == 0


def test_of_several_that_are_deleted_each_is_said_and_none_stops_another(
    empty: Fleet, tmp_path: Path
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("---\n".join([manifest("a"), manifest("b")]))
    empty.ok("apply", "-f", str(path), "--wait")
    gone = empty.run("delete", "job/a", "job/nope", "job/b")
    assert gone.code == 4
    assert sorted(gone.out.splitlines()) == ["batchjob/a deleted", "batchjob/b deleted"]
    assert "`nope`" in gone.talk
    assert empty.ok("get", "all", "-o", "name") == ""


def test_a_list_shows_what_is_there_and_says_what_is_not(empty: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("---\n".join([manifest("a"), manifest("b")]))
    empty.ok("apply", "-f", str(path), "--wait")
    shown = empty.run("get", "job", "a", "b", "nope", "-o", "name")
    assert shown.code == 4
    assert shown.out.split() == ["batchjob/a", "batchjob/b"]
    assert "`nope`" in shown.talk
