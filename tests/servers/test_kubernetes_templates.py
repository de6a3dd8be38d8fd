"""What a manifest asks for, from the object to a pod: secrets of the cluster, sources, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from uv import find_uv_bin

from fleetctl.controllers.model import RunState
from fleetctl.engine.execute.secrets import SecretValues
from tests.contracts.provider_worlds import eventually
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers import kubernetes_fleet
from tests.servers.fleets import Play, Tally, begins, telling
from tests.unit.providers.test_clone import Served
from tests.unit.providers.test_gitsource import Repository
from tests.unit.providers.test_pip_index import PASSWORD, Index
from tests.unit.providers.test_pip_index import SECRET as LOGIN

SPARE = count()
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cluster-keys"}}


class Fleet(kubernetes_fleet.Fleet):
    """environ: what the controller's shell holds."""

    environ: ClassVar[dict[str, str]] = {}

    def parts(self) -> dict[str, Any]:
        return {"secrets": SecretValues(self.store, self.environ).resolve}

    async def keeps(self, **values: str) -> None:
        """Somebody puts SECRET into the namespace."""
        link = await self.provider._connection.link()  # type: ignore[attr-defined]
        await link.create("secrets", {**SECRET, "stringData": values})


@pytest.fixture(scope="module")
def emulator() -> Iterator[KubernetesEmulator]:
    names = [f"tale-{number}" for number in range(20)]
    images = {"ghcr.io/astral-sh/uv*": {"files": {"/usr/local/bin/uv": find_uv_bin()}}}
    with KubernetesEmulator(namespaces=names, images=images) as one:
        yield one


@pytest.fixture
def play(tmp_path: Path, emulator: KubernetesEmulator) -> Play:
    namespace = f"tale-{next(SPARE)}"
    return telling(lambda: Fleet(tmp_path / "home", emulator, namespace))


@pytest.fixture
def tally() -> Iterator[Tally]:
    with Tally() as one:
        yield one


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A repository over HTTP, whose `main.py` tells of which commit it is."""
    opened: list[Served] = []

    def served(*, private: bool = False) -> Served:
        (tmp_path / "served").mkdir()
        repository = Repository(tmp_path / "served" / "origin")
        repository.commit("main.py", "NAME = 'one'")
        opened.append(Served(repository, private=private))
        return opened[-1]

    yield served
    for one in opened:
        one.close()


# -- secrets ---------------------------------------------------------------------------------------


def test_a_secret_of_the_cluster_is_waited_for_and_read_by_nobody_of_ours(
    play: Play, emulator: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values pass through no store, no request and no file of ours."""
    monkeypatch.setenv("FLEETCTL_KUBERNETES_PATIENCE_S", "0.5")
    value = "hush-31c5"
    work = {"python": "import os\nSUBMIT(n=len(os.environ['KEPT']))", "secrets": ["keys"]}

    async def tale(fleet: Fleet) -> None:
        emulator.forget_requests()
        fleet.apply_kind("Secret", "keys", {"fromProvider": "cluster-keys"})
        fleet.apply(work)
        status = await fleet.waits("SecretMissing")
        assert "has no Secret `cluster-keys`" in str(status), status
        await fleet.keeps(KEPT=value)
        await fleet.phase("Succeeded")
        assert fleet.results() == {0: {"n": len(value)}}
        asked = {what for what in emulator.requests() if "secrets" in what}
        assert asked == {"create secrets"}  # that was us, as somebody else
        for path in fleet._home.rglob("*"):
            assert not path.is_file() or value.encode() not in path.read_bytes(), path

    play(tale)


def test_packages_come_from_an_index_whose_password_the_cluster_keeps(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task itself does not see it."""
    monkeypatch.setenv("FLEETCTL_KUBERNETES_PATIENCE_S", "0.5")
    private = Index(tmp_path / "index", LOGIN[PASSWORD])
    code = "import fleetctl_greeting as g, os\nSUBMIT(text=g.text, seen='hush' in str(os.environ))"
    index = {"url": private.url, "secret": "corp"}
    work = {"python": code, "image": {"pip": ["fleetctl-greeting"], "pipIndex": index}}

    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Secret", "corp", {"fromProvider": "cluster-keys"})
        fleet.apply(work)
        assert "has no Secret `cluster-keys`" in str(await fleet.waits("SecretMissing"))
        await fleet.keeps(**LOGIN)
        await fleet.phase("Succeeded")
        assert fleet.results() == {0: {"text": "hello", "seen": False}}

    try:
        play(tale)
    finally:
        private.close()


# -- sources ---------------------------------------------------------------------------------------


def test_a_private_repository_is_cloned_in_the_pod_with_a_secret_of_the_cluster(
    play: Play, serve: Serve
) -> None:
    served = serve(private=True)
    first = served.repository.git("rev-parse", "HEAD")
    served.repository.commit("main.py", "NAME = 'two'")
    served.publish()

    async def tale(fleet: Fleet) -> None:
        fleet.apply_kind("Secret", "keys", {"fromProvider": "cluster-keys"})
        await fleet.keeps(GIT_TOKEN="hush-9a1e")
        fleet.apply(
            {
                "python": "import main\nSUBMIT(name=main.NAME)",
                "secrets": ["keys"],
                "source": {"git": {"url": served.url, "ref": first}},
            },
            tasks={"completions": 2},
        )
        await fleet.phase("Succeeded")
        assert fleet.results() == {0: {"name": "one"}, 1: {"name": "one"}}
        assert set(served.passwords) == {"x-access-token:hush-9a1e"}

    play(tale)


def test_a_directory_is_what_it_was_when_it_was_applied(
    play: Play, tally: Tally, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    (code / "deep").mkdir(parents=True)
    (code / "deep" / "main.py").write_text("NAME = 'one'\n")
    (code / "left-out.txt").write_text("x" * 1000)

    async def tale(fleet: Fleet) -> None:
        source = {"path": str(code), "exclude": ["*.txt"], "mountPath": "/root/project"}
        told = (
            "\nimport os\nfrom deep import main\n"
            "SUBMIT(name=main.NAME, at=os.getcwd(), there=sorted(os.listdir()))"
        )
        fleet.apply(
            {"python": tally.python(told), "source": source},
            tasks={"completions": 2},
            parallelism=1,
        )
        await begins(tally)
        (code / "deep" / "main.py").write_text("NAME = 'two'\n")
        await fleet.phase("Succeeded")
        found = {"name": "one", "at": "/root/project", "there": ["deep"]}
        assert fleet.results() == {0: found, 1: found}

    play(tale)


# -- memory ----------------------------------------------------------------------------------------


def test_a_pod_that_is_killed_for_its_memory_has_failed_by_itself(
    play: Play, tally: Tally, emulator: KubernetesEmulator
) -> None:
    """At the size that it asked for, another attempt would end as this one did."""
    waits = "\nimport time\ntime.sleep(600)"

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(waits), "resources": {"memory": "64Mi"}})
        await begins(tally)
        [pod] = fleet.pods()
        emulator.kill(fleet.namespace, pod["metadata"]["name"], reason="OOMKilled")
        await fleet.phase("Failed")
        [run] = fleet.runs()
        assert (run.state, run.reason, run.exit_code) == (RunState.FAILED, "OOMKilled", 137), run
        assert tally.begun == {"0/1": 1}

        async def no_pod() -> bool:
            return fleet.pods() == []

        await eventually(no_pod, "no pod was left")

    play(tale)
