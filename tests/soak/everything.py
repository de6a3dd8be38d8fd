"""kill -9 of controllers, supervisors, gateways and tasks at random moments, while tasks ask a
model and write what they begin; then the whole truth is checked. Called by the test and by the
campaign.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.emulators.llm.running import running
from tests.emulators.llm.server import Model
from tests.soak.killing import TASKS, Life

CONTROLLER = re.compile(r"fleetctl(\.cli\.main)? up ")
SUPERVISOR, GATEWAY = "providers/local/supervisor", "fleetctl.gateway"
SORTS = ("controller", "supervisor", "gateway", "task")
BETWEEN_KILLS_S = 0.5  # at most; calls and tasks begin and end within that, or do not
WAIT_S = 10.0  # for a process of the sort that is to be killed
JOBS_AT_ONCE = 2
ANSWER_S = 0.1
TASK = """
import os, time
index = int(os.environ["JOB_COMPLETION_INDEX"])
line = f"{job} {index} {os.environ['FLEETCTL_ATTEMPT']}\\n"
handle = os.open("/begun/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(handle, line.encode())
os.close(handle)
answers = [llm_query(f"{job} {index} {n}", model="m") for n in range(2)]
time.sleep(0.05 * (index % 4))
SUBMIT(job=job, index=index, answers=answers)
"""


@dataclass(slots=True)
class Everything(Life):
    """A store with an endpoint, and jobs whose tasks ask it. killed: how often, by sort."""

    url: str = ""
    killed: Counter[str] = field(default_factory=Counter)

    def manifest(self, name: str) -> str:
        head = {"apiVersion": "fleetctl.dev/v1alpha1"}
        servers = [{"url": f"{self.url}/v1", "slots": 8}]
        endpoint = {"servers": servers, "models": {"m": "tiny"}}
        template = {
            "python": TASK,
            "endpoints": ["chat"],
            "volumes": [{"name": "begun", "mountPath": "/begun"}],
        }
        job = {
            "parallelism": 3,
            "backoffLimitPerIndex": 1000,
            "maxInfraRetries": 1000,
            "retry": {"backoff": {"initial": "100ms", "max": "100ms"}},
            "tasks": {"items": [{"job": name}] * TASKS},
            "template": template,
        }
        rows = (("Endpoint", "chat", endpoint), ("BatchJob", name, job))
        return "\n---\n".join(
            json.dumps({**head, "kind": kind, "metadata": {"name": called}, "spec": spec})
            for kind, called, spec in rows
        )

    def kill_one(self, sort: str) -> None:
        """One process of the sort, if there is any soon."""
        if sort == "controller":
            # A command that found none has begun one, where ours was slow to start.
            self._kill_any(self._pids(sort), sort)
            self.kill()
            if self.random.random() < 0.5:  # half of the others die while none is there
                self._kill_any(self._pids(other := self.random.choice(SORTS[1:])), other)
            self.start()
            return
        until = time.monotonic() + WAIT_S
        while not (pids := self._pids(sort)) and time.monotonic() < until:
            time.sleep(0.05)
        self._kill_any(pids, sort)

    def _kill_any(self, pids: list[int], sort: str) -> None:
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(pids), signal.SIGKILL)
                self.killed[sort] += 1

    def _pids(self, sort: str) -> list[int]:
        found = self.processes()
        if sort == "gateway":
            return [pid for pid, line in found.items() if GATEWAY in line]
        if sort == "controller":
            return [pid for pid, line in found.items() if CONTROLLER.search(line)]
        # A task is a fork of its supervisor, by the same command line.
        group = [pid for pid, line in found.items() if SUPERVISOR in line]
        parents = {_parent(pid) for pid in group}
        return [pid for pid in group if (pid in parents) is (sort == "supervisor")]

    def kill_the_rest(self) -> None:
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.controller is not None:
                self.controller.poll()
            time.sleep(0.05)

    def wrong_answers(self) -> list[str]:
        """Sentences about what tasks were answered."""
        out = []
        for name in self.acknowledged:
            rows = json.loads(self.command("results", f"job/{name}", "-o", "json").stdout or "[]")
            for row in rows:
                wanted = [f"echo: {name} {row['index']} {n}" for n in range(2)]
                found = (row["result"] or {}).get("answers")
                if found != wanted:
                    out.append(f"{name} {row['index']} was answered {found}")
        return out


def kill_everything(seed: int, *, kills: int) -> tuple[int, list[str]]:
    """(how often something was killed, a sentence for each broken promise)."""
    with (
        TemporaryDirectory(prefix="fleetctl-kills-", ignore_cleanup_errors=True) as root,
        running(Model(answer_s=ANSWER_S, slots=8)) as model,
        ExitStack() as stack,
    ):
        life = Everything(Path(root), Random(seed), url=model.url)
        stack.callback(life.kill_the_rest)  # of a trial that was interrupted
        life.start()
        while life.killed.total() < kills:
            if sum(it not in ("Succeeded", "Failed") for it in _phases(life)) < JOBS_AT_ONCE:
                life.apply()
            for sort in life.random.sample(SORTS, len(SORTS)):
                time.sleep(life.random.uniform(0.0, BETWEEN_KILLS_S))
                life.kill_one(sort)
        life.kill()  # `settle` begins with a start of its own
        life.settle()
        found = life.findings() + life.wrong_answers()
        found += life.end()
    done = life.killed.total()
    return done, [f"seed {seed}, {dict(life.killed)}: {it}" for it in found]


def _phases(life: Everything) -> list[str]:
    phases = life.phases()
    return [phases.get(name, "Pending") for name in life.acknowledged]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it ended while we looked
