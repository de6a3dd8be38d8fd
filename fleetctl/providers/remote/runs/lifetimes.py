"""A provider ends every sandbox at some age. The guest ends a run before that, as if at a time
limit of its own; here the two are told apart.

Called by runs.py with what it is about to tell.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fleetctl.controllers.history.retries.retry import MAX_LIFETIME
from fleetctl.controllers.model import Ended, Observation
from fleetctl.providers.paths import journal_path

TASK_S_MIN = 1.0
END_S = 60.0  # after its grace, to commit, to tell and to be let go
# In the identity that a run's first journal line carries.
MARK = "ends_with_sandbox"
_LINE_BYTES_MAX = 4096


def work_s(left_s: float, *, leave_s: float, grace_s: float) -> float:
    """How long a task may work in a sandbox that lives for `left_s` more: it is asked to end, has
    its whole grace, and its story is told before that. leave_s: what is kept for the end anyway.
    """
    return max(TASK_S_MIN, left_s - max(leave_s, grace_s + min(END_S, leave_s)))


def told_apart(seen: Observation, runs: Path) -> Observation:
    """A run that its sandbox's age ended is not a failure of its own: another attempt follows."""
    if not isinstance(seen, Ended) or seen.ok or seen.reason != "Timeout":
        return seen
    if not _marked(journal_path(runs, seen.run)):
        return seen
    return replace(
        seen,
        infrastructure=True,
        reason=MAX_LIFETIME,
        message="its sandbox was as old as it may be; the next attempt goes on from a checkpoint,"
        " or begins anew",
    )


def _marked(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(_LINE_BYTES_MAX)
    try:
        return json.loads(first).get(MARK) is True
    except ValueError:
        return False
