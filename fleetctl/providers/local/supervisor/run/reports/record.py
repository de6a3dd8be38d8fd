"""The supervisor's own part of journals and of the files in a work directory.

How a journal is written and a result is judged, it shares with the guests of other providers.
"""

from __future__ import annotations

import os
import time
from typing import Any, Optional

from fleetctl.guest.journal.record import Journal
from fleetctl.guest.journal.results import read_below, remove_result

TEMPORARY = "tmp"  # in there
PRIVATE = ".fleetctl"  # in the work directory: parameters, result, metrics, temporary files


def write_lost(journal: Journal) -> None:
    """Writes that the run began before the machine was started the last time; its end is
    unknown.
    """
    journal.begin(time.time(), '"keeper":"lost/","note":""')
    journal.close()


def end_node(
    journal: Journal,
    result: str,
    ended: dict[str, Any],
) -> None:
    """Writes the end of one node of several, for the user. Only the journal of node 0 counts, so a
    failed write loses no data.
    """
    try:
        journal.end(result, ended, sandbox_open=False)
    except OSError:
        journal.close()


def forget_result(work: str) -> None:
    """So that the next task of a sandbox does not hand in the last one's."""
    remove_result(os.path.join(work, PRIVATE, "result.json"))


def read_private(
    work: int,
    name: str,
    offset: int,
    limit: int,
) -> Optional[bytes]:
    """Reads as `read_below` does, a file of the task whose work directory is open as `work`."""
    return read_below(
        PRIVATE,
        name,
        offset,
        limit,
        dir_fd=work,
    )
