"""Several nodes in a cluster: one Indexed Job, whose pods begin and end as one. The golden cases of
training by their names, with the stand-in trainer, against the emulator.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.model import Alive, Ended
from fleetctl.guest.nodes import gang as outcome
from fleetctl.guest.nodes.gang import node_name
from fleetctl.providers.contract.base import RunRef, RunRequest
from fleetctl.providers.contract.sandbox_access import ExecStreams, ExecTarget
from fleetctl.providers.kubernetes.connection.pod_channel import run as run_in
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.kubernetes.manifests import gang_manifests
from fleetctl.providers.kubernetes.manifests.entry import wrap_command
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.kubernetes.manifests.labels import job_name
from fleetctl.providers.kubernetes.runs import job_creator
from fleetctl.providers.kubernetes.runs.kubernetes_exec import KubernetesEntering
from fleetctl.providers.kubernetes.runs.pod_streams import guest_verb
from fleetctl.providers.remote.gangs import node_gang
from fleetctl.providers.rundir.kept_outputs import find_outputs
from fleetctl.specs.blocks.nodes import NO_RAY, NodeRange, Ray, with_nodes
from fleetctl.specs.blocks.template import Template
from tests.contracts.kubernetes_worlds import KubernetesWorld, Play, emulated, playing_in
from tests.contracts.provider_worlds import command, eventually, python, script
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.kubernetes_fleet import Fleet, playing

TRAINER = (Path(__file__).parents[1] / "training" / "trainer.py").read_text()
STANDIN = Path(__file__).parents[1] / "training" / "standin"
ONE_GPU = {"resources": {"gpu": "any:1"}}
NODES = [
    {"name": "plain"},
    {"name": "first", "gpus": 1, "labels": {"pool": "small"}},
    {"name": "alone", "gpus": 1, "labels": {"pool": "lonely"}},
]


class NodesWorld(KubernetesWorld):
    def node_log(self, node: int, run: str = "run-0") -> str:
        runs = self.directory / "home" / "kubernetes" / "jobs" / "uid-1" / "runs"
        path = runs / f"{node_name(run, node)}.log"
        return path.read_text() if path.exists() else ""

    async def holds(self, node: int, text: str) -> None:
        async def there() -> bool:
            return text in self.node_log(node)

        await eventually(there, f"node {node} printed {text}")

    async def refused(self, order: RunRequest, words: str) -> Unavailable:
        """Asked until that is why it waits."""
        told: list[Unavailable] = []

        async def waits() -> bool:
            try:
                await self.provider.start(order)
            except Unavailable as error:
                told.append(error)
                return words in str(error)
            return False

        await eventually(waits, f"it waited because of {words}")
        return told[-1]

    async def begun(self, order: RunRequest) -> RunRef:
        """Asked until it is there."""
        refs: list[RunRef] = []

        async def begins() -> bool:
            try:
                refs.append(await self.begin(order))
            except Unavailable:
                return False
            return True

        await eventually(begins, "it began")
        return refs[0]

    def pod(self, node: int) -> str:
        return next(
            str(it["metadata"]["name"])
            for it in self.pods()
            if it["metadata"]["name"].split("-")[-2] == str(node)
        )


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    with emulated(nodes=NODES, kueue=True, eviction_s=0.2) as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: KubernetesEmulator) -> Play:
    return playing_in(NodesWorld, tmp_path, emulator)


def gang(template: Template, nodes: Any = 3, procs: int | None = 1, ray: Ray = NO_RAY) -> Template:
    return with_nodes(template, NodeRange.model_validate(nodes), procs, ray)


def states(seen: Any) -> list[str]:
    return [node.state for node in seen.nodes]


async def none_left(world: NodesWorld) -> None:
    async def gone() -> bool:
        left = [world.emulator.objects(it, "", world.namespace) for it in ("pods", "services")]
        return not any(left) and world.living() == 0

    await eventually(gone, "Job, pods and Service are gone")


def test_every_node_is_told_of_the_others_and_finds_the_first_by_its_name(play: Play) -> None:
    says = (
        "import os, socket\n"
        "first = socket.gethostbyname(os.environ['MASTER_ADDR'])\n"
        "rank = os.environ['JOB_COMPLETION_INDEX']\n"
        "print(rank, first == os.environ['FLEETCTL_NODE_IPS'].split()[0])\n"
        "print(os.environ['MASTER_ADDR'], os.environ['PET_NPROC_PER_NODE'], 'RANK' in os.environ)\n"
        "print(os.environ['FLEETCTL_RUN'], os.environ['NNODES'], os.environ['MASTER_PORT'])\n"
        "SUBMIT(ok=True)"
    )

    async def tale(world: NodesWorld) -> None:
        ref = await world.start(gang(python(says, resources={"memory": "1Gi"}), 2, procs=8))
        [job] = world.jobs()
        volumes = job["spec"]["template"]["spec"]["volumes"]
        [shm] = [it for it in volumes if it["name"] == "fleetctl-shm"]
        seen = await world.ended(ref)
        assert seen.ok and seen.result == '{"ok":true}', seen
        name = job["metadata"]["name"]
        host = f"{name}-0.{name}.{world.namespace}.svc"
        for node in range(2):
            lines = [f"{node} True", f"{host} 8 False", "run-0 2 29500"]
            assert world.node_log(node).splitlines() == lines
        spec = job["spec"]
        assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (2, 2, 0)
        assert spec["completionMode"] == "Indexed"
        assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1024**3)}
        await none_left(world)

    play(tale)


def test_the_outputs_of_several_nodes_are_those_of_node_0(play: Play) -> None:
    async def tale(world: NodesWorld) -> None:
        text = (
            'echo "rank $NODE_RANK" >"out $NODE_RANK.txt"'
            "; head -c 300000 /dev/zero >model-$NODE_RANK.pt"
        )
        seen = await world.run(gang(script(text, outputs=["out*", "*.pt"])))
        assert seen.ok, seen
        runs = world.directory / "home" / "kubernetes" / "jobs" / "uid-1" / "runs"
        kept = find_outputs(runs, "run-0")
        assert kept is not None
        contents = {it.path: b"".join(kept.contents(it)) for it in kept.files}
        assert contents == {"out 0.txt": b"rank 0\n", "model-0.pt": bytes(300_000)}
        assert [it.name for it in runs.glob("*.outputs*")] == ["run-0.outputs"]
        assert "not kept" not in world.node_log(1)

    play(tale)


def test_case_1_a_killed_rank_ends_all_and_the_next_attempt_goes_on(play: Play) -> None:
    async def tale(world: NodesWorld) -> None:
        await world.provider.ensure_volume("ckpt")
        volumes = [{"name": "ckpt", "mountPath": "/ckpt"}]
        env = {"CHECKPOINT": "/ckpt/saved.json", "CRASH": "1:1:7:9"}
        template = gang(command("python3", "-c", TRAINER, volumes=volumes, env=env))
        first = await world.run(template)
        assert (first.ok, first.reason, first.exit_code) == (False, "Signal:KILL", 137)
        assert first.message == "node 1: ended by signal 9"
        assert states(first)[1] == "Failed" and "Running" not in states(first)
        assert "rank 1 step 6" in world.node_log(1)
        second = await world.run(template, run="run-1", attempt=2)
        assert second.ok and states(second) == ["Succeeded"] * 3, second
        assert json.loads(second.result or "") == {"resumed_from": 5, "world": 3}
        assert {metric.step for metric in second.metrics} == set(range(6, 21))  # of rank 0 alone
        assert all(f"rank {it} step 20" in world.node_log(it, "run-1") for it in range(3))
        await none_left(world)

    play(tale)


def test_case_2_an_evicted_pod_is_a_lost_attempt_and_ends_the_others(play: Play) -> None:
    fragile = "trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.05; done"

    async def tale(world: NodesWorld) -> None:
        ref = await world.start(gang(script(fragile, terminationGracePeriodSeconds=5)))
        await world.holds(2, "up")
        world.emulator.evict(world.namespace, world.pod(2))
        seen = await world.lost(ref)
        assert isinstance(seen, Ended)
        assert (seen.infrastructure, seen.reason) == (True, "NodeLost"), seen
        assert seen.message.startswith("node 2 was lost")
        assert states(seen) == ["Stopped", "Stopped", "Lost"]
        await none_left(world)

    play(tale)


def test_a_node_whose_machine_is_not_heard_of_holds_all(
    play: Play, emulator: KubernetesEmulator
) -> None:
    for name in ("left", "right"):
        emulator.add_node(name, gpus=1, labels={"pool": "pair"})

    async def tale(world: NodesWorld) -> None:
        ref = await world.start(gang(script("echo up; exec sleep 600", **ONE_GPU), 2))
        await world.holds(1, "up")
        [away] = [
            it["spec"]["nodeName"] for it in world.pods() if it["metadata"]["name"] == world.pod(1)
        ]
        emulator.lose_node(away)
        held = "node 1: it does not report"
        seen = await world.until(ref, lambda it: held in str(getattr(it, "held", "")), "was held")
        assert isinstance(seen, Alive) and f"node `{away}` does not report" in seen.held.text
        emulator.find_node(away)
        lost = await world.lost(ref)
        assert isinstance(lost, Ended) and lost.infrastructure, lost
        await none_left(world)

    play(tale, nodeSelector={"pool": "pair"})


def test_case_4_where_not_all_have_a_place_all_are_given_back(
    play: Play, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_creator, "SURE_AFTER_S", 0.1)

    async def tale(world: NodesWorld) -> None:
        order = world.order(gang(script("echo begun", **ONE_GPU), 2))
        waiting = await world.refused(order, "1 of 2 nodes run")
        assert waiting.reason == "Unschedulable" and "nvidia.com/gpu" in str(waiting)
        back = await world.refused(order, "given back")
        assert back.reason == "NoCapacity" and not back.perhaps_made
        assert "`gatherSeconds`, which is 1," in str(back) and "1 of 2 nodes run" in str(back)
        emulator.add_node("second", gpus=1, labels={"pool": "small"})
        seen = await world.ended(await world.begun(order))
        assert seen.ok and world.node_log(1) == "begun\n"

    play(tale, gatherSeconds=1, nodeSelector={"pool": "small"})


def test_the_time_in_which_all_gather_is_none_of_the_tasks_own(play: Play) -> None:
    async def tale(world: NodesWorld) -> None:
        task = script("echo begun", timeoutSeconds=100, **ONE_GPU)
        await world.refused(world.order(gang(task, 2)), "1 of 2 nodes run")
        (job,) = world.jobs()
        assert job["spec"]["template"]["spec"]["activeDeadlineSeconds"] >= 7_200 + 100
        assert job["spec"]["activeDeadlineSeconds"] >= 86_400 + 7_200 + 100

    play(tale, gatherSeconds=7_200, nodeSelector={"pool": "lonely"})


def test_a_service_of_an_earlier_job_of_the_name_is_not_taken_for_its_own(play: Play) -> None:
    """It goes with the Job that it was made for, and its names with it."""

    async def tale(world: NodesWorld) -> None:
        assert isinstance(world.provider, KubernetesProvider)
        link = await world.provider._connection.link()
        order = world.order(gang(script("echo begun"), 2))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "earlier"}}
        owner = await link.create("configmaps", body)
        earlier = {"metadata": {"name": job_name(order), "uid": owner["metadata"]["uid"]}}
        theirs = gang_manifests.build_service(earlier)
        theirs["metadata"]["ownerReferences"][0].update(
            apiVersion="v1", kind="ConfigMap", name="earlier"
        )
        await link.create("services", theirs)
        await world.refused(order, "an earlier one is still there")
        await link.delete("configmaps", "earlier", {})
        ref = await world.begun(order)
        (job,), (service,) = world.jobs(), world.emulator.objects("services", "", world.namespace)
        assert service["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert (await world.ended(ref)).ok

    play(tale)


def test_kueue_lets_all_nodes_in_at_once_and_says_why_not(
    play: Play, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_KUBERNETES_PATIENCE_S", "0.2")

    async def tale(world: NodesWorld) -> None:
        order = world.order(gang(script("echo begun"), 2))
        told = await world.refused(order, "insufficient unused quota")
        assert str(told).startswith("waits for admission in Kueue's queue `team-a`: couldn't")
        assert told.reason == "Queued" and world.pods() == []
        emulator.admit("team-a")
        assert (await world.ended(await world.begun(order))).ok
        emulator.admit("team-a", on=False)

    play(tale, kueueQueue="team-a")


def test_case_12_an_order_that_is_repeated_is_one_gang_and_is_found_again(play: Play) -> None:
    async def tale(world: NodesWorld) -> None:
        order = world.order(gang(script("echo $NODE_RANK of $NNODES; sleep 600")))
        ref = await world.begin(order)
        assert await world.begin(order) == ref
        seen = await world.until(ref, lambda it: isinstance(it, Alive) and bool(it.nodes), "begun")
        assert states(seen) == ["Running"] * 3
        await world.provider.close()  # the controller ends; the next one of the store goes on
        world.provider = world.again()
        assert await world.begin(order) == ref
        assert [one.handle for one in await world.provider.owned()] == [ref.handle]
        await world.holds(2, "2 of 3")
        assert len([it for it in world.emulator.runs() if it["namespace"] == world.namespace]) == 3
        await world.provider.stop(ref, grace_s=5.0)
        ended = await world.ended(ref)
        assert (ended.reason, states(ended)) == ("Stopped", ["Stopped"] * 3)
        await none_left(world)

    play(tale)


def test_a_node_that_fails_while_nobody_is_there_ends_all_and_is_heard_of(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two minutes pass here in an instant, and so does the one in which a pod that the cluster took
    # may have been the cause of a failure before it.
    for module in (node_gang, outcome):
        monkeypatch.setattr(module, "CONSEQUENCE_S", 0.0)
    text = "echo up; until [ -e /tmp/go ]; do sleep 0.05; done; exit 4"

    async def tale(world: NodesWorld) -> None:
        ref = await world.start(gang(script(text), 2))
        await world.holds(1, "up")
        await world.provider.close()
        world.provider = world.again()
        provider = world.provider
        assert isinstance(provider, KubernetesProvider)
        link = await provider._connection.link()
        ended = f"until grep -q ended /tmp/.fleetctl/runs/{ref.run}.jsonl; do :; done"
        # Nobody comes for two minutes, of which this is the end.
        for words in (["sh", "-c", f"touch /tmp/go; {ended}"], guest_verb("python", "leave")):
            channel = await run_in(link, world.pod(1), wrap_command(words), container=MAIN)
            async for _ in channel.frames():
                pass
            await channel.close()

        async def over() -> bool:
            here = (it for it in world.emulator.processes() if it["namespace"] == link.namespace)
            return not [it for it in here if it["pod"].startswith("batchjob-")]

        await eventually(over, "the Job ended the other pod")
        seen = await world.ended(ref)
        assert (seen.reason, seen.exit_code, seen.infrastructure) == ("ExitCode:4", 4, False), seen
        assert states(seen)[1] == "Failed"
        await none_left(world)

    play(tale)


def test_case_5_node_0_decides_and_its_time_is_that_of_all(play: Play) -> None:
    async def tale(world: NodesWorld) -> None:
        env = {"HANG": "2", "STEPS": "2"}
        hangs = command("python3", "-c", TRAINER, env=env, terminationGracePeriodSeconds=0.2)
        done = await world.run(gang(hangs))
        assert done.ok and states(done) == ["Succeeded", "Succeeded", "Stopped"], done
        limits = {"timeoutSeconds": 0.3, "terminationGracePeriodSeconds": 0}
        late = await world.run(gang(script("sleep 600", **limits), 2), run="run-1")
        assert (late.reason, states(late)) == ("Timeout", ["Stopped"] * 2), late

    play(tale)


def test_case_13_one_ray_cluster_stands_over_all_nodes(play: Play, tmp_path: Path) -> None:
    driver = "import os, ray; ray.init(address=os.environ['RAY_ADDRESS']); print(len(ray.nodes()))"
    path = f"{STANDIN}:/usr/local/bin:{Path(sys.executable).parent}:/usr/bin:/bin"
    made = script(
        f'python3 -c "{driver}"; exit 7',
        env={"PATH": path, "PYTHONPATH": str(STANDIN)},
        source={"path": str(STANDIN), "mountPath": str(STANDIN)},
    )
    with socket.socket() as held:  # pods share this machine's network
        held.bind(("", 0))
        port = held.getsockname()[1]

    async def tale(world: NodesWorld) -> None:
        ref = await world.start(gang(made, 2, None, Ray.model_validate({"port": port})))
        seen = await world.ended(ref)
        assert (seen.ok, seen.reason, seen.exit_code) == (False, "ExitCode:7", 7), seen
        assert world.node_log(0) == "2\n"
        assert states(seen) == ["Failed", "Stopped"]
        [token] = world.directory.glob("home/kubernetes/jobs/uid-1/*.token")
        assert token.stat().st_mode & 0o777 == 0o600
        for plural, group in (("jobs", "batch"), ("pods", ""), ("configmaps", "")):
            held = str(world.emulator.objects(plural, group, world.namespace))
            assert token.read_text() not in held

    play(tale)


def test_a_command_joins_the_node_that_it_names(play: Play) -> None:
    async def tale(world: NodesWorld) -> None:
        ref = await world.start(gang(script("echo up; exec sleep 600"), 2))
        await world.holds(1, "up")
        entering, said = KubernetesEntering(world.directory, world.account), bytearray()
        for node in (0, 1):
            name = node_name(ref.run, node)
            place = ExecTarget(name, name, ref.handle)
            words = ("sh", "-c", "echo $NODE_RANK $FLEETCTL_RUN")
            streams = ExecStreams(None, said.extend, said.extend)
            assert await entering.execute(place, words, streams) == 0
        assert said.decode() == "0 run-0\n1 run-0\n"
        await entering.close()
        await world.provider.stop(ref, grace_s=0)
        await world.lost(replace(ref))

    play(tale)


def test_a_training_run_of_nodes_restarts_on_all_of_them_and_costs_as_many(
    tmp_path: Path, emulator: KubernetesEmulator
) -> None:
    namespace: str = next(emulator.free)  # type: ignore[attr-defined]

    async def tale(fleet: Fleet) -> None:
        env = {"STEPS": "3", "CRASH": "1:1:2:9"}
        spec = {
            "template": {"command": ["python3", "-c", TRAINER], "env": env},
            "nodes": 2,
            "procPerNode": 1,
            "maxRestarts": 1,
            "placement": {"provider": "kubernetes"},
        }
        fleet.apply_kind("TrainingRun", "tr", spec)
        fleet.kind = "TrainingRun"
        status = await fleet.phase("Succeeded", "tr")
        first, second = fleet.runs("tr")
        assert (first.reason, second.reason) == ("Signal:KILL", "Completed")
        assert [it["state"] for it in status["nodes"]] == ["Succeeded"] * 2
        assert len(fleet.made()) == 4
        await fleet.nothing_lives()

    playing(tmp_path / "home", emulator)(namespace)(tale)
