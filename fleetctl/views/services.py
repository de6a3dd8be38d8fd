"""The services beside an object's work: their names, from its spec, and their states in live
attempts, from journals on this machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.views.objects import View, as_mapping

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import RunRow

# A screen does not read more journals: the names have to do.
JOURNALS_READ_MAX = 16


def service_names(seen: View) -> list[str]:
    """Returns names in their order; of a training, those of its stages too."""
    spec = seen.spec()
    stages = spec.get("stages")
    parts = [spec.get("template"), *(stages if isinstance(stages, list) else ())]
    return list(dict.fromkeys(name for part in parts for name in _list_named(as_mapping(part))))


def service_lines(
    state_dir: Path,
    seen: View,
    live: list[RunRow],
) -> list[str]:
    """Returns `ollama: 2 Ready, 1 Starting` for each service; without live attempts, or with many,
    its name alone.
    """
    names = service_names(seen)
    if not names or not live or len(live) > JOURNALS_READ_MAX:
        return names
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for name, state in _read_states(state_dir, seen.resource.uid, live):
        if name in found:
            found[name][state] += 1
    return [_format_line(name, states) for name, states in found.items()]


def _format_line(name: str, states: Counter[str]) -> str:
    shown = ", ".join(f"{count} {state}" for state, count in states.items())
    if shown:
        return f"{name}: {shown}"
    return name


def _read_states(
    state_dir: Path,
    uid: str,
    live: Iterable[RunRow],
) -> Iterator[tuple[str, str]]:
    from fleetctl.providers.rundir.journal_runs import JournalRuns

    for run in live:
        journal = JournalRuns(state_dir, run.provider).read(uid, run.name)
        if journal is not None:
            yield from journal.services.items()


def _list_named(part: object) -> Iterator[str]:
    services = as_mapping(part).get("services")
    for service in services if isinstance(services, list) else ():
        name = as_mapping(service).get("name")
        if isinstance(name, str):
            yield name
