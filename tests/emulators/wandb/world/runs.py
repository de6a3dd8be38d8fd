"""Runs: what their programs sent, and what became of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .naming import global_id

LIVE = ("pending", "running", "preempting")
STREAMS = ("wandb-history.jsonl", "wandb-events.jsonl", "output.log")


@dataclass(slots=True)
class Run:
    """name: the short one, WANDB_RUN_ID. params: of a sweep's point, as they were handed out."""

    name: str
    entity: str
    project: str
    created_s: float
    sweep: str = ""
    state: str = "running"
    params: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  # name -> {"value": v, …}, as it is sent
    summary: dict[str, Any] = field(default_factory=dict)
    streams: dict[str, list[str]] = field(default_factory=lambda: {it: [] for it in STREAMS})
    details: dict[str, Any] = field(default_factory=dict)  # host, program, displayName, …
    handed_to: list[str] = field(default_factory=list)  # agents, in order; one may be there twice
    begun: int = 0  # how many processes have begun it
    exit_codes: list[int] = field(default_factory=list)  # of each process that told its end
    stopping: bool = False  # somebody or the sweep wants it to end
    uploads: dict[str, int] = field(default_factory=dict)  # file -> bytes
    heartbeat_s: float = 0.0

    @property
    def id(self) -> str:
        return global_id("Run", self.name, self.project, self.entity)

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Of the history. NaN and infinities are floats here."""
        return [json.loads(line) for line in self.streams["wandb-history.jsonl"]]

    @property
    def heard_of_s(self) -> float:
        return max(self.created_s, self.heartbeat_s)

    def begin(self, now_s: float) -> None:
        """A process begins it, perhaps not the first one."""
        self.begun += 1
        self.heartbeat_s = now_s
        self.state = "running"

    def take(self, body: Mapping[str, Any], now_s: float) -> None:
        """What its program sends to file_stream. A chunk takes the place of all from its offset on:
        it may come again, and a second process begins at 0 unless it resumes the first one.
        """
        self.heartbeat_s = now_s
        for name, chunk in (body.get("files") or {}).items():
            content = list(chunk["content"])
            if name == "wandb-summary.json":
                self.summary = json.loads(content[-1])
            elif name in self.streams:
                lines, offset = self.streams[name], int(chunk.get("offset", 0))
                lines[offset:] = content
        if body.get("preempting"):
            self.state = "preempting"
        if body.get("complete"):
            self.end(int(body.get("exitcode") or 0))

    def end(self, exit_code: int) -> None:
        self.exit_codes.append(exit_code)
        if exit_code == 0:
            self.state = "finished"
        elif self.state == "preempting":
            self.state = "preempted"
        else:
            self.state = "killed" if self.stopping else "failed"

    def value(self, metric: str) -> float | None:
        """The summary's number of that name."""
        found = self.summary.get(metric)
        if not isinstance(found, (int, float)) or isinstance(found, bool):
            return None
        return float(found) if math.isfinite(found) else None
