"""Reads the .sql files beside this one, and maps words to numbers inside the database files. Shared
by the writer and the reader.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_NAME = "-- name: "

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


def read_script(file: str) -> str:
    """Returns the whole text of a schema file."""
    return (Path(__file__).parent / "sql" / file).read_text(encoding="utf-8")


@cache
def read_queries(file: str) -> dict[str, str]:
    """Returns the queries of a file by name; each begins at a line `-- name: <name>` and loses its
    comments.
    """
    queries: dict[str, str] = {}
    for block in read_script(file).split(_NAME)[1:]:
        name, _, body = block.partition("\n")
        lines = (line for line in body.splitlines() if not line.startswith("--"))
        queries[name.strip()] = "\n".join(lines).strip().removesuffix(";")
    return queries


@cache
def read_statements(file: str) -> tuple[str, ...]:
    """Returns the statements of a schema file, one by one, so that they fit into one
    transaction.
    """
    lines = (line.partition("--")[0].rstrip() for line in read_script(file).splitlines())
    return tuple(part.strip() for part in "\n".join(lines).split(";") if part.strip())
