"""A provider ends every sandbox at some age. The guest ends a run before that, as if at a time
limit of its own; here the two are told apart.

Called by runs.py with what it is about to tell.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fleetctl.controllers.history.retry import MAX_LIFETIME
from fleetctl.controllers.model import Ended, Observation
from fleetctl.providers.paths import journal_path

# In the identity that a run's first journal line carries.
MARK = "ends_with_sandbox"
_LINE_BYTES_MAX = 4096


def told_apart(seen: Observation, runs: Path) -> Observation:
    """A run that its sandbox's age ended is no failure of its own: another attempt follows."""
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
