"""Starting the emulator in a process of its own, and talking to it from a test.

    with DaytonaEmulator() as daytona:
        run_something(env={**os.environ, **daytona.env})
        assert daytona.state()["live"] == []

Nothing is set globally. The process ends with the `with` block, and also when this process dies.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.emulators.starting import Program

MACHINE_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ANSWER_S = 240.0
# Of ours: five seconds until it has answered are for a service that has its machine for itself.
PATIENCE = {"FLEETCTL_DAYTONA_CONNECT_S": "60"}


class DaytonaEmulator:
    """Owns the process. Keyword arguments are settings (see settings.py), set before it listens."""

    def __init__(self, *, directory: Path | None = None, port: int = 0, **settings: Any) -> None:
        self._options = ["--port", str(port), "--settings", json.dumps(settings)]
        self._given, self._directory = directory, Path()
        self._process: Program | None = None
        self.env: dict[str, str] = {}
        self.authority = Path()

    def start(self) -> DaytonaEmulator:
        # Made here, so that it is removed here even when the emulator was killed.
        self._directory = self._given or Path(tempfile.mkdtemp(prefix="daytona-emulator-"))
        options = ["--directory", str(self._directory), *self._options]
        self._process = Program(
            "tests.emulators.daytona.__main__", ["--until-stdin-ends", *options]
        )
        lines = [self._process.stdout.readline().strip() for _ in range(3)]
        if not all(lines):
            self.stop()
            raise OSError("the Daytona emulator ended before it listened; its stderr says why")
        told = dict(line.split("=", 1) for line in lines)
        self.authority = Path(told.pop("DAYTONA_EMULATOR_CA"))
        self.env = told | PATIENCE
        return self

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.stop()
        self._process = None
        if self._given is None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self) -> None:
        """As a crash would end it."""
        assert self._process is not None
        self._process.kill()
        self.stop()

    def __enter__(self) -> DaytonaEmulator:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self.env["DAYTONA_API_URL"].removesuffix("/api")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def state(self, *, requests: bool = False) -> dict[str, Any]:
        """The ground truth; with `requests` also the newest requests one by one."""
        found = self._ask("GET", f"state?requests={str(requests).lower()}")
        assert isinstance(found, dict)
        return found

    def sandbox(self, id_or_name: str) -> dict[str, Any]:
        """The newest of that id or name, whatever became of it."""
        for one in reversed(self.state()["sandboxes"]):
            if id_or_name in (one["id"], one["name"]):
                assert isinstance(one, dict)
                return one
        raise KeyError(id_or_name)

    def count(self, operation: str) -> int:
        """How often the operation (its name in the specification) was asked for."""
        return int(self.state()["requests"].get(operation, 0))

    def forget_requests(self) -> None:
        self._ask("DELETE", "requests")

    def set(self, **settings: Any) -> None:
        self._ask("PATCH", "settings", settings)

    def fault(self, **fault: Any) -> int:
        """See faults.Fault. Returns its id, for `remove_faults`."""
        return int(self._ask("POST", "faults", fault)["id"])

    def fate(self, **fate: Any) -> int:
        """See faults.Fate."""
        return int(self._ask("POST", "fates", fate)["id"])

    def faults(self) -> list[dict[str, Any]]:
        """Those in force, and how often each was met."""
        found = self._ask("GET", "faults")
        assert isinstance(found, list)
        return found

    def remove_faults(self, fault_id: int | None = None) -> None:
        self._ask("DELETE", "faults" if fault_id is None else f"faults/{fault_id}")

    def advance(self, by_s: float) -> None:
        self._ask("POST", "clock", {"advance_s": by_s})

    def scale(self, times: float) -> None:
        """How many of the platform's seconds pass in one of ours."""
        self._ask("POST", "clock", {"scale": times})

    def evict(self, id_or_name: str) -> None:
        self._ask("POST", f"sandboxes/{id_or_name}/evict")

    def lose(
        self, id_or_name: str, *, reason: str | None = "runner lost", recoverable: bool = False
    ) -> None:
        """Its machine goes away: processes dead, state `error`."""
        self._ask(
            "POST", f"sandboxes/{id_or_name}/lose", {"reason": reason, "recoverable": recoverable}
        )

    def pause(self, id_or_name: str) -> None:
        """A person or a policy holds it."""
        self._ask("POST", f"sandboxes/{id_or_name}/pause")

    def cut(self, id_or_name: str) -> None:
        """End all connections to its toolbox, streams too, without a goodbye; it runs on."""
        self._ask("POST", f"sandboxes/{id_or_name}/cut")

    def set_volume(self, id_or_name: str, state: str, *, reason: str | None = None) -> None:
        """Put a volume into a state, such as `error`."""
        self._ask("POST", f"volumes/{id_or_name}", {"state": state, "reason": reason})

    def hang_up(self) -> None:
        """Cut all event sockets; the SDK comes back by itself."""
        self._ask("POST", "events/hang-up")

    def trusting(self, argv: list[str], directory: Path) -> list[str]:
        """A command that runs `argv` where this machine's certificates include the emulator's.

        Needed only by what uploads build contexts (`Image.add_local_file` and its kin): that client
        trusts nothing but the machine's own file, so it gets one in a mount namespace of its own.
        `directory` is where the file is put.
        """
        bundle = directory / "certificates.pem"
        bundle.write_text(MACHINE_CERTIFICATES.read_text() + self.authority.read_text())
        mount = shlex.join(["mount", "--bind", str(bundle), str(MACHINE_CERTIFICATES)])
        return ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *argv]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/admin/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        # Proxies of the machine are not for loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=ANSWER_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None
