"""What a cluster's admission takes and refuses: our pods as they are by default, and the first line
of Why where it takes them not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fleetctl.kubernetes.connection import MERGE_PATCH
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.kubernetes.kubernetes_provider import KubernetesProvider
from fleetctl.providers.kubernetes.kubernetes_volumes import KubernetesFiles
from fleetctl.providers.kubernetes.manifests.pod_parts import USER, WORK
from fleetctl.providers.remote.runs.follower import FollowPace
from tests.contracts.provider_worlds import eventually
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers import kubernetes_fleet
from tests.servers.fleets import Play, telling

SPARE = count()
LEVEL = "pod-security.kubernetes.io/enforce"
Object = dict[str, Any]


class Fleet(kubernetes_fleet.Fleet):
    """settings: of its Provider object, beside the namespace."""

    settings: Object = {}  # noqa: RUF012

    def build(self, home: Path, pace: FollowPace) -> Backend:
        declared = {"kubeconfig": str(self.emulator.kubeconfig)}
        settings = {"namespace": self.namespace, **self.settings}
        account = self.account = Account(self.name, self.name, declared, settings=settings)
        return KubernetesProvider(
            home, store_id=self.store.store_id, notify=self.told, account=lambda: account, pace=pace
        )

    async def bounded(self, plural: str, kind: str, spec: Object) -> None:
        link = await self.provider._connection.link()  # type: ignore[attr-defined]
        head = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "bound"}}
        await link.create(plural, {**head, "spec": spec})

    async def guarded(self, level: str) -> None:
        link = await self.provider._connection.link()  # type: ignore[attr-defined]
        path = f"/api/v1/namespaces/{self.namespace}"
        body = {"metadata": {"labels": {LEVEL: level}}}
        await link.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    with KubernetesEmulator(namespaces=[f"tale-{number}" for number in range(20)]) as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: KubernetesEmulator) -> Callable[..., Play]:
    def playing(**settings: Any) -> Play:
        def fleet() -> Fleet:
            made = type("Fleet", (Fleet,), {"settings": settings})
            return made(tmp_path / "home", emulator, f"tale-{number}")

        number = next(SPARE)
        return telling(fleet)

    return playing


def test_default_pods_are_taken_by_a_restricted_namespace(
    play: Callable[..., Play], tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("NAME = 'one'\n")
    told = (
        "import os, getpass, main\n"
        "open('here', 'w').write('x')\n"
        f"open(os.path.join('{WORK}', 'there'), 'w').write('x')\n"
        "open('/data/kept', 'w').write('x')\n"
        "SUBMIT(name=main.NAME, home=os.environ['HOME'], user=getpass.getuser())"
    )

    async def tale(fleet: Fleet) -> None:
        await fleet.guarded("restricted")
        source = {"path": str(code), "mountPath": "/srv/project"}
        volumes = [{"name": "data", "mountPath": "/data"}]
        fleet.apply_kind("Volume", "data", {"provider": "kubernetes"})
        fleet.apply({"python": told, "source": source, "volumes": volumes})
        await fleet.phase("Succeeded")
        assert fleet.results() == {0: {"name": "one", "home": WORK, "user": "fleetctl"}}
        files = KubernetesFiles(tmp_path, fleet.account)
        assert [it.path for it in await files.entries("data", "")] == ["kept"]

    play()(tale)


def test_a_pod_with_packages_is_taken_too(play: Callable[..., Play]) -> None:
    async def tale(fleet: Fleet) -> None:
        await fleet.guarded("restricted")
        fleet.apply({"script": "true", "image": {"pip": ["numpy"]}}, tasks={"completions": 1})

        async def made() -> bool:
            return bool(fleet.pods())

        await eventually(made, "its pod is made")
        [pod] = fleet.pods()
        assert pod["spec"]["securityContext"]["runAsUser"] == USER
        assert all(it["securityContext"] for it in pod["spec"]["initContainers"])

    play()(tale)


QUOTA = {"hard": {"pods": "2", "requests.cpu": "4"}}
RANGE = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
LARGE = {"resources": {"cpu": 8, "memory": "1Gi"}}
# (what is in the namespace, settings of the Provider object, of the template, Why, Fix)
CASES: dict[str, tuple[str, Object, Object, str, str]] = {
    "an image of a registry under restricted": (
        "restricted",
        {},
        {"image": "example.org/x:1"},
        'violates PodSecurity "restricted:latest": runAsNonRoot != true',
        "give it one other than root",
    ),
    "a directory of the node under baseline": (
        "baseline",
        {"packageCache": {"hostPath": "/cache"}},
        {"image": {"pip": ["numpy"]}},
        'violates PodSecurity "baseline:latest": hostPath volumes',
        "kubectl label --overwrite namespace",
    ),
    "a quota": (
        "quota",
        {},
        LARGE,
        "exceeded quota: bound, requested: requests.cpu=8",
        "kubectl describe resourcequota",
    ),
    "a quota that wants sizes": (
        "quota",
        {},
        {},
        "failed quota: bound: must specify requests.cpu",
        "give its needs in `resources`",
    ),
    "a range": (
        "range",
        {},
        LARGE,
        "maximum cpu usage per Container is 1, but limit is 8",
        "kubectl describe limitrange",
    ),
    "a priority class": (
        "",
        {"priorityClass": "nosuch"},
        {},
        "no PriorityClass with name nosuch was found",
        "kubectl get priorityclasses",
    ),
    "a runtime class": (
        "",
        {"runtimeClass": "nosuch"},
        {},
        'RuntimeClass "nosuch" not found',
        "kubectl get runtimeclasses",
    ),
    "a range of the pod": (
        "range of pods",
        {},
        LARGE,
        "maximum cpu usage per Pod is 1, but limit is 8",
        "kubectl describe limitrange",
    ),
    "a service account": (
        "",
        {"serviceAccount": "nosuch"},
        {},
        'serviceaccount "nosuch" not found',
        "kubectl create serviceaccount -n tale-",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_what_is_not_admitted_says_why_and_what_mends_it(
    play: Callable[..., Play], case: str
) -> None:
    within, settings, template, why, fix = CASES[case]

    async def tale(fleet: Fleet) -> None:
        if within in ("restricted", "baseline"):
            await fleet.guarded(within)
        elif within == "quota":
            await fleet.bounded("resourcequotas", "ResourceQuota", QUOTA)
        elif within == "range":
            await fleet.bounded("limitranges", "LimitRange", RANGE)
        elif within == "range of pods":
            of_pods = {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}
            await fleet.bounded("limitranges", "LimitRange", of_pods)
        fleet.apply({"script": "true", **template})
        status = await fleet.waits("AdmissionRefused")
        first = status["waitingOn"][0]
        assert f"namespace `{fleet.namespace}` does not admit its pod" in first
        assert why in first
        assert fix in str(status)

    play(**settings)(tale)


def test_what_is_mended_goes_on_by_itself(play: Callable[..., Play]) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.apply({"script": "true"})
        await fleet.waits("AdmissionRefused")
        link = await fleet.provider._connection.link()  # type: ignore[attr-defined]
        head = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "late"}}
        await link.create("serviceaccounts", head)
        await fleet.phase("Succeeded")

    play(serviceAccount="late")(tale)
