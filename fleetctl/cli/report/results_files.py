"""`fleetctl results --to DIR`: writes the result of each task to a file, and the outputs that are
kept of it to a directory beside that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.common.state_paths import find_state_dir
from fleetctl.tracking.written_files import note_written
from fleetctl.views.objects import View
from fleetctl.views.run_outputs import find_task_outputs, write_output
from fleetctl.views.store_reading import StoreReading


def write_files(
    rows: Iterable[Mapping[str, object]],
    directory: Path,
    seen: View,
    reading: StoreReading,
) -> tuple[int, int]:
    """Writes `INDEX.json` for every task with a result, and its outputs below `INDEX`; returns how
    many of both. Existing ones are replaced, each seen whole or not at all; other files are left
    alone.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    outputs: list[Path] = []
    for row in rows:
        outputs += _write_outputs(int(str(row["index"])), directory, seen, reading)
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
    note_written([*written, *outputs])
    return len(written), len(outputs)


def _write_outputs(
    index: int,
    directory: Path,
    seen: View,
    reading: StoreReading,
) -> Iterator[Path]:
    task = reading.task(seen, index)
    found = find_task_outputs(find_state_dir(), seen, task, reading) if task is not None else None
    if found is None:
        return
    for file in found.kept.files:
        place = directory / str(index) / file.path
        if not Path(os.path.realpath(place.parent)).is_relative_to(os.path.realpath(directory)):
            raise Refused(f"`{place.parent}` leads out of `{directory}`", hint="remove that link")
        write_output(found.kept, file, place)
        yield place
