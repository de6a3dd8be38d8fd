"""The graph of a fleet of 10,000 linked objects, as the server builds it for a page: the first
time, and again after a change of one of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource
from fleetctl.server.callers import Caller
from fleetctl.server.graph_data import NODES_DEFAULT, build_graph_reply
from fleetctl.stores.sqlite.store import open_store
from fleetctl.views.store_reading import open_reading
from tests.bench.harness import Figure, median

OBJECTS, CHAIN = 10_000, 10
ROUNDS = 5
STATUS = json.dumps({"phase": "Succeeded", "succeeded": 5, "total": 5, "observedGeneration": 1})
CALLER = Caller("ana", "admin", "*")


def figures() -> list[Figure]:
    with _store() as home, open_reading(home) as reading:
        spent = []
        for _ in range(ROUNDS + 1):
            begun_s = time.process_time()
            reply = build_graph_reply(reading, CALLER, None, NODES_DEFAULT)
            spent.append(time.process_time() - begun_s)
            _change_one(home)
    size = len(json.dumps(reply)) / 1000
    what = f"the graph of {OBJECTS:,} objects, of which {NODES_DEFAULT} are drawn: first; later"
    measured = f"{spent[0]:.2f}; {median(spent[1:]):.2f} CPU s; {size:.0f} kB"
    return [Figure(what, measured, "1 s", spent[0] <= 1)]


@contextmanager
def _store() -> Iterator[Path]:
    """Yields a home with chains of CHAIN jobs, all in one queue."""
    with TemporaryDirectory() as place:
        home = Path(place)
        store = open_store(home, SystemClock())
        with store.transaction():
            for number in range(OBJECTS):
                before = [{"job": f"job-{number - 1}"}] if number % CHAIN else []
                spec = {"queue": "gpu", "dependsOn": before, "template": {"python": "SUBMIT(x=1)"}}
                row = Resource(
                    uid=f"{number:016x}", kind="BatchJob", name=f"job-{number}", generation=1,
                    version=0, spec=json.dumps(spec), status="", labels={}, annotations={},
                    created_at_s=float(number),
                )  # fmt: skip
                stored = store.resources.put(row, expected_version=None)
                store.resources.put_status(row.uid, STATUS, expected_version=stored.version)
        store.close()
        yield home


def _change_one(home: Path) -> None:
    store = open_store(home, SystemClock())
    with store.transaction():
        row = store.resources.get("BatchJob", "job-0", "default")
        assert row is not None
        again = replace(row, generation=row.generation + 1)
        store.resources.put(again, expected_version=row.version)
    store.close()
