"""What a pod brings to a task, and what is left when nobody was there at its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes.connection import MERGE_PATCH
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.pod_channel import run as run_in
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.kubernetes.manifests import jobs
from fleetctl.providers.kubernetes.manifests.entry import wrap_command
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.kubernetes.manifests.labels import job_name
from fleetctl.providers.kubernetes.runs import job_creator
from fleetctl.providers.kubernetes.runs.pod_statuses import split_handle
from fleetctl.providers.kubernetes.runs.pod_streams import guest_verb
from fleetctl.providers.rundir.kept_outputs import find_outputs
from fleetctl.specs.blocks.nodes import NO_RAY, NodeRange, with_nodes
from tests.contracts.kubernetes_worlds import KubernetesWorld, Play, emulated, playing_in
from tests.contracts.provider_worlds import command, eventually, python, script
from tests.emulators.kubernetes.running import KubernetesEmulator

ROOT = Path(__file__).parents[2]
# In place of uv: what it is asked to install is a module that says its own name.
UV = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
case $* in *no-such*) echo "$3 was not found in the package registry" >&2; exit 1 ;; esac
mkdir -p "$2/bin"
echo "name = '$3'" >"$2/installed.py"
printf '#!/bin/sh\\necho tool of %s\\n' "$3" >"$2/bin/installed"
chmod +x "$2/bin/installed"
"""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesEmulator]:
    uv = tmp_path_factory.mktemp("image") / "uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    images = {"ghcr.io/astral-sh/uv*": {"files": {"/usr/local/bin/uv": str(uv)}}}
    nodes = [
        {"name": "plain"},
        {"name": "fast", "gpus": 2, "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
    ]
    missing = {"nowhere/*": ""}
    with emulated(images=images, nodes=nodes, missing_images=missing) as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: KubernetesEmulator) -> Play:
    return playing_in(KubernetesWorld, tmp_path, emulator)


@pytest.mark.parametrize("image", [{}, {"image": "alpine"}], ids=["python", "shell"])
def test_what_ended_while_nobody_was_there_is_read_from_the_pods_log(
    play: Play, image: dict[str, Any]
) -> None:
    text = "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done; exit 3"

    async def tale(world: KubernetesWorld) -> None:
        ref = await world.start(script(text, **image))
        await world.log_holds(ref, b"begun")
        await end_unseen(world, ref, "posix" if image else "python")
        seen = await world.ended(ref)
        assert (seen.reason, seen.exit_code) == ("ExitCode:3", 3)
        assert await world.log(ref) == b"begun\ndone\n"
        assert world.living() == 0

    play(tale)


def test_outputs_of_a_pod_that_ended_unseen_come_with_its_log(play: Play) -> None:
    size = 512 * 1024
    text = (
        "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done"
        f"; head -c {size} /dev/urandom >'a model.pt'; cksum <'a model.pt'"
    )

    async def tale(world: KubernetesWorld) -> None:
        ref = await world.start(script(text, outputs=["*.pt"]))
        await world.log_holds(ref, b"begun")
        await end_unseen(world, ref, "python")
        seen = await world.ended(ref)
        assert seen.ok, seen
        kept = find_outputs(world.directory / "home/kubernetes/jobs/uid-1/runs", ref.run)
        assert kept is not None
        assert [(it.path, it.size) for it in kept.files] == [("a model.pt", size)]

    play(tale)


def test_outputs_above_a_mebibyte_of_a_pod_that_ended_unseen_cost_an_attempt(play: Play) -> None:
    """They are not in the pod's log, where they would push the rest out."""
    size = 3 * 1024 * 1024 // 2
    text = (
        "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done"
        f"; head -c {size} /dev/zero >'a model.pt'; echo done"
    )

    async def tale(world: KubernetesWorld) -> None:
        runs = world.directory / "home/kubernetes/jobs/uid-1/runs"
        ref = await world.start(script(text, outputs=["*.pt"]))
        await world.log_holds(ref, b"begun")
        await end_unseen(world, ref, "python")
        seen = await world.ended(ref)
        # Nobody has its files: it is tried again, and that is no failure of the task.
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, True, "OutputsNotKept")
        assert seen.message.startswith("1 output of it did not arrive here before its sandbox")
        assert find_outputs(runs, ref.run) is None
        assert await world.log(ref) == b"begun\ndone\n"
        again = world.order(script(text.replace("! -e", "-e"), outputs=["*.pt"]), run="run-1")
        assert (await world.ended(await world.begin(again))).ok
        kept = find_outputs(runs, "run-1")
        assert kept is not None
        assert [(it.path, it.size) for it in kept.files] == [("a model.pt", size)]

    play(tale)


async def end_unseen(
    world: KubernetesWorld,
    ref: RunRef,
    guest: str,
) -> None:
    """Ends the work of a run that waits for /tmp/go, and then its pod, while no controller is
    there; the next one of the store is there after that.
    """
    await world.provider.close()
    world.provider = world.again()
    provider = world.provider
    assert isinstance(provider, KubernetesProvider)
    link = await provider._connection.link()
    pod = split_handle(ref.handle)[1]
    ended = f"touch /tmp/go; until grep -q ended /tmp/.fleetctl/runs/{ref.run}.jsonl; do :; done"
    for words in (["sh", "-c", ended], guest_verb(guest, "leave")):
        channel = await run_in(link, pod, wrap_command(words), container=MAIN)
        async for _ in channel.frames():
            pass
        await channel.close()

    async def is_over() -> bool:
        return not [one for one in world.emulator.processes() if one["pod"] == pod]

    await eventually(is_over, "the pod ended by itself")


def test_packages_are_installed_before_the_work_and_once_where_they_are_kept(play: Play) -> None:
    code = (
        "import installed, subprocess\n"
        "SUBMIT(name=installed.name, tool=subprocess.check_output('installed', text=True))"
    )

    async def tale(world: KubernetesWorld) -> None:
        link = await world.provider._connection.link()  # type: ignore[attr-defined]
        await world.provider.ensure_volume("packages")
        for run in ("run-0", "run-1"):
            seen = await world.run(python(code, image={"pip": ["numpy==2"]}), run=run)
            assert seen.result == '{"name":"numpy==2","tool":"tool of numpy==2\\n"}'
        with pytest.raises(Refused) as caught:
            await world.provider.start(
                world.order(python("pass", image={"pip": ["no-such-thing"]}), run="run-2")
            )
        assert "was not found in the package registry" in str(caught.value)
        assert link.settings.package_cache is not None

    play(tale, packageCache={"claim": "packages"})


def test_values_of_secrets_are_in_no_object_of_the_cluster(play: Play) -> None:
    value = "hush-7f3a"

    async def tale(world: KubernetesWorld) -> None:
        await keeps(world, "kept", KEPT="by the cluster")
        work = script('echo "$GIVEN is ${#GIVEN} long, $KEPT"; sleep 600')
        ref = await world.start(work, secrets={"GIVEN": value}, secret_refs=("kept",))
        await world.log_holds(ref, f"*** is {len(value)} long, by the cluster".encode())
        for plural, group in (("jobs", "batch"), ("pods", ""), ("secrets", ""), ("configmaps", "")):
            assert value not in str(world.emulator.objects(plural, group, world.namespace))

    play(tale)


async def keeps(world: KubernetesWorld, name: str, **values: str) -> None:
    """Somebody puts a Secret into the namespace."""
    link = await world.provider._connection.link()  # type: ignore[attr-defined]
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    await link.create("secrets", {**head, "stringData": values})


def test_a_directory_of_this_machine_is_there_before_the_work(play: Play, tmp_path: Path) -> None:
    source = tmp_path / "code"
    source.mkdir()
    (source / "main.sh").write_text("echo from the source\n")

    async def tale(world: KubernetesWorld) -> None:
        ref = await world.start(command("sh", "main.sh", source={"path": str(source)}))
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"from the source\n"

    play(tale)


def test_a_gpu_is_asked_of_the_nodes_that_have_its_sort(play: Play) -> None:
    async def tale(world: KubernetesWorld) -> None:
        ref = await world.start(python("import time; time.sleep(600)", resources={"gpu": "A100:2"}))
        [pod] = world.pods()
        assert pod["spec"]["nodeName"] == "fast"
        await world.provider.stop(ref, grace_s=0)
        await world.lost(ref)
        with pytest.raises(Refused) as caught:
            await world.provider.start(
                world.order(command("true", resources={"gpu": "A10:1"}), run="run-1")
            )
        assert caught.value.hint.startswith("it has ")

    play(tale, gpus={"names": {"A100": "NVIDIA-A100-SXM4-80GB"}})


def test_an_image_that_no_registry_has_is_told_and_then_refused(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_creator, "SURE_AFTER_S", 0.2)

    async def tale(world: KubernetesWorld) -> None:
        order = world.order(script("true", image="nowhere/at-all"))
        with pytest.raises(Unavailable) as told:
            await world.provider.start(order)
        assert "nowhere/at-all" in str(told.value)
        monkeypatch.setattr(job_creator, "PULL_S", 0.3)
        refusals: list[Refused] = []

        async def refused() -> bool:
            try:
                await world.provider.start(order)
            except Unavailable:
                return False
            except Refused as error:
                refusals.append(error)
            return bool(refusals)

        await eventually(refused, "it was refused")
        assert "image.registry" in refusals[0].hint
        assert world.living() == 0

    monkeypatch.setattr(job_creator, "LOOK_S", 0.2)
    play(tale)


def test_a_job_of_somebody_else_is_left_alone(play: Play) -> None:
    async def tale(world: KubernetesWorld) -> None:
        link = await world.provider._connection.link()  # type: ignore[attr-defined]
        pod = {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "command": ["true"]}],
        }
        name = job_name(world.order())
        theirs = {"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}
        await link.create("jobs", {"apiVersion": "batch/v1", "kind": "Job", **theirs})
        with pytest.raises(Refused) as caught:
            await world.provider.start(world.order())
        assert "is not ours" in str(caught.value)
        assert caught.value.hint.startswith(f"kubectl delete job {name}")
        assert world.living() == 1

    play(tale)


def test_the_rights_of_the_page_are_enough_and_it_takes_no_others(
    play: Play, emulator: KubernetesEmulator
) -> None:
    page = (ROOT / "docs/how-to/run-on-kubernetes.md").read_text("utf-8")
    [text] = [it for it in re.findall(r"```yaml\n(.*?)```", page, re.S) if "kind: Role" in it]
    role = yaml.safe_load(text)

    async def tale(world: KubernetesWorld) -> None:
        link = await world.provider._connection.link()  # type: ignore[attr-defined]
        await link.api.request("POST", RBAC.format(world.namespace, "roles"), body=renamed(role))
        await link.api.request(
            "POST",
            RBAC.format(world.namespace, "rolebindings"),
            body={
                "metadata": {"name": "runs"},
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "runs"},
                "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "ann"}],
            },
        )
        # No right of the page reads a Secret: its kubelet alone gives the pod what is in it.
        await keeps(world, "kept", KEPT="by the cluster")
        await world.provider.close()
        world.kubeconfig = emulator.kubeconfig_for("ann", namespace=world.namespace)
        world.provider = world.again()
        await world.provider.ensure_volume("data")
        mounted = [{"name": "data", "mountPath": "/data"}]
        work = script("echo kept >/data/x; echo $KEPT", volumes=mounted)
        ref = await world.start(work, secret_refs=("kept",))
        assert (await world.ended(ref)).ok
        assert await world.log(ref) == b"by the cluster\n"
        two = NodeRange(min=2, max=2)
        pair = with_nodes(script("true", volumes=mounted), two, None, NO_RAY)
        assert (await world.run(pair, run="run-2")).ok
        ref = await world.start(script("echo begun; sleep 600"), run="run-1")
        await world.log_holds(ref, b"begun")
        emulator.cut_streams(split_handle(ref.handle)[1])
        assert [one.handle for one in await world.provider.owned()] == [ref.handle]
        await world.provider.stop(ref, grace_s=0)
        await world.lost(ref)
        await world.provider.remove_volume("data")
        with pytest.raises(Unavailable) as caught:
            await link_of(world).create("pods", {"metadata": {"name": "x"}})
        assert caught.value.account

    play(tale)


GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1/namespaces/{{}}/{{}}"


def renamed(role: dict[str, Any]) -> dict[str, Any]:
    return {**role, "metadata": {"name": "runs"}}


def link_of(world: KubernetesWorld) -> ClusterLink:
    assert isinstance(world.provider, KubernetesProvider)
    (link,) = world.provider._connection._links.values()
    return link


def test_kueue_admits_a_job_that_names_its_queue(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_KUBERNETES_PATIENCE_S", "0.5")

    async def tale(world: KubernetesWorld) -> None:
        order = world.order(python("SUBMIT(a=1)"))

        async def queued() -> bool:
            with pytest.raises(Unavailable) as told:
                await world.provider.start(order)
            return "Kueue's queue `team-a`" in str(told.value)

        await eventually(queued, "the start says that it waits for Kueue")
        assert world.pods() == []
        # As Kueue does it.
        path = link_of(world).path("jobs", job_name(order))
        body = {"spec": {"suspend": False}}
        await link_of(world).api.request("PATCH", path, body=body, content_type=MERGE_PATCH)

        async def begun() -> bool:
            try:
                await world.begin(order)
            except Unavailable:
                return False
            return True

        await eventually(begun, "it was admitted")
        ref = RunRef(order.run, order.run, "", 0, order.uid)
        assert (await world.ended(ref)).ok

    play(tale, kueueQueue="team-a")


def test_a_job_that_waits_follows_a_change_of_its_provider_object(
    play: Play, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_creator, "SETTINGS_LOOK_S", 0.1)
    monkeypatch.setenv("FLEETCTL_KUBERNETES_PATIENCE_S", "0.5")
    emulator.add_node("fixed", labels={"pool": "there"})

    async def tale(world: KubernetesWorld) -> None:
        order = world.order(python("SUBMIT(a=1)"))

        async def unplaced() -> bool:
            with pytest.raises(Unavailable) as told:
                await world.provider.start(order)
            return told.value.reason == "Unschedulable"

        await eventually(unplaced, "no node has the label")
        [before] = world.pods()
        world.settings = {**world.settings, "nodeSelector": {"pool": "there"}}

        async def begun() -> bool:
            try:
                await world.begin(order)
            except Unavailable:
                return False
            return True

        await eventually(begun, "it has a node")
        ref = RunRef(order.run, order.run, "", 0, order.uid)
        assert (await world.ended(ref)).ok
        made = [it["pod"] for it in emulator.runs() if it["namespace"] == world.namespace]
        assert before["metadata"]["name"] not in made and len(made) == 1

    play(tale, nodeSelector={"pool": "nowhere"})


def test_work_that_an_earlier_version_named_is_taken_up_and_not_begun_again(play: Play) -> None:
    """It called Jobs by their runs, and its handles named no namespace."""

    async def tale(world: KubernetesWorld) -> None:
        order = world.order(script("echo up; sleep 600"))
        with pytest.MonkeyPatch.context() as patch:
            for module in (jobs, job_creator):
                patch.setattr(module, "job_name", lambda request: request.run)
            ref = await world.start(script("echo up; sleep 600"))
        [job] = world.emulator.objects("jobs", "batch", world.namespace)
        assert job["metadata"]["name"] == ref.run
        await world.provider.close()
        world.provider = world.again()
        assert await world.provider.start(order) == ref.handle
        assert len(world.emulator.objects("jobs", "batch", world.namespace)) == 1
        older = RunRef(ref.run, ref.run, ref.handle.partition(":")[2], 0, ref.uid)
        await world.log_holds(older, b"up")
        await world.provider.stop(older, grace_s=0)
        await world.lost(older)
        assert world.emulator.objects("jobs", "batch", world.namespace) == []

    play(tale)
