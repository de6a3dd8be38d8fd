"""Running the emulator for tests: in a process of its own, spoken to over HTTP.

with ModalEmulator(tmp_path) as emulator:
    client = emulator.client()
    ...
    assert emulator.live() == []
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[3]
STOP_S_MAX = 120.0  # against a hang alone: what is killed leaves its files
# Of ours: five seconds until it has answered are for a service that has its machine for itself.
PATIENCE = {"FLEETCTL_MODAL_CONNECT_S": "60"}


class ModalEmulator:
    """`env` is what an SDK needs to find it, and what we need to wait for it on a busy machine;
    nothing is set in this process. `directory` keeps all that is emulated, and is made and removed
    when it is not given.
    """

    def __init__(self, directory: Path | None = None, *, log: Path | None = None) -> None:
        self._temporary = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(
                prefix="modal-emulator-", ignore_cleanup_errors=True
            )
            directory = Path(self._temporary.name)
        self.directory = directory
        self.env: dict[str, str] = {}
        self.admin_url = ""
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        log = self._log.open("a") if self._log else None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.emulators.modal", "--directory", str(self.directory)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.PIPE,  # its end tells the emulator to stop, whatever became of us
            text=True,
        )
        if log:
            log.close()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the emulator did not start; its own words are above or in its log")
        told = json.loads(line)
        self.env, self.admin_url = told["env"] | PATIENCE, told["admin"]

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def kill(self) -> None:
        """As a crash of the whole service: nothing is said or saved."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def client(self, token_id: str = "", token_secret: str = "") -> Any:
        """A `modal.Client` of this emulator alone. The address is read from the environment while
        it is made, so that is set for that moment.
        """
        import modal

        before = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)
        try:
            return modal.Client.from_credentials(
                token_id or self.env["MODAL_TOKEN_ID"],
                token_secret or self.env["MODAL_TOKEN_SECRET"],
            )
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value

    def do(self, verb: str, **options: Any) -> Any:
        """See admin.Verbs."""
        request = urllib.request.Request(
            f"{self.admin_url}/{verb}",
            data=json.dumps(options).encode(),
            headers={"Content-Type": "application/json"},
        )
        return _answer(request)

    def state(self) -> dict[str, Any]:
        """The ground truth; see state.World.truth."""
        answer = _answer(urllib.request.Request(f"{self.admin_url}/state"))
        assert isinstance(answer, dict)
        return answer

    def log(self) -> list[dict[str, Any]]:
        """Every call to either server, in order."""
        with urllib.request.urlopen(f"{self.admin_url}/log") as answer:
            return [json.loads(line) for line in answer]

    def sandbox(self, sandbox_id: str) -> dict[str, Any]:
        return next(one for one in self.state()["sandboxes"] if one["sandbox_id"] == sandbox_id)

    def live(self) -> list[dict[str, Any]]:
        return [one for one in self.state()["sandboxes"] if one["live"]]

    def rpcs(self) -> dict[str, int]:
        """How often each RPC of either server was called."""
        state = self.state()
        return {**state["rpcs"], **state["router_rpcs"]}


def _answer(request: urllib.request.Request) -> Any:
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{request.full_url}: {error.read().decode()}") from error
