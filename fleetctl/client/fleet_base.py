"""The parts that every group of a Fleet's methods needs: its state directory, its namespace, the
request to a controller, and the wait for a change.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, TypeVar

from fleetctl.client.declared_object import DeclaredObject
from fleetctl.common.clock import Deadline
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.common.state_paths import find_state_dir as default_home
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import raise_refusal
from fleetctl.daemon.client.spawn import ControllerSupervision
from fleetctl.manifest.files.documents import VALUES, Document, is_address, read_documents
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.kinds import Target, parse_target
from fleetctl.views.store_reading import StoreReading, must_find, open_reading

Manifests = DeclaredObject | Path | str
Rollout = Literal["Replace", "FinishRunning"]
Result = TypeVar("Result")

log = logging.getLogger("fleetctl.client")

# Set by the async client: a call that nobody awaits any more ends at its next look.
STOP_REQUEST: ContextVar[threading.Event | None] = ContextVar("STOP_REQUEST", default=None)


class TimedOut(FleetctlError, TimeoutError):
    """Raised where a wait takes longer than its `timeout_s`; the work goes on. The text names the
    state of each object that is waited for."""

    exit_code = 124


class FleetBase:
    """A state directory. home: its path, as `$FLEETCTL_HOME`; None for that of the command line."""

    def __init__(
        self, home: str | Path | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> None:
        self.home = default_home() if home is None else Path(home).expanduser().absolute()
        self.namespace = namespace
        self._works: dict[str, object] = {}  # of the objects applied here, as the replies have it

    def __repr__(self) -> str:
        within = "" if self.namespace == DEFAULT_NAMESPACE else f", namespace={self.namespace!r}"
        return f"{type(self).__name__}({str(self.home)!r}{within})"

    def _target(self, key: str) -> Target:
        return parse_target(key, self.namespace)

    def _must_find(self, *targets: Target) -> None:
        """Raises NotFound with the nearest name."""
        with open_reading(self.home) as reading:
            for target in targets:
                must_find(target, reading)

    def _namespaced(self) -> dict[str, object]:
        if self.namespace != DEFAULT_NAMESPACE:
            return {"namespace": self.namespace}
        return {}

    def _send_request(self, message: Mapping[str, object]) -> dict[str, object]:
        reply = spawn.request_with_env(self.home, message)
        if not reply.get("ok"):
            losses = reply.get("losses")
            if isinstance(losses, list) and losses:
                raise Refused("; ".join(map(str, losses)), hint="yes=True does it all the same")
            raise_refusal(reply)
        return reply

    def _until(
        self,
        reading: StoreReading,
        met: Callable[[], bool],
        timeout_s: float | None,
        describe: Callable[[], str],
    ) -> None:
        """Returns once it is met, with a controller at work. describe: returns the present state,
        for the error.
        """
        deadline = Deadline(timeout_s)
        supervision = ControllerSupervision(self.home, talk=log.warning, warn=_log_warning)
        stopped = STOP_REQUEST.get()
        while not met():
            if deadline.passed:
                raise TimedOut(f"timed out after {timeout_s:g} s: {describe()}")
            if stopped is not None and stopped.is_set():
                raise CancelledError
            supervision.check()
            reading.wait_for_change(deadline)


def collect_documents(
    manifests: Sequence[Manifests],
    variables: Mapping[str, object] | None,
) -> list[Document]:
    """Returns the texts of manifests, and of values for their variables. Raises NotFound for a
    missing path."""
    documents = [it for manifest in manifests for it in _read_manifests(manifest)]
    if variables:
        text = json.dumps(dict(variables), indent=2)
        documents.append(Document("<variables>", text, str(Path.cwd()), role=VALUES))
    return documents


def call_apart(function: Callable[[], Result]) -> Result:
    """Returns the result of a function that runs an event loop of its own: in a notebook the
    thread of the caller runs one already."""
    with ThreadPoolExecutor(1, "fleetctl-plan") as thread:
        return thread.submit(function).result()


def describe_keys(keys: Iterable[str]) -> Callable[[], str]:
    """Returns a description for `_until` that names objects alone."""
    return lambda: ", ".join(keys)


def _read_manifests(manifest: Manifests) -> Sequence[Document]:
    if isinstance(manifest, DeclaredObject):
        return [manifest.document()]
    if isinstance(manifest, str) and ("\n" in manifest or manifest.lstrip().startswith("{")):
        return [Document("<text>", manifest, str(Path.cwd()))]
    if not is_address(str(manifest)) and not Path(manifest).exists():
        raise NotFound(
            f"there is no file or directory `{manifest}`", hint="a text has several lines"
        )
    return read_documents([str(manifest)])


def _log_warning(why: str, hint: str) -> None:
    log.warning("%s; %s", why, hint)
