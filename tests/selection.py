"""Leaves tests that are marked `only_all` to `make test-all`, and reports them in one line.

    @pytest.mark.only_all(reason="the same mechanism as with `local`, on every backend")
    @pytest.mark.only_all(reason="a verb on the other clouds", of=("modal", "kubernetes"))

The second leaves out the cases of a test in which a parameter, its own or one of its fixtures, has
a value of `of`. The option --all runs them too, and --rest runs them alone. Registered by
tests/conftest.py; each worker of pytest-xdist leaves the same tests out and sends the process that
reports how many they were, as of its collection or of the one before it was forked.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

ALL, REST = "--all", "--rest"
MARK = "only_all"
_SENT = "fleetctl_only_all"  # the key in a worker's output

_left_out: Counter[str] = Counter()  # tests of a reason, of this process or of a worker


def reason_of(item: pytest.Item) -> str | None:
    """The reason for which a test runs in `make test-all` alone; None when it always runs."""
    call = getattr(item, "callspec", None)
    values = [it for it in call.params.values() if isinstance(it, str)] if call else []
    for mark in item.iter_markers(MARK):
        if "of" not in mark.kwargs or not {*mark.kwargs["of"]}.isdisjoint(values):
            return str(mark.kwargs["reason"])
    return None


def format_left_out(counts: Counter[str]) -> str:
    """One line of all reasons, with the number of their tests, the most first."""
    reasons = "; ".join(f"{count} {reason}" for reason, count in counts.most_common())
    return f"{counts.total()} tests run in `make test-all` only: {reasons}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption(ALL) or not items:
        return
    reasons = {item: reason for item in items if (reason := reason_of(item)) is not None}
    if config.getoption(REST, default=False):
        config.hook.pytest_deselected(items=[item for item in items if item not in reasons])
        items[:] = [*reasons]
        return
    _left_out.clear()
    _left_out.update(reasons.values())
    config.hook.pytest_deselected(items=[*reasons])
    items[:] = [item for item in items if item not in reasons]


def pytest_collection_finish(session: pytest.Session) -> None:
    sent: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if sent is not None:
        sent[_SENT] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the counts of any one worker: all leave the same tests out."""
    if counts := getattr(node, "workeroutput", {}).get(_SENT):
        _left_out.clear()
        _left_out.update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.write_line(format_left_out(_left_out))
