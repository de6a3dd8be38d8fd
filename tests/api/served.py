"""A fleet and the server of its API, both as a person starts them, over loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.docs.fleet import Fleet
from tests.servers.forked_program import make_program_directory

T = TypeVar("T")

WAIT_S = 240.0  # a deadline of a busy machine; what is waited for takes a second
END_S = 60.0
SOON = ("Succeeded", "Failed")


class ServedFleet(Fleet):
    """A fleet with a server. `close` ends both."""

    verb, listen_flag, module = "serve", "--listen", "fleetctl.server.api_server"

    def __init__(
        self,
        home: Path,
        *flags: str,
        more: Mapping[str, str] | None = None,
        program: str = "",
    ) -> None:
        """program: Python that runs the command line of the server; default: as it is."""
        super().__init__(home, more)
        self._server_program = program
        self.start_controller()  # forked; one that the server starts imports all that it needs
        self._log = home.with_name(f"{home.name}-server.log").open("w+b")
        self.server = self.start(*flags)
        self.url = self._read_address()

    def start(self, *flags: str) -> subprocess.Popen[bytes]:
        listen = () if self.listen_flag in flags else (self.listen_flag, "127.0.0.1:0")
        if self._server_program:
            words = [sys.executable, "-P", "-c", self._server_program]
        else:
            words = [str(make_program_directory(self.module) / "fleetctl")]
        words += [self.verb, *listen, *flags]
        return subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=self._log)

    def _read_address(self) -> str:
        assert self.server.stdout is not None
        line = self.server.stdout.readline().decode().strip()
        assert line.startswith(("http://127.0.0.1:", "https://127.0.0.1:")), self.server_log()
        return line

    def server_log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")

    def client(self, token: str = "", **given: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=WAIT_S, **given)

    def token(self, user: str, role: str, *flags: str) -> str:
        return self.ok("token", "create", user, "--role", role, *flags).strip()

    def get(self, path: str, *, token: str = "", **query: Any) -> Any:
        """A good answer, parsed."""
        with self.client(token) as client:
            answer = client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, verb: str, body: Any, *, token: str = "") -> httpx.Response:
        with self.client(token) as client:
            return client.post(f"/api/v1/{verb}", json=body)

    def end(self) -> int:
        self.server.terminate()
        code = self.server.wait(END_S)
        assert self.server.stdout is not None
        self.server.stdout.close()
        return code

    def again(self, *flags: str) -> None:
        """The server ends, and another one takes its place at the same address."""
        port = self.url.rpartition(":")[2].partition("/")[0]
        self.end()
        self.server = self.start(self.listen_flag, f"127.0.0.1:{port}", *flags)
        assert self._read_address() == self.url

    def close(self) -> None:
        if self.server.poll() is None:
            self.end()
        log = self.server_log()
        self._log.close()
        super().close()
        assert "Traceback" not in log, log


def job(
    name: str,
    python: str = "SUBMIT(x=1)",
    *,
    tasks: int = 1,
    labels: Mapping[str, str] | None = None,
    namespace: str = "",
    **spec: Any,
) -> str:
    """The manifest of a job of this machine."""
    metadata: dict[str, Any] = {"name": name, "labels": dict(labels or {})}
    if namespace:
        metadata["namespace"] = namespace
    return json.dumps(
        {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": "BatchJob",
            "metadata": metadata,
            "spec": {
                "tasks": {"items": [{"a": at} for at in range(tasks)]},
                "template": {"python": python},
                "placement": {"ordered": [{"provider": "local"}]},
                **spec,
            },
        }
    )


def until(look: Callable[[], T | None], what: str = "it") -> T:
    """The first value that is not empty, within WAIT_S."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"{what} did not come"
        time.sleep(0.05)
    return found


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    """(id, event, data) of server-sent events."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])
            fields = {}
            continue
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")


def names(answer: Mapping[str, Any]) -> Sequence[str]:
    return [it["metadata"]["name"] for it in answer["items"]]
