"""Numbers that stand for words inside the database files. Shared by the writer and the reader;
imports nothing.
"""

from __future__ import annotations

APPLICATION_ID = 0x666C6374  # "flct", in the header of both files
SCHEMA_VERSION = 10  # user_version of both files; rises with every change of a schema file

# A run's state is stored as its position here. Append only: the order is on people's disks.
STATES = (
    "Starting",
    "Running",
    "Stopping",
    "Succeeded",
    "Failed",
    "Lost",
    "Stopped",
    "Refused",
)
LAST_LIVE_STATE = 2  # states up to this one hold a sandbox; the index runs_held says the same
