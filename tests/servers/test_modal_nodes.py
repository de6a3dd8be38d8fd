"""Several nodes on Modal: one call of a clustered function, whose containers begin and end as one.
The golden cases of training by their names, with the stand-in trainer, against the emulator.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Severity
from fleetctl.controllers.model import Alive, Ended, RunState
from fleetctl.controllers.schedule import capacity
from fleetctl.engine.capacity.price_book import price_attempt
from fleetctl.guest.nodes.gang import node_name
from fleetctl.guest.supervision.services.names import service_name
from fleetctl.providers.contract.account import built_in
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.modal import modal_check
from fleetctl.providers.modal.modal_provider import ModalProvider
from fleetctl.providers.modal.runs import modal_machines
from fleetctl.providers.prices.price_table import FUNCTION, load_prices
from fleetctl.providers.rundir.kept_outputs import find_outputs
from fleetctl.specs.blocks.nodes import NO_RAY, NodeRange, Ray, with_nodes
from fleetctl.specs.blocks.template import Template
from tests.contracts.modal_worlds import FunctionWorld
from tests.contracts.provider_worlds import command, eventually, script, story
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_calling import QUICK_LOOKS
from tests.servers.modal_fleet import Fleet, Play

TRAINER = (Path(__file__).parents[1] / "training" / "trainer.py").read_text()
STANDIN = str(Path(__file__).parents[1] / "training" / "standin")
HOST = {"resources": {"gpu": "H100:8"}}


class NodesWorld(FunctionWorld):
    """Templates as they are: where they have several nodes, a function runs them."""

    def order(
        self, template: Template | None = None, *, run: str = "run-0", **changes: Any
    ) -> RunRequest:
        made = super().order(template, run=run, **changes)
        assert template is not None
        return replace(made, template=template, function=None)

    def node_log(self, run: str, node: int) -> str:
        name = f"{run}.n{node}" if node else run
        path = self.directory / "home" / "modal" / "jobs" / "uid-1" / "runs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def containers(self, ref: RunRef) -> list[dict[str, Any]]:
        """Of the run's call, by rank."""
        ids = {it["task_id"] for it in self.input(ref)["began"]}
        every = self.emulator.state()["functions"]["containers"]
        return sorted((it for it in every if it["task_id"] in ids), key=lambda it: it["rank"])


def gang(template: Template, nodes: Any = 3, procs: int | None = 1, **options: Any) -> Template:
    return with_nodes(template, NodeRange.model_validate(nodes), procs, NO_RAY, **options)


def trainer(grace_s: float = 20, **env: str) -> Template:
    volumes = [{"name": "ckpt", "mountPath": "/ckpt"}]
    more = {"terminationGracePeriodSeconds": grace_s, "volumes": volumes, "env": env}
    return gang(command("python3", "-c", TRAINER, **HOST, **more))


def states(seen: Any) -> list[str]:
    return [node.state for node in seen.nodes]


KEEPS = (
    'echo "rank $NODE_RANK" >"out $NODE_RANK.txt"; head -c 300000 /dev/zero >model-$NODE_RANK.pt'
)


class TestNodes:
    @pytest.fixture(autouse=True)
    def _emulator(self, modal_emulator: ModalEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.emulator = modal_emulator
        for name, value in QUICK_LOOKS.items():
            monkeypatch.setenv(name, value)

    def world(self, tmp_path: Path) -> NodesWorld:
        return NodesWorld(tmp_path, self.emulator)

    @story
    async def test_the_outputs_of_several_nodes_are_those_of_node_0(
        self, world: NodesWorld
    ) -> None:
        seen = await world.run(gang(script(KEEPS, outputs=["out*", "*.pt"], **HOST)))
        assert seen.ok, seen
        runs = world.directory / "home" / "modal" / "jobs" / "uid-1" / "runs"
        kept = find_outputs(runs, "run-0")
        assert kept is not None
        contents = {it.path: b"".join(kept.contents(it)) for it in kept.files}
        assert contents == {"out 0.txt": b"rank 0\n", "model-0.pt": bytes(300_000)}
        assert [it.name for it in runs.glob("*.outputs*")] == ["run-0.outputs"]

    @story
    async def test_case_1_a_killed_rank_ends_all_and_the_next_attempt_goes_on(
        self, world: NodesWorld
    ) -> None:
        await world.provider.ensure_volume("ckpt")
        template = trainer(CHECKPOINT="/ckpt/saved.json", CRASH="1:1:7:9")
        first = await world.run(template)
        assert (first.ok, first.reason, first.exit_code) == (False, "Signal:KILL", 137)
        assert first.message == "node 1: ended by signal 9"
        assert states(first)[1] == "Failed" and "Running" not in states(first)
        assert "rank 1 step 6" in world.node_log("run-0", 1)
        assert "rank 1 step 7" not in world.node_log("run-0", 1)
        second = await world.run(template, run="run-1", attempt=2)
        assert second.ok and states(second) == ["Succeeded"] * 3
        assert json.loads(second.result or "") == {"resumed_from": 5, "world": 3}
        for node in range(3):  # the logs of each attempt are kept
            assert f"rank {node} step 6" in world.node_log("run-0", node)
            assert f"rank {node} step 20" in world.node_log("run-1", node)
        assert {metric.step for metric in second.metrics} == set(range(6, 21))  # of rank 0 alone
        await eventually(lambda: _none_live(self.emulator), "no container is left")

    @story
    async def test_case_2_a_lost_node_is_a_lost_attempt_and_ends_the_others(
        self, world: NodesWorld
    ) -> None:
        ref = await world.start(gang(script("echo up; sleep 600", **HOST)))
        await world.until(ref, lambda it: isinstance(it, Alive) and len(it.nodes) == 3, "begun")
        await eventually(lambda: _holds(world, 2, "up"), "node 2 is up, and its log is here")
        third = world.containers(ref)[2]
        self.emulator.do("preempt_container", task_id=third["task_id"])
        seen = await world.lost(ref)
        assert isinstance(seen, Ended) and seen.infrastructure
        assert seen.reason == "Preempted"
        await eventually(lambda: _none_live(self.emulator), "no container is left")
        assert world.input(ref)["rescheduled"] == 1  # Modal began it again; nothing of it ran
        assert world.node_log("run-0", 2) == "up\n"

    @story
    async def test_each_node_has_services_of_its_own(self, world: NodesWorld) -> None:
        says = "echo beside $NODE_RANK; touch up; exec sleep 600"
        beside = {"name": "beside", "script": says, "ready": {"command": ["test", "-e", "up"]}}
        seen = await world.run(gang(script("true", services=[beside], **HOST), nodes=2))
        assert seen.ok, seen
        runs = world.directory / "home" / "modal" / "jobs" / "uid-1" / "runs"
        logs = [runs / f"{service_name(node_name('run-0', at), 'beside')}.log" for at in (0, 1)]
        assert [log.read_text() for log in logs] == ["beside 0\n", "beside 1\n"]

    @story
    async def test_a_node_that_is_taken_away_alone_says_so_and_ends_the_others(
        self, world: NodesWorld
    ) -> None:
        fragile = "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"
        ref = await world.start(gang(script(fragile, **HOST)))
        await eventually(lambda: _holds(world, 2, "up"), "node 2 is up")
        third = world.containers(ref)[2]
        self.emulator.do("preempt_container", task_id=third["task_id"], notice_s=30.0, alone=True)
        seen = await world.lost(ref)
        assert isinstance(seen, Ended)
        assert (seen.infrastructure, seen.reason) == (True, "NodeLost")
        assert (seen.message, states(seen)) == ("node 2 was lost", ["Stopped", "Stopped", "Lost"])

    @story
    async def test_case_4_with_hosts_for_two_of_three_nodes_nothing_begins(
        self, world: NodesWorld
    ) -> None:
        self.emulator.do("settings", gpu_capacity={"H100": 16})
        try:
            order = world.order(gang(script("echo begun", **HOST)))
            first = await world.provider.start(order)
            with pytest.raises(Unavailable, match="waiting for H100:8") as refused:
                await world.provider.start(replace(order, handle=first))
            assert refused.value.reason == "Queued"
            assert await _none_live(self.emulator)
            self.emulator.do("settings", gpu_capacity={"H100": 24})
            seen = await world.ended(await world.begin(order))
            assert seen.ok and world.node_log("run-0", 2) == "begun\n"
        finally:
            self.emulator.do("settings", gpu_capacity={})

    @story
    async def test_case_5_node_0_decides(self, world: NodesWorld) -> None:
        await world.provider.ensure_volume("ckpt")
        done = await world.run(trainer(HANG="2", grace_s=0.2))
        assert done.ok and states(done) == ["Succeeded", "Succeeded", "Stopped"]
        failed = await world.run(trainer(STEPS="2", CODE="0:3"), run="run-1", template_hash="h2")
        assert (failed.ok, failed.reason) == (False, "ExitCode:3")

    @story
    async def test_case_12_an_order_that_is_repeated_is_one_gang_and_is_found_again(
        self, world: NodesWorld
    ) -> None:
        order = world.order(gang(script("echo $NODE_RANK of $NNODES; sleep 600", **HOST)))
        ref = await world.begin(order)
        assert await world.begin(order) == ref
        await world.until(ref, lambda it: isinstance(it, Alive) and len(it.nodes) == 3, "begun")
        await world.provider.close()  # the controller ends; the next one of the store goes on
        world.provider = world.again()
        assert await world.begin(order) == ref
        seen = await world.until(ref, lambda it: isinstance(it, Alive), "lived")
        assert isinstance(seen, Alive) and states(seen) in ([], ["Running"] * 3)
        await eventually(lambda: _holds(world, 1, "1 of 3"), "the log of node 1 is here")
        assert len({it["cluster"] for it in world.containers(ref)}) == 1
        await world.provider.stop(ref, grace_s=5.0)
        ended = await world.ended(ref)
        assert (ended.reason, states(ended)) == ("Stopped", ["Stopped"] * 3)
        await eventually(lambda: _none_live(self.emulator), "no container is left")

    @story
    async def test_every_node_is_told_of_the_others(self, world: NodesWorld) -> None:
        template = gang(script("env", **HOST), 2, procs=None, rdma=True)
        ref = await world.start(template)
        assert (await world.ended(ref)).ok
        for node in range(2):
            lines = world.node_log("run-0", node).splitlines()
            env = dict(line.split("=", 1) for line in lines if "=" in line)
            assert (env["NODE_RANK"], env["NNODES"]) == (str(node), "2")
            assert (env["PET_NPROC_PER_NODE"], env["MASTER_PORT"]) == ("8", "29500")
            assert env["MASTER_ADDR"] == env["FLEETCTL_NODE_IPS"]  # one a line: the first
            assert env["JAX_COORDINATOR_ADDRESS"] == f"[{env['MASTER_ADDR']}]:29500"
            assert (env["FLEETCTL_RUN"], "RANK" in env) == ("run-0", False)

    @story
    async def test_case_13_one_ray_cluster_stands_over_all_nodes(self, world: NodesWorld) -> None:
        driver = (
            "import os, ray; ray.init(address=os.environ['RAY_ADDRESS']); print(len(ray.nodes()))"
        )
        path = f"{STANDIN}:/usr/local/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
        made = script(
            f'python3 -c "{driver}"; exit 7',
            env={"PATH": path, "PYTHONPATH": STANDIN},
            source={"path": STANDIN, "mountPath": STANDIN},
            **HOST,
        )
        with socket.socket() as held:  # boxes share this machine's network
            held.bind(("", 0))
            port = held.getsockname()[1]
        asked = Ray.model_validate({"port": port})
        ref = await world.start(with_nodes(made, NodeRange(min=2, max=2), None, asked))
        seen = await world.ended(ref)
        assert (seen.ok, seen.reason, seen.exit_code) == (False, "ExitCode:7", 7), seen
        assert await world.log(ref) == b"2\n"
        assert states(seen) == ["Failed", "Stopped"]

    @story
    async def test_a_node_that_fails_first_says_why_with_its_last_words(
        self, world: NodesWorld
    ) -> None:
        text = 'if [ $NODE_RANK = 1 ]; then echo "no such file: x"; exit 4; fi; sleep 600'
        seen = await world.run(gang(script(text, terminationGracePeriodSeconds=0, **HOST)))
        assert (seen.reason, seen.exit_code) == ("ExitCode:4", 4)
        assert seen.message == "node 1: no such file: x"
        assert states(seen) == ["Stopped", "Failed", "Stopped"]

    @story
    async def test_a_timeout_ends_all_nodes_and_is_one_timeout(self, world: NodesWorld) -> None:
        limits = {"timeoutSeconds": 0.3, "terminationGracePeriodSeconds": 0}
        seen = await world.run(gang(script("sleep 600", **limits, **HOST)))
        assert (seen.reason, states(seen)) == ("Timeout", ["Stopped"] * 3)


def test_what_modal_does_not_join_is_refused_with_the_reason() -> None:
    def refusal(nodes: Any, **fields: Any) -> str:
        with pytest.raises(Refused) as refused:
            modal_machines.check_cluster(gang(script("true", **fields), nodes))
        return str(refused.value)

    assert refusal(2) == "nodes is 2, and Modal joins machines with GPUs alone"
    half = refusal(2, resources={"gpu": "H100:4"})
    assert half.startswith("resources.gpu is `H100:4`; where nodes work together")
    assert refusal(33, **HOST).endswith("at most 32 machines and 256 GPUs, which is 32 x H100:8")
    # Of elastic ones as many as can be.
    assert modal_machines.cluster_size(gang(script("true", **HOST), {"min": 2, "max": 64})) == 32
    assert modal_machines.cluster_size(gang(script("true"), {"min": 1, "max": 4})) == 1


def test_nodes_are_refused_before_anything_is_stored_and_priced_as_containers() -> None:
    found, *_ = modal_check.find_obstacles(gang(script("true"), 2), built_in("modal"))
    assert found.where == ("resources", "gpu") and found.severity is Severity.NEVER
    assert found.fix == 'ask for all GPUs of a host: `resources: {gpu: "H100:8"}`'
    table, hosts = load_prices("modal"), gang(script("true", **HOST))
    provider = ModalProvider(Path("unused"), store_id="s", notify=lambda _: None)
    one = table.usd_per_s(hosts.resources, runtime=FUNCTION)
    assert one is not None and price_attempt(provider, None, hosts) == pytest.approx(3 * one)


def test_a_training_run_of_nodes_restarts_on_all_of_them_and_costs_as_many(
    calls_on_modal: Play,
) -> None:
    async def tale(fleet: Fleet) -> None:
        env = {"STEPS": "3", "CRASH": "1:2:2:9"}
        spec = {
            "template": {"command": ["python3", "-c", TRAINER], "env": env, **HOST},
            "nodes": 3,
            "procPerNode": 1,
            "maxRestarts": 1,
            "placement": {"provider": "modal"},
        }
        fleet.apply_kind("TrainingRun", "tr", spec)
        fleet.kind = "TrainingRun"
        status = await fleet.phase("Succeeded", "tr")
        first, second = fleet.runs("tr")
        assert (first.reason, second.reason) == ("Signal:KILL", "Completed")
        assert [it["state"] for it in status["nodes"]] == ["Succeeded"] * 3
        one = load_prices("modal").usd_per_s(
            Template.model_validate(HOST).resources, runtime=FUNCTION
        )
        assert one is not None and second.usd_per_s == pytest.approx(3 * one, rel=1e-3)

    calls_on_modal(tale)


def test_elastic_nodes_become_fewer_where_modal_has_no_more_hosts(
    calls_on_modal: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "FEWER_AFTER_S", 0.5)

    async def tale(fleet: Fleet) -> None:
        fleet.emulator.do("settings", gpu_capacity={"H100": 16})
        says = """echo '{"nodes":' $NNODES '}' > $FLEETCTL_RESULT"""
        template = {"command": ["sh", "-c", says], **HOST}
        spec = {"template": template, "nodes": {"min": 1, "max": 4}, "maxInfraRetries": 0}
        fleet.apply_kind("TrainingRun", "tr", {**spec, "placement": {"provider": "modal"}})
        fleet.kind = "TrainingRun"

        async def is_fewer() -> bool:
            return any(run.reason == "FewerNodes" for run in fleet.runs("tr"))

        await eventually(is_fewer, "it was to be fewer nodes")
        # From here on a busy machine gives no node up for the time that it takes.
        monkeypatch.setattr(capacity, "FEWER_AFTER_S", 600.0)
        status = await fleet.phase("Succeeded", "tr")
        waited, ran = fleet.runs("tr")
        assert (waited.reason, waited.state) == ("FewerNodes", RunState.STOPPED)
        assert waited.cost_usd == 0.0
        assert fleet.results("tr") == {0: {"nodes": 2}} and len(status["nodes"]) == 2
        one = load_prices("modal").usd_per_s(
            Template.model_validate(HOST).resources, runtime=FUNCTION
        )
        assert one is not None and ran.usd_per_s == pytest.approx(2 * one, rel=1e-3)

    calls_on_modal(tale)


async def _holds(world: NodesWorld, node: int, text: str) -> bool:
    return text in world.node_log("run-0", node)


async def _none_live(emulator: ModalEmulator) -> bool:
    return not any(it["live"] for it in emulator.state()["functions"]["containers"])
