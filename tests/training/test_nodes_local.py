"""Several nodes on this machine: all begin or none, any failure ends all, node 0 decides. The
golden cases of training by their names, with a stand-in trainer.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, CheckpointOrder, Ended, ProgressOrder
from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.reports import ReportFiles
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.local.supervisor.run.gang import CONSEQUENCE, LocalGang
from fleetctl.providers.local.supervisor.run.sandbox import RunSandbox, SupervisedRun
from fleetctl.providers.rundir.kept_outputs import find_outputs
from fleetctl.specs.blocks.nodes import NO_RAY, NodeRange, with_nodes
from fleetctl.specs.blocks.template import Template
from tests.contracts.local_worlds import LocalWorld, processes_of, stop_supervisors
from tests.contracts.provider_worlds import World, command, eventually, python, script, story
from tests.inside import program

TRAINER = program(Path(__file__).with_name("trainer.py"))

FREEZES = """
import os, time
print("here", flush=True)
def waits_for_its_peer():
    time.sleep(600)
def where_it_is_frozen():
    time.sleep(600)
where_it_is_frozen() if os.environ["NODE_RANK"] == "1" else waits_for_its_peer()
"""


FALLS_BEHIND = """
import os, time
for step in range(600):
    report(step=step, loss=0.5)
    time.sleep(0.5 if os.environ["NODE_RANK"] == "2" else 0.05)
"""


def gang(template: Template, nodes: Any = 3, procs: int | None = None) -> Template:
    return with_nodes(template, NodeRange.model_validate(nodes), procs, NO_RAY)


def trainer(nodes: Any = 3, grace_s: float = 20, **env: str) -> Template:
    made = command(
        *TRAINER,
        env=env,
        terminationGracePeriodSeconds=grace_s,
        volumes=[{"name": "ckpt", "mountPath": "/ckpt"}],
    )
    return gang(made, nodes)


def node_log(world: World, run: str, node: int) -> str:
    name = f"{run}.n{node}" if node else run
    runs = world.directory / "home" / "local" / "jobs" / "uid-1" / "runs"
    path = runs / f"{name}.log"
    return path.read_text() if path.exists() else ""


def states(seen: Any) -> list[str]:
    return [node.state for node in seen.nodes]


KEEPS = (
    'echo "rank $NODE_RANK" >"out $NODE_RANK.txt"; head -c 300000 /dev/zero >model-$NODE_RANK.pt'
)


class OnThisMachine:
    @pytest.fixture(autouse=True, params=["namespaces", "process"])
    def _supervisors(
        self, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Any:
        monkeypatch.setenv("FLEETCTL_LOCAL_TIER", request.param)
        yield
        stop_supervisors(tmp_path / "home")

    def world(self, tmp_path: Path) -> LocalWorld:
        return LocalWorld(tmp_path)


class TestNodes(OnThisMachine):
    @story
    async def test_the_outputs_of_several_nodes_are_those_of_node_0(self, world: World) -> None:
        seen = await world.run(gang(script(KEEPS, outputs=["out*", "*.pt"])))
        assert seen.ok, seen
        runs = world.directory / "home" / "local" / "jobs" / "uid-1" / "runs"
        kept = find_outputs(runs, "run-0")
        assert kept is not None
        contents = {it.path: b"".join(kept.contents(it)) for it in kept.files}
        assert contents == {"out 0.txt": b"rank 0\n", "model-0.pt": bytes(300_000)}
        assert [it.name for it in runs.glob("*.outputs*")] == ["run-0.outputs"]

    @story
    async def test_case_1_a_killed_rank_ends_all_and_the_next_attempt_goes_on(
        self, world: World
    ) -> None:
        template = trainer(CHECKPOINT="/ckpt/saved.json", CRASH="1:1:7:9")
        first = await world.run(template)
        assert (first.ok, first.reason, first.exit_code) == (False, "Signal:KILL", 137)
        assert first.message == "node 1: ended by signal 9"
        # Ranks 0 and 2 had their connection broken, or TERM, whichever came first.
        assert states(first)[1] == "Failed" and "Running" not in states(first)
        assert "rank 1 step 6" in node_log(world, "run-0", 1)
        assert "rank 1 step 7" not in node_log(world, "run-0", 1)
        second = await world.run(template, run="run-1", attempt=2)
        assert second.ok and states(second) == ["Succeeded"] * 3
        assert json.loads(second.result or "") == {"resumed_from": 5, "world": 3}
        for node in range(3):  # the logs of each attempt are kept
            assert f"rank {node} step 5" in node_log(world, "run-0", node)  # 6: 2 may be behind
            assert f"rank {node} step 6" in node_log(world, "run-1", node)
        assert {metric.step for metric in second.metrics} == set(range(6, 21))  # of rank 0 alone

    @story
    async def test_case_4_with_devices_for_two_of_three_nodes_nothing_begins(
        self, world: World
    ) -> None:
        os.environ["FLEETCTL_LOCAL_GPUS"] = "A100:2"
        try:
            template = gang(script("echo begun", resources={"gpu": "A100:1"}))
            with pytest.raises(Unavailable, match="2 of 3 nodes: needs 3 x A100") as refused:
                await world.start(template)
            assert refused.value.reason == "NoCapacity"
            assert await world.provider.owned() == []
            assert processes_of(world.directory / "home") == []
            elastic = gang(
                script("echo $NNODES", resources={"gpu": "A100:1"}), {"min": 1, "max": 3}
            )
            ref = await world.start(elastic, run="run-1")
            seen = await world.ended(ref)  # as many as can be had
            assert seen.ok and len(seen.nodes) == 2
            assert await world.log(ref) == b"2\n"
        finally:
            del os.environ["FLEETCTL_LOCAL_GPUS"]

    @story
    async def test_a_node_that_falls_behind_the_others_is_named(self, world: World) -> None:
        ref = await world.start(gang(python(FALLS_BEHIND)))
        seen = await world.until(
            ref, lambda it: bool(getattr(it, "stragglers", ())), "one is behind"
        )
        (text,) = seen.stragglers  # type: ignore[union-attr]
        assert text.startswith("node 2: ") and text.endswith(" s behind")
        await world.provider.stop(ref, grace_s=0.0)
        await world.ended(ref)
        assert f"fleetctl: Straggler {text}" in node_log(world, "run-0", 0)

    @story
    async def test_case_5_node_0_decides(self, world: World) -> None:
        done = await world.run(trainer(HANG="2", grace_s=0.2, CLEAN="1"))
        assert done.ok and states(done) == ["Succeeded", "Succeeded", "Stopped"]
        failed = await world.run(trainer(STEPS="2", CODE="0:3"), run="run-1", template_hash="h2")
        assert (failed.ok, failed.reason) == (False, "ExitCode:3")

    @story
    async def test_case_18_a_stop_during_a_save_reaches_every_node_with_its_grace(
        self, world: World
    ) -> None:
        saves = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        template = gang(script(saves), 2)
        ref = await world.start(template)
        await world.log_holds(ref, b"up")
        await eventually(lambda: _holds(world, 1, "up"), "node 1 is up")
        await world.provider.stop(ref, grace_s=30.0)
        seen = await world.ended(ref)
        assert (seen.ok, seen.reason) == (False, "Stopped")  # an exit of 0 after TERM, too
        assert all("saved" in node_log(world, "run-0", node) for node in range(2))

    @story
    async def test_every_node_is_told_of_the_others_and_one_alone_of_none(
        self, world: World
    ) -> None:
        template = gang(script("env"), 2, procs=4)
        ref = await world.start(template)
        assert (await world.ended(ref)).ok
        parts = [
            dict(
                line.split("=", 1)
                for line in node_log(world, "run-0", node).splitlines()
                if "=" in line
            )
            for node in range(2)
        ]
        head = parts[0]["MASTER_ADDR"]
        for node, env in enumerate(parts):
            assert env["MASTER_ADDR"] == head and env["MASTER_PORT"] == parts[0]["MASTER_PORT"]
            assert (env["NODE_RANK"], env["NNODES"], env["PET_NPROC_PER_NODE"]) == (
                str(node),
                "2",
                "4",
            )
            assert env["PET_MAX_RESTARTS"] == "0" and "RANK" not in env  # a launcher gives ranks
            assert env["FLEETCTL_RUN"] == "run-0"
        alone = await world.start(script("env"), run="run-1")
        await world.ended(alone)
        assert not [
            name
            for name in (b"MASTER_ADDR", b"NNODES", b"PET_NNODES", b"RANK=", b"GLOO")
            if name in await world.log(alone)
        ]

    @story
    async def test_a_node_that_fails_first_says_why_with_its_last_words(self, world: World) -> None:
        text = 'if [ $NODE_RANK = 1 ]; then echo "no such file: x"; exit 4; fi; sleep 600'
        seen = await world.run(gang(script(text, terminationGracePeriodSeconds=0)))
        assert (seen.reason, seen.exit_code) == ("ExitCode:4", 4)
        assert seen.message == "node 1: no such file: x"
        assert states(seen) == ["Stopped", "Failed", "Stopped"]

    @story
    async def test_case_12_an_order_that_is_repeated_is_one_gang_and_the_sweep_sees_one(
        self, world: World
    ) -> None:
        template = gang(script("sleep 600"))
        ref = await world.start(template)
        assert await world.start(template) == ref
        other = world.again()  # the next controller of the store
        assert await other.start(world.order(template)) == ref.handle
        seen = await world.until(ref, lambda it: isinstance(it, Alive), "lived")
        assert isinstance(seen, Alive) and states(seen) == ["Running"] * 3
        assert [box.sandbox for box in await world.provider.owned()] == ["run-0"]
        await world.provider.stop(ref, grace_s=0.0)
        await world.ended(ref)
        assert await world.provider.owned() == []

    @story
    async def test_a_supervisor_that_dies_takes_every_node_with_it(self, world: World) -> None:
        ref: RunRef = await world.start(gang(script("sleep 600")))
        await world.alive(ref)
        await world.lose(ref)
        await world.lost(ref)
        await eventually(lambda: _none_left(world), "no process is left")

    @story
    async def test_node_0_alone_looks_for_the_checkpoint_that_all_go_on_from(
        self, world: World
    ) -> None:
        asked = CheckpointOrder("/ckpt/run", "fleetctl", "Latest", arguments=("${checkpoint}",))
        run = world.directory / "home" / "local" / "volumes" / "ckpt" / "run"
        (run / "step-00000005").mkdir(parents=True)
        (run / "step-00000005" / "_COMPLETE.json").write_text('{"step": 5, "files": {}}')
        (run / "step-00000006").mkdir()
        told = 'echo "$FLEETCTL_RESUME_STEP $0 $FLEETCTL_RESUME_FROM"'
        volumes = [{"name": "ckpt", "mountPath": "/ckpt"}]
        shell = command("sh", "-c", told, volumes=volumes).observed()
        seen = await world.run(gang(shell), checkpoint=asked)
        assert seen.ok and seen.checkpoints.resumed == 5
        for node in range(3):
            *remarks, last = node_log(world, "run-0", node).splitlines()
            step, argument, path = last.split()
            assert step == "5" and argument == path and path.endswith("/run/step-00000005")
            assert len(remarks) == (node == 0)
        missing = replace(asked, resume="step:7")
        failed = await world.run(gang(shell), run="run-1", checkpoint=missing)
        assert failed.reason == "NoCheckpoint" and states(failed)[0] == "Failed"
        assert failed.message.startswith("`checkpoint.resume` is `step:7`")

    @story
    async def test_only_node_0_has_to_show_that_the_attempt_gets_on(self, world: World) -> None:
        # Node 1 says nothing for longer than the limit; node 0 something forty times within it.
        text = (
            "[ $NODE_RANK = 0 ] || exec sleep 600; for n in $(seq 60); do sleep 0.1; echo $n; done"
        )
        soon = ProgressOrder(timeout_s=4.0, start_s=4.0)
        quiet = script(text, terminationGracePeriodSeconds=0).observed()
        seen = await world.run(gang(quiet, 2), progress=soon)
        assert seen.ok and states(seen) == ["Succeeded", "Stopped"]

    @story
    async def test_case_11_a_frozen_rank_of_two_is_found_and_says_where(self, world: World) -> None:
        freezes = python(FREEZES, terminationGracePeriodSeconds=0)
        # Both are where they are frozen by then, also on a busy machine.
        soon = ProgressOrder(timeout_s=10.0, start_s=10.0)
        seen = await world.run(gang(freezes.observed(), 2), progress=soon)
        assert (seen.ok, seen.reason) == (False, "Stalled")
        assert "in waits_for_its_peer" in node_log(world, "run-0", 0)
        assert "in where_it_is_frozen" in node_log(world, "run-0", 1)

    @story
    async def test_a_timeout_ends_all_nodes_and_is_one_timeout(self, world: World) -> None:
        template = script("sleep 600", timeoutSeconds=0.3, terminationGracePeriodSeconds=0)
        seen: Ended = await world.run(gang(template))
        assert (seen.reason, states(seen)) == ("Timeout", ["Stopped"] * 3)
        assert seen.message == "it ran longer than timeoutSeconds, which is 0.3"


async def _holds(world: World, node: int, text: str) -> bool:
    return text in node_log(world, "run-0", node)


async def _none_left(world: World) -> bool:
    return processes_of(world.directory / "home") == []


@pytest.mark.parametrize(("status", "ending"), [(None, CONSEQUENCE), (0, "")])
def test_what_has_ended_by_itself_is_not_ended_for_another(
    status: int | None, ending: str, tmp_path: Path
) -> None:
    runs = os.open(tmp_path, os.O_RDONLY)
    sandbox = RunSandbox("run-0", 1)
    sandbox.run = SupervisedRun(
        {"run": "run-0"},
        Journal(runs, "run-0"),
        LogFile(runs, "run-0", 100),
        ReportFiles(".fleetctl", below=str(tmp_path)),
    )
    sandbox.status = status
    sandbox.end_for(CONSEQUENCE)
    assert sandbox.run.ending == ending


def test_a_gang_begins_once_and_with_its_last_node() -> None:
    gang: LocalGang[Any] = LocalGang({"run": "run-0", "nodes": 3, "procs": 1, "gpus": []})
    try:
        members = [SimpleNamespace(rank=rank, channel=None) for rank in range(3)]
        # A node that reports twice counts once.
        assert [gang.is_ready(members[rank]) for rank in (0, 0, 2, 0)] == [False] * 4
        assert gang.is_ready(members[1])
        gang.begin(None)
        assert not gang.is_ready(members[1])
    finally:
        gang.close()
