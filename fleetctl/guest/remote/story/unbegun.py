"""Ends a run that no process will begin any more. Called by `attach`."""

from __future__ import annotations

import os

from fleetctl.guest.journal.record import Journal, write_unbegun
from fleetctl.guest.remote import place


def write_unbegun_run(run: str) -> None:
    """Makes the run's journal, so that no process can begin the run any more."""
    runs = os.open(place.RUNS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        journal = Journal(runs, run)
    except FileExistsError:
        return
    finally:
        os.close(runs)
    write_unbegun(journal, '"keeper":"","note":""', "its sandbox takes no more work")
