"""Maps words to numbers inside the database files. Shared by the writer and the reader; imports no
module.
"""

from __future__ import annotations

APPLICATION_ID = 0x666C6374  # "flct", in the header of both files
SCHEMA_VERSION = 11  # user_version of both files; rises with every change of a schema file

# A run's state is stored as its position here. Append only: the order is on users' disks.
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
# states up to this one hold a sandbox; the condition of index runs_held is equal
LAST_LIVE_STATE = 2
