"""kill -9 of a real controller at random moments while jobs are applied and run; then the whole
truth is checked.

The ground truth is outside of the store: each attempt of a task appends a line to a file when its
work
begins, so work that began twice shows, whatever the store says.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from fleetctl.controllers.model import RunState
from fleetctl.daemon.client.spawn import find_holder_pid
from fleetctl.stores.queries import STATES

BIN = Path(sys.executable).with_name("fleetctl")
TASKS = 6
END_WAIT_S = 600.0  # against a hang alone
LEFTOVER_WAIT_S = 300.0  # the promise is 10 s; the machine is shared
HOLDER_LOOK_S = 0.01  # until a killed controller has let go of its store

TASK = """
import os, time
line = f"{job} {os.environ['JOB_COMPLETION_INDEX']} {os.environ['FLEETCTL_ATTEMPT']}\\n"
handle = os.open(begun, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(handle, line.encode())
os.close(handle)
time.sleep(0.02 * (int(os.environ["JOB_COMPLETION_INDEX"]) % 4))
SUBMIT(job=job, index=int(os.environ["JOB_COMPLETION_INDEX"]))
"""


class Process(Protocol):
    """What is used of a controller's subprocess.Popen."""

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...


@dataclass(slots=True)
class Life:
    """One store that survives many controllers."""

    root: Path
    random: Random
    acknowledged: list[str] = field(default_factory=list)
    kills: int = 0
    controller: Process | None = None

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "FLEETCTL_HOME": str(self.root / "home")}

    # -- acts
    # ----------------------------------------------------------------------------------------

    def start(self) -> None:
        log = (self.root / "controller.log").open("ab")
        self.controller = subprocess.Popen(
            [str(BIN), "up"], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def kill(self) -> None:
        """Kills the controller, also where it is one that a command has started meanwhile."""
        assert self.controller is not None
        self.controller.send_signal(signal.SIGKILL)
        self.controller.wait()
        while (holder := find_holder_pid(self.root / "home")) is not None:
            try:
                os.kill(holder, signal.SIGKILL)
            except ProcessLookupError:
                continue
            time.sleep(HOLDER_LOOK_S)
        self.kills += 1

    def apply(self) -> None:
        """A new job; it counts as acknowledged only when the command said so."""
        name = f"job-{len(self.acknowledged)}-{self.random.randrange(1 << 30):x}"
        done = self.command("apply", "-f", "-", stdin=self.manifest(name))
        if done.returncode == 0:
            self.acknowledged.append(name)

    def command(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN), *args],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=END_WAIT_S,
        )

    def manifest(self, name: str) -> str:
        at = self.mount()
        items = [{"job": name, "begun": f"{at}/log"} for _ in range(TASKS)]
        template = {**self.work(), "volumes": [{"name": "begun", "mountPath": at}]}
        spec = {"parallelism": 3, "tasks": {"items": items}, "template": template, **self.more()}
        return json.dumps(
            {
                "apiVersion": "fleetctl.dev/v1alpha1",
                "kind": "BatchJob",
                "metadata": {"name": name},
                "spec": spec,
            }
        )

    def work(self) -> dict[str, str]:
        """Returns the work of a template."""
        return {"python": TASK}

    def mount(self) -> str:
        """Returns the path at which tasks find the volume of the ledger."""
        return "/begun"

    def more(self) -> dict[str, object]:
        """Returns further fields of a job's spec."""
        return {}

    # -- truth
    # ---------------------------------------------------------------------------------------

    def ledgers(self) -> list[Path]:
        """Returns the files that attempts append to when their work begins."""
        return list((self.root / "home").glob("local/volumes/*/log"))

    def settle(self) -> None:
        """Let everything end under a last controller that is left alone."""
        self.start()
        until = time.monotonic() + END_WAIT_S
        while time.monotonic() < until:
            phases = self.phases()
            if all(phases.get(name) in ("Succeeded", "Failed") for name in self.acknowledged):
                return
            time.sleep(0.2)

    def phases(self) -> dict[str, str]:
        listed = json.loads(self.command("get", "jobs", "-o", "json").stdout or '{"items": []}')
        return {item["metadata"]["name"]: item["status"]["phase"] for item in listed["items"]}

    def findings(self) -> list[str]:
        """Sentences about broken promises; empty when all were kept."""
        phases = self.phases()
        out = [
            f"{name} was acknowledged and is lost"
            for name in self.acknowledged
            if name not in phases
        ]
        out += [
            f"{name} ended as {phases[name]}"
            for name in self.acknowledged
            if name in phases and phases[name] != "Succeeded"
        ]
        for name in self.acknowledged:
            rows = json.loads(self.command("results", f"job/{name}", "-o", "json").stdout or "[]")
            found = [(row["index"], (row["result"] or {}).get("index")) for row in rows]
            if found != [(index, index) for index in range(TASKS)]:
                out.append(f"{name} has the results {found}")
        return out + self._begun_twice() + self._recorded_twice() + self._broken_store()

    def _begun_twice(self) -> list[str]:
        lines = Counter(line for log in self.ledgers() for line in log.read_text().splitlines())
        return [
            f"the work of `{line}` began {count} times"
            for line, count in lines.items()
            if count > 1
        ]

    def _recorded_twice(self) -> list[str]:
        database = sqlite3.connect(f"file:{self.root}/home/store/state.db?mode=ro", uri=True)
        try:
            rows = database.execute(
                "select rid, idx, count(*) from runs where state = ?"
                " group by rid, idx having count(*) > 1",
                (STATES.index(RunState.SUCCEEDED.value),),
            ).fetchall()
        finally:
            database.close()
        return [
            f"task {index} of resource {rid} succeeded {count} times" for rid, index, count in rows
        ]

    def _broken_store(self) -> list[str]:
        database = sqlite3.connect(f"file:{self.root}/home/store/state.db?mode=ro", uri=True)
        try:
            answer = database.execute("pragma integrity_check").fetchone()[0]
        finally:
            database.close()
        return [] if answer == "ok" else [f"integrity_check says {answer}"]

    # -- the end
    # -------------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """Delete everything and end the controller; sentences about processes that are left."""
        self.delete_all()
        self.command("down")
        if self.controller is not None:
            self.controller.wait(timeout=120)
        until = time.monotonic() + LEFTOVER_WAIT_S
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.2)
        return [f"process {pid} is left: {what}" for pid, what in left.items()]

    def delete_all(self) -> None:
        names = [f"job/{name}" for name in self.phases()]
        if names:
            self.command("delete", *names, "--timeout", "400s")

    def processes(self) -> dict[int, str]:
        """Living processes of this home, by command line, environment or working directory."""
        mark = str(self.root).encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                line = (entry / "cmdline").read_bytes()
                about = (
                    line
                    + (entry / "environ").read_bytes()
                    + os.fsencode(os.readlink(entry / "cwd"))
                )
            except OSError:
                continue  # it ended while we looked, or it is a stranger's
            if mark in about:
                found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")[:200]
        return found


def live_through(root: Path, *, kills: int, seed: int) -> list[str]:
    """Kill `kills` controllers; sentences about every promise that was broken."""
    life = Life(root, Random(seed))
    while life.kills < kills:
        life.start()
        # Half of the lives are short, so that starts and recoveries are hit too.
        busy = life.random.random() < 0.5
        if busy and len(life.acknowledged) < 4 + kills // 8:
            life.apply()
        time.sleep(life.random.uniform(0.0, 0.5))
        life.kill()
    life.settle()
    return life.findings() + life.end()
