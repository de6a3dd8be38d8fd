"""`fleetctl results --to DIR`: what each task submitted, as a file of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleetctl.tracking.written import note_written


def write_files(rows: Iterable[Mapping[str, object]], directory: Path) -> int:
    """`INDEX.json` for every task with a result; how many. Files that are there are written over,
    each seen whole or not at all; others are left alone.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for row in rows:
        if row["result"] is None:
            continue
        place = directory / f"{row['index']}.json"
        temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            temporary.write_text(json.dumps(row["result"], indent=2) + "\n", encoding="utf-8")
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
        written.append(place)
    note_written(written)
    return len(written)
