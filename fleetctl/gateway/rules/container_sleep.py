"""Tracks whether a server that is a Function has a container now, as far as its callers can know;
pure.

A container starts when it is called and stops some time after the last answer. So only a call may
wake a sleeping Function, and no request is sent just to find out its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEY = "x-fleetctl-key"  # header, of fleetctl_server.py before each server
STATE = "X-Fleetctl-Server"  # header of its answers
UP = "up"
FAILED = "failed"
READY_PATH = "/.fleetctl/ready"
# Statuses of a proxy before a container that is gone, or that is not there yet.
NOBODY_THERE = (502, 503, 504)
# A container counts as up until this margin before the moment at which it may have stopped.
MARGIN_S_MAX = 5.0
MARGIN_SHARE = 0.2
REST_S, REST_MAX_S = 30.0, 960.0  # after a start that failed: each costs its container's time
STARTUP_SLACK_S = 60.0  # to find a machine, and to report that the server did not become ready

ASLEEP = "Asleep"
STARTING = "Starting"
AWAKE = "Ready"
BROKEN = "ServerFailed"
BLOCKED = "Blocked"


@dataclass(slots=True)
class ContainerSleep:
    """The sleep state of a Function.

    name: `function/vllm`. warm: some container is always there. blocked: reason why the Function
    must not be called, or empty. why: reason of the last failed start. Times are of one monotonic
    clock.
    """

    name: str = ""
    startup_s: float = 0.0
    scaledown_s: float = 0.0
    warm: bool = False
    blocked: str = ""
    why: str = ""
    asking: int = 0  # calls under way
    starting_since_s: float | None = None
    rest_s: float = 0.0
    resting_until_s: float = 0.0
    _up: bool = False
    _active_s: float = float("-inf")

    def declare(self, row: Mapping[str, Any]) -> None:
        self.name, self.warm = str(row["name"]), bool(row.get("warm"))
        self.startup_s = float(row["startupSeconds"])
        self.scaledown_s = float(row["scaledownSeconds"])
        self.blocked = str(row.get("blocked") or "")

    def state(self, now_s: float) -> str:
        if self.blocked:
            return BLOCKED
        if self.starting_since_s is not None:
            return STARTING
        if self.resting_until_s > now_s:
            return BROKEN
        if self.awake(now_s):
            return AWAKE
        return ASLEEP

    def awake(self, now_s: float) -> bool:
        margin_s = min(MARGIN_S_MAX, MARGIN_SHARE * self.scaledown_s)
        lately = now_s < self._active_s + self.scaledown_s - margin_s
        return self._up and (lately or self.asking > 0 or self.warm)

    def woke(self, now_s: float) -> None:
        self._up = True
        self._active_s = now_s
        self.starting_since_s = None
        self.why = ""
        self.rest_s = 0.0
        self.resting_until_s = 0.0

    def active(self, now_s: float) -> None:
        self._active_s = now_s

    def doze(self) -> None:
        """Its container is gone, or does not answer."""
        self._up = False

    def broke(self, why: str, now_s: float) -> None:
        """A start failed: the next one waits."""
        self._up = False
        self.starting_since_s = None
        self.why = why
        self.rest_s = min(REST_MAX_S, self.rest_s * 2 or REST_S)
        self.resting_until_s = now_s + self.rest_s

    def describe(self, now_s: float) -> str:
        """Describes the state in a sentence; empty while the server answers."""
        match self.state(now_s):
            case "Asleep":
                last = f"; its last did not become ready: {self.why}" if self.why else ""
                return f"{self.name} is asleep: the next call starts a container{last}"
            case "Starting":
                return f"starting a container of {self.name}"
            case "Blocked":
                return self.blocked
            case "ServerFailed":
                return f"a container of {self.name} did not become ready: {self.why}"
        return ""
