"""One job whose attempts have prices, of which every kind of sum can be told apart."""

from __future__ import annotations

from pathlib import Path

from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.sqlite.store import open_store
from tests.golden.cli.cli_world import NOW_S, FixedClock

# index, attempt, state, USD a second, seconds it ran; None = still runs, or has no price.
RUNS = (
    (0, 1, RunState.FAILED, 0.001, 100.0),
    (0, 2, RunState.SUCCEEDED, 0.002, 100.0),
    (1, 1, RunState.SUCCEEDED, None, 50.0),
    (2, 1, RunState.RUNNING, 0.001, None),
    (3, 1, RunState.STARTING, 0.001, None),
)
LIVE_FOR_S = 50.0


def build_costs(home: Path, labels: dict[str, str] | None = None) -> None:
    store = open_store(home, FixedClock())
    with store.transaction():
        row = Resource("u", "BatchJob", "x", 1, 0, "{}", "", labels or {}, {}, NOW_S - 1000)
        store.resources.put(row, expected_version=None)
        for index, attempt, state, usd_per_s, took_s in RUNS:
            name = f"u-{index}-{attempt}"
            began_s = NOW_S - (LIVE_FOR_S if took_s is None else 500.0)
            run = Run(
                name=name, uid="u", index=index, attempt=attempt, state=RunState.STARTING,
                provider="modal", sandbox=name, template_hash="t", params="{}", params_hash="p",
                created_at_s=began_s, usd_per_s=usd_per_s,
            )  # fmt: skip
            store.runs.begin([run])
            if state is RunState.STARTING:
                continue
            fields = {field: getattr(run, field) for field in Run.__slots__}
            ended = None if took_s is None else began_s + took_s
            changed = {"state": state, "started_at_s": began_s, "ended_at_s": ended}
            assert store.runs.advance(Run(**{**fields, **changed}))
    store.close()
