"""Two operators in an emulated cluster: leaders are killed, stand still and lose the API server,
and watches become too old, while custom resources are made, run as pods and are deleted; then the
whole truth is checked. Called by the test and by `make soak`.

The ground truth is outside of the store: each attempt of a task calls its job's tally when its work
begins.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fleetctl.operator.crds.definition import GROUP
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.fleets import Tally
from tests.servers.operators import ROOT, SHORT_LEASE_S, Pair, People, cluster_with_our_kinds

TASKS = 3
BETWEEN_S = 1.0  # at most: jobs begin, run and end within that, or do not
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACTS = ("kill", "stop", "freeze", "away", "old")
WORK = """
import time
time.sleep(0.2 * (int(os.environ["JOB_COMPLETION_INDEX"]) % 3))
SUBMIT(index=int(os.environ["JOB_COMPLETION_INDEX"]))
"""


class Leaders:
    """A cluster in which operators come and go. tallies: by the job whose tasks call them;
    deleted: jobs that were deleted at some moment of their lives.
    """

    def __init__(self, pair: Pair, random: Random, stack: ExitStack) -> None:
        self._pair, self._random, self._stack = pair, random, stack
        self._cluster, self._people = pair.cluster, pair.people
        self.tallies: dict[str, Tally] = {}
        self.deleted: set[str] = set()

    # -- acts ----------------------------------------------------------------------------------

    def create(self) -> None:
        name = f"job-{len(self.tallies)}"
        tally = self._stack.enter_context(Tally())
        template = {"python": tally.python(WORK)}
        self._people.create("BatchJob", name, {"completions": TASKS, "template": template})
        self.tallies[name] = tally

    def delete(self) -> None:
        if left := sorted(self.tallies.keys() - self.deleted):
            name = self._random.choice(left)
            self._people.delete("BatchJob", name)
            self.deleted.add(name)

    def act(self, name: str) -> None:
        """One of ACTS, to the process that leads, or to the API server."""
        leader = self._pair.leader()
        if name == "kill":
            leader.process.send_signal(signal.SIGKILL)
        elif name == "stop":
            leader.process.send_signal(signal.SIGTERM)
        elif name == "freeze":
            leader.process.send_signal(signal.SIGSTOP)
            self._pair.until(
                lambda: self._pair.holder() not in ("", leader.pid), "another has the lease"
            )
            leader.process.send_signal(signal.SIGCONT)
        elif name == "away":
            self._cluster.away(on=True)
            time.sleep(self._random.uniform(0.0, 1.5 * SHORT_LEASE_S))
            self._cluster.away(on=False)
        else:
            self._cluster.compact()
            self._cluster.cut_watches()

    def wait_a_moment(self) -> None:
        time.sleep(self._random.uniform(0.0, BETWEEN_S))

    # -- truth ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Waits until all jobs are over or gone, under operators that are left alone."""
        self._pair.until(lambda: not self._unsettled(), "all jobs are over or gone")

    def _unsettled(self) -> list[str]:
        found = {it["metadata"]["name"]: it for it in self._jobs()}
        return [
            name
            for name in self.tallies
            if (name in found if name in self.deleted else not _is_over(found.get(name, {})))
        ]

    def findings(self) -> list[str]:
        """Sentences about broken promises; empty when all were kept."""
        out = []
        found = {it["metadata"]["name"]: it for it in self._jobs()}
        for name, tally in self.tallies.items():
            begun = [0] * TASKS
            for attempt, count in tally.begun.items():
                begun[int(attempt.partition("/")[0])] += count
            if name in self.deleted:
                if max(begun) > 1:
                    out.append(f"the work of {name}, which was deleted, began {dict(tally.begun)}")
                continue
            if begun != [1] * TASKS:
                out.append(f"the work of {name} began {dict(tally.begun)}")
            status = found[name]["status"]
            if (status["phase"], status["succeeded"]) != ("Succeeded", TASKS):
                out.append(f"{name} ended as {status['phase']}, {status['message']}")
        return out

    def end(self) -> list[str]:
        """Deletes everything; sentences about what is left."""
        for name in self.tallies.keys() - self.deleted:
            self._people.delete("BatchJob", name)
        self._pair.until(lambda: not self._jobs(), "all are gone")
        left = [("jobs", "batch"), ("pods", ""), ("services", "")]

        def living() -> list[str]:
            found = (it for plural, group in left for it in self._labelled(plural, group))
            return [f"{it['kind']} {it['metadata']['name']} is left" for it in found]

        self._pair.until(lambda: not living(), "no work is left")
        return [f"{it.log.name}: Traceback" for it in self._pair.gone if "Traceback" in it.told()]

    def _jobs(self) -> list[dict[str, Any]]:
        return self._cluster.objects("batchjobs", GROUP)

    def _labelled(self, plural: str, group: str) -> list[dict[str, Any]]:
        found = self._cluster.objects(plural, group)
        ours = "fleetctl.dev/kind"
        return [it for it in found if ours in (it["metadata"].get("labels") or {})]


def _is_over(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(it["type"] in ("Complete", "Failed") and it["status"] == "True" for it in conditions)


@contextmanager
def _cluster_with_a_provider() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds() as cluster:
        people = People(cluster)
        provider, role, binding = yaml.safe_load_all((ROOT / "deploy/runs.yaml").read_text())
        people.ask("POST", f"/apis/{GROUP}/v1alpha1/providers", provider)
        people.ask("POST", f"{RBAC}/clusterroles", role)
        people.ask("POST", f"{RBAC}/namespaces/default/rolebindings", binding)
        yield cluster


def lead_through(root: Path, *, kills: int, seed: int) -> list[str]:
    """Plays at least `kills` acts, each sort equally often; sentences about every promise that was
    broken.
    """
    random = Random(seed)
    home = root / "fleetctl-operator"  # the only name of a lease that the role allows
    home.mkdir()
    with ExitStack() as stack:
        cluster = stack.enter_context(_cluster_with_a_provider())
        pair = Pair(cluster, home, "--local-means", "kubernetes")
        stack.callback(pair.end)
        pair.start()
        pair.start()
        life = Leaders(pair, random, stack)
        acts: list[str] = []
        while len(acts) < kills:
            acts += random.sample(ACTS, len(ACTS))
        for number, act in enumerate(acts):
            life.create()
            life.wait_a_moment()
            if number % 3 == 2:
                life.delete()
            life.act(act)
        life.settle()
        found = life.findings() + life.end()
    return [f"seed {seed}, {acts}: {it}" for it in found]
