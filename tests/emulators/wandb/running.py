"""Running the emulator for tests: in a process of its own, spoken to over HTTP.

with WandbEmulator() as emulator:
    subprocess.run([sys.executable, "train.py"], env=os.environ | emulator.env)
    assert emulator.run("abc")["state"] == "finished"
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from types import TracebackType
from typing import Any, Self

from tests.emulators.starting import Program

from .world.settings import API_KEY, ENTITY

PROJECT = "digits"


class WandbEmulator:
    """`env` is what the package, and ours, need to find it; nothing is set in this process."""

    api_key, entity, project = API_KEY, ENTITY, PROJECT

    def __init__(self) -> None:
        self.env: dict[str, str] = {}
        self.admin_url = ""
        self._process: Program | None = None

    @property
    def url(self) -> str:
        return self.env["WANDB_BASE_URL"]

    def __enter__(self) -> Self:
        self._process = Program("tests.emulators.wandb.__main__", [])
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the emulator did not start; its own words are above")
        document = json.loads(line)
        self.env, self.admin_url = document["env"], document["admin"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.stop()

    def do(self, verb: str, **options: Any) -> Any:
        """See admin.Verbs."""
        return self._ask(verb, json.dumps(options).encode())

    def fault(self, operation: str = "*", **options: Any) -> None:
        """See faults.Fault."""
        self.do("fault", operation=operation, **options)

    def state(self) -> dict[str, Any]:
        """The ground truth: sweeps, runs, agents, requests (by operation), faults; see
        world.state.World.truth.
        """
        answer = self._ask("state")
        assert isinstance(answer, dict)
        return answer

    def log(self) -> list[dict[str, Any]]:
        """The newest requests, oldest first: operation, status, document, variables."""
        answer = self._ask("log")
        assert isinstance(answer, list)
        return answer

    def sweep(self, name: str) -> dict[str, Any]:
        return _named(self.state()["sweeps"], name)

    def run(self, name: str) -> dict[str, Any]:
        return _named(self.state()["runs"], name)

    def runs(self, sweep: str) -> list[dict[str, Any]]:
        """Of a sweep, oldest first."""
        return [one for one in self.state()["runs"] if one["sweep"] == sweep]

    def agents(self, sweep: str) -> list[dict[str, Any]]:
        return [one for one in self.state()["agents"] if one["sweep"] == sweep]

    def _ask(self, verb: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self.admin_url}/{verb}", data=body)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{verb}: {error.read().decode()}") from error


def _named(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in found if one["name"] == name)
