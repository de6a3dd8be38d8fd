"""Agents of sweeps: what they told last, and what they were handed."""

from __future__ import annotations

from dataclasses import dataclass, field

from .naming import global_id


@dataclass(slots=True)
class Agent:
    """runs: every one that it was handed, in order; a run that came again is there again."""

    name: str
    host: str
    entity: str
    project: str
    sweep: str
    created_s: float
    runs: list[str] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)  # the runs of its last heartbeat
    named: set[str] = field(default_factory=set)  # those of all its heartbeats
    handed: str = ""  # the run that its last heartbeat was answered with
    heartbeats: int = 0
    heartbeat_s: float = 0.0
    dismissed: bool = False  # it got `exit`

    def holds(self, run: str) -> bool:
        """As far as it is known: it names the run, or was handed it just now."""
        return run in self.reported or run == self.handed

    @property
    def id(self) -> str:
        return global_id("Agent", self.name, self.sweep, self.project, self.entity)
