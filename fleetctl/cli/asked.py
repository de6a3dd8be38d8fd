"""The store as SQL views, opened for one command. Called by query, cost and top."""

from __future__ import annotations

from pathlib import Path

from fleetctl.cli.pace import Deadline
from fleetctl.cli.tasks import ended_state
from fleetctl.clock import SystemClock
from fleetctl.stores.asking import Asking

TIMEOUT_S = 10.0


def open_asking(place: Path, *, timeout_s: float | None = TIMEOUT_S) -> Asking:
    deadline = Deadline(timeout_s)
    return Asking(
        place,
        now_s=SystemClock().now_s(),
        task_state=ended_state,
        over=lambda: deadline.passed,
    )
