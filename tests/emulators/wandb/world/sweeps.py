"""Sweeps: their configuration, their states and the rules between them, their points in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from ..errors import Refused
from . import points
from .naming import global_id

METHODS = ("grid", "random", "bayes", "custom")
LIVE = ("PENDING", "RUNNING", "PAUSED")
STATES = (*LIVE, "FINISHED", "CANCELED")


@dataclass(slots=True)
class Sweep:
    """name: the short one in addresses, which people call the id. handed: how many points are."""

    name: str
    entity: str
    project: str
    text: str  # YAML, as it was sent
    created_s: float
    display_name: str = ""
    description: str | None = None
    controller: str | None = None
    scheduler: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    states: list[str] = field(default_factory=lambda: ["PENDING"])  # every one, in order
    updated_s: float = 0.0
    handed: int = 0
    runs: list[str] = field(default_factory=list)  # ids, oldest first
    waiting: list[str] = field(default_factory=list)  # ids of runs to be resumed by some agent

    def __post_init__(self) -> None:
        self.updated_s = self.created_s
        self.configure(self.text)

    @property
    def id(self) -> str:
        return global_id("Sweep", self.name, self.project, self.entity)

    @property
    def state(self) -> str:
        return self.states[-1]

    @property
    def expected(self) -> int | None:
        """How many runs there will be; None when they never end."""
        ends = [self._grid_size, self.config.get("run_cap")]
        known = [int(end) for end in ends if end is not None]
        return min(known) if known else None

    @property
    def exhausted(self) -> bool:
        return self.expected is not None and self.handed >= self.expected

    @property
    def _grid_size(self) -> int | None:
        """None for other methods."""
        if self.config["method"] != "grid":
            return None
        return points.grid_size(self.config["parameters"])

    def configure(self, text: str) -> None:
        """Raises Refused, in the service's words as far as they are known."""
        try:
            config = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise Refused(400, f"Invalid sweep config: {error}") from error
        if not isinstance(config, dict) or config.get("method") not in METHODS:
            raise Refused(400, "Invalid sweep config: method must be one of " + ", ".join(METHODS))
        parameters = config.setdefault("parameters", {})
        if not isinstance(parameters, dict):
            raise Refused(400, "Invalid sweep config: parameters must be a mapping")
        _check(parameters, grid=config["method"] == "grid")
        self.text, self.config = text, config

    def next_point(self) -> dict[str, Any]:
        """Counts it as handed."""
        assert not self.exhausted, "whoever asks has looked whether there is one"
        # Bayes is answered as random is: which point comes next is not the subject.
        make = points.grid_point if self.config["method"] == "grid" else points.random_point
        point = make(self.config["parameters"], self.handed)
        self.handed += 1
        return point

    def move(self, state: str, now_s: float) -> None:
        """As somebody asks; the same state again is no change. Raises Refused."""
        if state not in STATES or state == "PENDING":
            raise Refused(400, f"invalid sweep state {state}")
        if state == "PAUSED" and self.state not in ("PAUSED", "RUNNING"):
            raise Refused(400, f"Cannot pause {self.state.lower()} sweep.")
        if state != "RUNNING" and self.state not in LIVE:
            raise Refused(400, f"Sweep already {self.state.lower()}.")
        self.turn(state, now_s)

    def turn(self, state: str, now_s: float) -> None:
        if state != self.state:
            self.states.append(state)
            self.updated_s = now_s


def _check(parameters: Mapping[str, Any], *, grid: bool) -> None:
    for name, parameter in parameters.items():
        if isinstance(parameter, dict) and isinstance(parameter.get(points.NESTED), dict):
            _check(parameter[points.NESTED], grid=grid)
            continue
        found = points.distribution_of(parameter) if isinstance(parameter, dict) else None
        if found is None or any(key not in parameter for key in found.needs):
            message = f"Invalid sweep config: invalid hyperparameter configuration: {name}"
            raise Refused(400, message)
        if grid and not found.countable:
            message = f"Invalid sweep config: {name}: {found.name} has no countable values"
            raise Refused(400, message)
