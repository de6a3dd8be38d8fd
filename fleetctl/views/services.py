"""The services beside an object's work: their names, as its spec has them, and how those of live
attempts stand, as their journals on this machine say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.views.objects import View, mapping

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import RunRow

# More journals than this are not read for a screen: the names have to do.
JOURNALS_READ_MAX = 16


def service_names(seen: View) -> list[str]:
    """In their order; of a training, those of its stages too."""
    spec = seen.spec()
    stages = spec.get("stages")
    parts = [spec.get("template"), *(stages if isinstance(stages, list) else ())]
    return list(dict.fromkeys(name for part in parts for name in _named(mapping(part))))


def service_lines(state_dir: Path, seen: View, live: list[RunRow]) -> list[str]:
    """`ollama: 2 Ready, 1 Starting` of each service; without live attempts, or with many, its name
    alone.
    """
    names = service_names(seen)
    if not names or not live or len(live) > JOURNALS_READ_MAX:
        return names
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for name, state in _states(state_dir, seen.resource.uid, live):
        if name in found:
            found[name][state] += 1
    return [_line(name, states) for name, states in found.items()]


def _line(name: str, states: Counter[str]) -> str:
    shown = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{name}: {shown}" if shown else name


def _states(state_dir: Path, uid: str, live: Iterable[RunRow]) -> Iterator[tuple[str, str]]:
    from fleetctl.providers.rundir.reading import Runs

    for run in live:
        journal = Runs(state_dir, run.provider).read(uid, run.name)
        if journal is not None:
            yield from journal.services.items()


def _named(part: object) -> Iterator[str]:
    services = mapping(part).get("services")
    for service in services if isinstance(services, list) else ():
        name = mapping(service).get("name")
        if isinstance(name, str):
            yield name
