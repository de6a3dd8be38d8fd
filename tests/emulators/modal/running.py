"""Running the emulator for tests: in a process of its own, spoken to over HTTP.

with ModalEmulator(tmp_path) as emulator:
    client = emulator.client()
    ...
    assert emulator.live() == []
"""

from __future__ import annotations

import json
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.emulators.starting import Program

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
        self._process: Program | None = None

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
        self._process = Program(
            "tests.emulators.modal.__main__", ["--directory", str(self.directory)], log=self._log
        )
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the emulator did not start; its own words are above or in its log")
        document = json.loads(line)
        self.env, self.admin_url = document["env"] | PATIENCE, document["admin"]

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.stop()
        self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def kill(self) -> None:
        """As a crash of the whole service: nothing is said or saved."""
        assert self._process is not None
        self._process.kill()

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
