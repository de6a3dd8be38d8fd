"""What queues of a cohort lend each other, quota by quota."""

from __future__ import annotations

import pytest

from fleetctl.controllers.queues.queue_state import (
    QueueAsk,
    QueueRules,
    QueueStates,
    QueueUsage,
    Quota,
)


def ask(gpus: int) -> QueueAsk:
    return QueueAsk("local", QueueUsage(1, 1.0, (("A100", gpus),)), 0.0)


def cohort(*, lending: float | None, used: int = 0) -> QueueStates:
    """Queue `lender` and queue `borrower`, of four GPUs each; the borrower uses some."""
    lines = QueueStates()
    lender = QueueRules("lender", (Quota("gpus", 4.0, lending=lending),), cohort="lab")
    lines.declare([lender, QueueRules("borrower", (Quota("gpus", 4.0),), cohort="lab")])
    lines.use("borrower", "a", ask(used))
    return lines


def may_start(lines: QueueStates, queue: str, gpus: int) -> bool:
    line = lines.lines[queue]
    vector = line.vector(ask(gpus))
    assert vector is not None
    return lines.lacks(line, vector) is None


@pytest.mark.parametrize(("lending", "most"), [(0.0, 4), (1.0, 5), (None, 8)])
def test_a_queue_borrows_what_another_lends_and_nothing_beyond(
    lending: float | None, most: int
) -> None:
    assert may_start(cohort(lending=lending, used=most - 1), "borrower", 1)
    assert not may_start(cohort(lending=lending, used=most), "borrower", 1)


@pytest.mark.parametrize(("lending", "most"), [(0.0, 4), (1.0, 5), (None, 8)])
def test_a_run_that_needs_more_than_is_lent_can_never_start(
    lending: float | None, most: int
) -> None:
    lines = cohort(lending=lending)
    line = lines.lines["borrower"]
    fits, above = line.vector(ask(most)), line.vector(ask(most + 1))
    assert fits is not None and above is not None
    assert lines.never(line, fits) is None
    assert lines.never(line, above) == line.rules.quotas[0]


def test_what_a_queue_does_not_lend_is_its_own_whatever_others_use() -> None:
    lines = cohort(lending=1.0, used=5)
    assert may_start(lines, "lender", 3)
    assert not may_start(lines, "lender", 4)
