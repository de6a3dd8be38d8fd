"""A private FLEETCTL_HOME and the real command line on it; the docs tests type what a person would.

`close` leaves nothing behind: no object, no controller, no process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.living import alive
from tests.servers import forked
from tests.servers.forked_program import make_program_directory

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "specs" / "examples"
BIN = Path(sys.executable).parent
# Against a hang alone: nothing here is meant to take a tenth of it.
HANG_S = 900
GONE_WAIT_S = 240.0
# Of a failure: phases that need no word, and how much of each screen is told.
WELL = ("Succeeded", "Ready")
WARNINGS_TOLD, SCREEN_CHARACTERS = 20, 3000


def of_all_workers(factory: pytest.TempPathFactory) -> Path:
    """A directory of this run of the tests, the same in each process of pytest-xdist."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    talk: str  # stderr


class Fleet:
    """Commands on one home, run from the repository's root as the README shows them."""

    def __init__(
        self,
        home: Path,
        more: Mapping[str, str] | None = None,
        *,
        environments: Path | None = None,
        program: Path | None = None,
    ) -> None:
        """more: variables of the environment, such as where a provider is. environments: a
        directory that homes share, in which provider `local` finds or builds those of images; what
        an environment holds is in its name, and a lock keeps builders apart. program: of another
        fleetctl than this one, to which `more` leads.
        """
        self.home, self._program = home, program
        if environments is not None:
            environments.mkdir(mode=0o700, exist_ok=True)
            (home / "local").mkdir(mode=0o700, parents=True)
            (home / "local" / "envs").symlink_to(environments)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FLEETCTL_")}
        path = f"{BIN}{os.pathsep}{kept.get('PATH', os.defpath)}"
        self.env = {**kept, "PATH": path, "FLEETCTL_HOME": str(home), "NO_COLOR": "1"}
        self.env |= more or {}

    def shell(self, line: str, *, installed: bool = False) -> Answer:
        """A line as a person types it. installed: with the program that is installed, in ten times
        the CPU of one that is forked.
        """
        return self._run(["sh", "-c", line], stdin=None, forks=not installed)

    def run(self, *words: str, stdin: str | None = None) -> Answer:
        """A command that is forked from a process which has imported what it needs."""
        if self._program is not None:
            return self._run([str(self._program), *words], stdin=stdin)
        done = forked.run(words, env=self.env, stdin=stdin or "", directory=ROOT, hang_s=HANG_S)
        return Answer(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, stdin: str | None = None) -> str:
        """stdout of a command that must end with 0."""
        answer = self.run(*words, stdin=stdin)
        assert answer.code == 0, self._failure(words, answer)
        return answer.out

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "-o", "json"))

    def start_controller(self) -> None:
        """Returns once a controller is ready: on a busy machine that takes longer than a client
        waits for it."""
        deadline_s = time.monotonic() + HANG_S
        while (answer := self.run("up", "--detach")).code != 0:
            assert time.monotonic() < deadline_s, self._failure(("up", "--detach"), answer)

    def kill_controller(self) -> None:
        """kill -9, until it is gone: a dying one may still take a request that it never answers."""
        pid = self.json("status")["pid"]
        os.kill(pid, signal.SIGKILL)
        deadline_s = time.monotonic() + HANG_S
        while alive(pid):
            assert time.monotonic() < deadline_s, f"controller {pid} lives after kill -9"
            time.sleep(0.01)

    def apply(self, example: str) -> str:
        """Apply an example and wait for its end, which must be a good one."""
        return self.ok("apply", "-f", str(EXAMPLES / example), "--wait")

    def results(self, key: str) -> list[dict[str, Any]]:
        """Rows of a finished object, each of which succeeded."""
        rows: list[dict[str, Any]] = self.json("results", key)
        assert [row["state"] for row in rows] == ["Succeeded"] * len(rows), rows
        return rows

    def status(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.json("get", key)["status"]
        return found

    def delete_all(self) -> None:
        keys = self.ok("get", "all", "-o", "name").split()
        if keys:
            self.ok("delete", *keys)

    def close(self) -> None:
        """Delete what there is, end the controller, and see that nothing of this home lives on."""
        self.delete_all()
        assert self.ok("get", "all", "-o", "name") == ""
        self.ok("down")
        assert self.json("status")["pid"] is None
        until = time.monotonic() + GONE_WAIT_S
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        assert left == []

    def processes(self) -> list[str]:
        """Command lines that name this home, other than of the command that asks."""
        listed = subprocess.run(
            ["ps", "-A", "-ww", "-o", "command="], capture_output=True, text=True, check=True
        )
        return [line for line in listed.stdout.splitlines() if str(self.home) in line]

    def volume(self, name: str) -> Path:
        """Where provider `local` keeps a volume's files."""
        return self.home / "local" / "volumes" / name

    def plight(self) -> str:
        """Why what is not well is not: a line for each such object, then the latest warnings."""
        listed = self.run("get", "all", "-o", "json")
        items = json.loads(listed.out)["items"] if listed.code == 0 else []
        lines = []
        for one in items:
            status, name = one["status"], f"{one['kind']}/{one['metadata']['name']}"
            if status.get("phase") not in WELL:
                why = f"{status.get('reason')}: {status.get('message')}"
                lines.append(f"{name} is {status.get('phase')}: {why} {status.get('waitingOn')}")
        told = self.run("events").out.splitlines()
        return "\n".join([*lines, *[line for line in told if " Warning " in line][-WARNINGS_TOLD:]])

    def _failure(self, words: Sequence[str], answer: Answer) -> str:
        """What matters comes first: reports of tests are cut."""
        parts = (
            f"exit {answer.code}: {self.plight()}",
            f"-- of `fleetctl {' '.join(words)}`",
            f"-- stderr\n{answer.talk[-SCREEN_CHARACTERS:]}",
            f"-- stdout\n{answer.out[-SCREEN_CHARACTERS:]}",
            f"-- controller.log\n{self.controller_log()}",
        )
        return "\n".join(parts)

    def controller_log(self) -> str:
        log = self.home / "controller.log"
        return log.read_text("utf-8", "replace")[-4000:] if log.exists() else "no controller.log"

    def _run(self, argv: list[str], *, stdin: str | None, forks: bool = False) -> Answer:
        env = dict(self.env)
        if forks:
            env["PATH"] = f"{make_program_directory()}{os.pathsep}{env['PATH']}"
        done = subprocess.run(
            argv,
            cwd=ROOT,
            env=env,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        return Answer(done.returncode, done.stdout, done.stderr)
