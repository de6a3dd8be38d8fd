"""Separates a provider's limit of a sandbox's age from a task's time limit. A provider ends every
sandbox at some age; the guest ends a run before that, as if at a time limit of its own.

Called by remote_runs.py before it reports an end.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fleetctl.controllers.history.retries.retry_limits import MAKE_IT_FIT, MAX_LIFETIME
from fleetctl.controllers.model import Ended, Observation
from fleetctl.providers.paths import journal_path

TASK_S_MIN = 1.0
END_S = 60.0  # after its grace, to commit, to report and to be released
# In the identity that a run's first journal line carries.
MARK = "ends_with_sandbox"
_LINE_BYTES_MAX = 4096


def work_s(
    left_s: float,
    *,
    leave_s: float,
    grace_s: float,
) -> float:
    """Returns how long a task may work in a sandbox that lives for `left_s` more: it is asked to
    end, has its whole grace, and its story is sent before that. leave_s: seconds that are kept for
    the end anyway.
    """
    return max(TASK_S_MIN, left_s - max(leave_s, grace_s + min(END_S, leave_s)))


def mark_expired(seen: Observation, runs: Path) -> Observation:
    """A run that its sandbox's age ended is not a failure of its own: another attempt follows."""
    if not isinstance(seen, Ended) or seen.ok or seen.reason != "Timeout":
        return seen
    if not _has_mark(journal_path(runs, seen.run)):
        return seen
    return replace(
        seen,
        infrastructure=True,
        reason=MAX_LIFETIME,
        message="its sandbox was as old as it may be",
        hint=MAKE_IT_FIT,
    )


def _has_mark(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(_LINE_BYTES_MAX)
    try:
        return json.loads(first).get(MARK) is True
    except ValueError:
        return False
