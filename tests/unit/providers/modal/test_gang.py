"""What node 0 of a clustered function makes of what all nodes say in the Dict."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import modal
import pytest

from fleetctl.providers.modal.functions.container import fleetctl_gang
from fleetctl.providers.modal.functions.container.fleetctl_gang import ContainerGang
from fleetctl.providers.rundir.run_journal import parse_journal

ORDER = {"run": "run-0", "ray": None, "grace_s": 5.0}


class Latch(dict[str, str]):
    """The Dict of a run."""

    def put(self, key: str, text: str) -> None:
        self[key] = text


def node(rank: int, latch: Latch, place: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerGang:
    cluster = SimpleNamespace(
        container_rank=lambda: rank, container_ips=lambda _: ["a", "b", "c"], object_id="cu-1"
    )
    monkeypatch.setattr(modal.Cluster, "from_context", lambda: cluster)
    made = ContainerGang(ORDER, latch, lambda verb, *words: verb(*words))
    made.journal = str(place / f"{rank}.jsonl")
    return made


def report(gang: ContainerGang, at_s: float, steps: int = 40) -> None:
    """A step a second, from then on."""
    with open(gang.journal, "w", encoding="utf-8") as file:
        for step in range(steps):
            event: dict[str, Any] = {"e": "metric", "seq": step, "step": step, "at": at_s + step}
            file.write(json.dumps({**event, "values": {"loss": 1.0}}, separators=(",", ":")) + "\n")
        file.write('{"e":"metric","seq"')  # of a write that goes on


def test_node_0_names_the_one_that_falls_behind_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleetctl_gang, "BEAT_S", 0.0)
    latch = Latch()
    nodes = [node(rank, latch, tmp_path, monkeypatch) for rank in range(3)]
    for rank, gang in enumerate(nodes):
        report(gang, 100.0 + (3.1 if rank == 2 else 0.0))
    nodes[0].look(lambda _: None)  # the others have said nothing yet
    for _ in range(2):
        for gang in reversed(nodes):
            gang.look(lambda _: None)
    lines = (tmp_path / "0.jsonl").read_bytes().splitlines(keepends=True)
    told = [parse_journal(line).stragglers for line in lines if b"straggler" in line]
    assert told == [("node 2: 3.1 s behind",)]


@pytest.mark.parametrize(
    ("from_outside", "reason"), [(True, "Stopped"), (False, "ExitCode:3")], ids=["stop", "failure"]
)
def test_a_stop_is_the_end_of_all_also_where_another_node_ends_first(
    from_outside: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latch = Latch()
    nodes = [node(rank, latch, tmp_path, monkeypatch) for rank in range(3)]
    stops: list[float] = []
    if from_outside:
        nodes[0].stopped(5.0)
    for gang in nodes[1:]:
        latch[f"run-0.cu-1.n{gang.rank}"] = json.dumps({"beat": 1, "end": over(gang.rank, reason)})
    nodes[0].look(stops.append)
    assert stops == ([] if from_outside else [5.0])  # whoever stopped it has told this node too
    frames = nodes[0].conclude_gang(
        b'{"e":"ended"}\n', over(0, "Stopped") | {"open": False}, lambda: None
    )
    ended = json.loads(frames.splitlines()[-1])
    assert (ended["reason"], ended.get("node")) == (reason, None if from_outside else 1)


def over(rank: int, reason: str) -> dict[str, Any]:
    stopped = rank > 0 and reason == "Stopped"
    told = {"stopped": True, "reason": "NodeEnded"} if stopped else {"reason": reason}
    at_s = time.time()
    known = {"ok": False, "infra": False, "message": "", "exit": None}
    return {**known, "at": at_s, "left_at": at_s, **told}
