"""The store as SQL views, opened for one command. Called by query, cost and top."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from fleetctl.common.clock import SystemClock
from fleetctl.common.deadline import Deadline
from fleetctl.stores.read.query import Asking
from fleetctl.views.tasks import ended_state

TIMEOUT_S = 10.0


def open_asking(place: Path, *, timeout_s: float | None = TIMEOUT_S) -> Asking:
    deadline = Deadline(timeout_s)
    return Asking(
        place,
        now_s=SystemClock().now_s(),
        task_state=ended_state,
        over=lambda: deadline.passed,
    )


def within(args: Namespace) -> str | None:
    """The namespace that is asked about; None for all."""
    return None if args.everywhere else str(args.namespace)


def others(asking: Asking, namespace: str | None) -> int:
    """How many other namespaces have run something, which a list of one does not show."""
    if namespace is None:
        return 0
    sql = "SELECT count(DISTINCT namespace) FROM attempts WHERE namespace <> ?1"
    return int(next(asking.ask(sql, (namespace,)).rows)[0])
