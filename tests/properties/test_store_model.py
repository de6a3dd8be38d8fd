"""Any sequence of store calls, crashes included, ends as the same sequence on a few dicts does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fleetctl.common.errors import Conflict, NotFound
from fleetctl.controllers.model import LIVE_STATES, Metric, Resource, Run, RunState
from fleetctl.stores.sqlite.store import MemoryDatabase, open_memory_store

UIDS = st.sampled_from(["u1", "u2", "u3"])
NAMES = st.sampled_from(["a", "b"])
TEXTS = st.text(max_size=8)
LABELS = st.dictionaries(st.sampled_from(["team", "tier"]), TEXTS, max_size=2)
TIMES = st.none() | st.floats(0, 1e12)
FLOATS = st.floats(allow_nan=False)
STATES = st.sampled_from(list(RunState))
METRICS = st.lists(
    st.builds(Metric, st.integers(0, 5), st.integers(0, 9), TEXTS, FLOATS, st.floats(0, 1e12)),
    max_size=3,
)


class FixedClock:
    def now_s(self) -> float:
        return 0.0


class Crash(BaseException):
    pass


class Model:
    """The store as dicts; every operation either happens as a whole or raises before any change."""

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.runs: dict[str, Run] = {}
        self.results: dict[str, str] = {}
        self.metrics: dict[str, dict[int, Metric]] = {}

    def copy(self) -> Model:
        twin = Model()
        twin.resources = dict(self.resources)
        twin.runs = dict(self.runs)
        twin.results = dict(self.results)
        twin.metrics = {name: dict(kept) for name, kept in self.metrics.items()}
        return twin

    def create(self, new: Resource) -> None:
        living = {r.name for r in self.resources.values() if r.deleted_at_s is None}
        if new.uid in self.resources or (new.deleted_at_s is None and new.name in living):
            raise Conflict("taken")
        self.resources[new.uid] = replace(new, version=1)

    def replace(self, new: Resource, version: int) -> None:
        stored = self.resources.get(new.uid)
        if stored is None or stored.version != version:
            raise Conflict("changed")
        deleted = new.deleted_at_s if stored.deleted_at_s is None else stored.deleted_at_s
        kept = replace(new, name=stored.name, status=stored.status, version=version + 1)
        self.resources[new.uid] = replace(kept, deleted_at_s=deleted)

    def put_status(self, uid: str, status: str, version: int) -> int | None:
        stored = self.resources.get(uid)
        if stored is None or stored.version != version:
            return None
        self.resources[uid] = replace(stored, status=status, version=version + 1)
        return version + 1

    def delete(self, uid: str) -> None:
        self.resources.pop(uid, None)
        for name in [name for name, run in self.runs.items() if run.uid == uid]:
            del self.runs[name]
            self.results.pop(name, None)
            self.metrics.pop(name, None)

    def begin(self, runs: list[Run]) -> None:
        fresh = {run.name: run for run in runs}
        if any(run.uid not in self.resources for run in runs):
            raise NotFound("no resource")
        if len(fresh) < len(runs) or fresh.keys() & self.runs.keys():
            raise Conflict("exists")
        self.runs |= fresh

    def advance(self, run: Run, states: frozenset[RunState], result: str | None) -> bool:
        stored = self.runs.get(run.name)
        if stored is None or stored.state not in states:
            return False
        self.runs[run.name] = run
        if result is not None:
            self.results[run.name] = result
        return True

    def keep_metrics(self, run: str, metrics: list[Metric]) -> None:
        for metric in metrics:
            self.metrics.setdefault(run, {}).setdefault(metric.seq, metric)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.database = MemoryDatabase()
        self.changes = 0
        self.crash_at: str | None = None
        self.reopen()

    def reopen(self) -> None:
        self.store = open_memory_store(
            FixedClock(),
            self.database,
            before_commit=lambda: self.hook("before"),
            after_commit=lambda: self.hook("after"),
        )

    def hook(self, where: str) -> None:
        if self.crash_at == where:
            self.crash_at = None
            raise Crash

    def both(self, on_store, on_model) -> None:  # type: ignore[no-untyped-def]
        """Run the same thing in a transaction and on a copy of the model; keep or drop together."""
        crash_at, twin = self.crash_at, self.model.copy()
        expected: object
        try:
            expected = on_model(twin)
        except (Conflict, NotFound) as error:
            expected = type(error)
        got: object
        try:
            with self.store.transaction():
                got = on_store(self.store)
        except (Conflict, NotFound) as error:
            got = type(error)
        except Crash:
            self.reopen()
            if crash_at == "after":
                self.model = twin
            return
        assert got == expected
        if not isinstance(expected, type):
            self.model = twin

    @rule(where=st.sampled_from(["before", "after"]))
    def the_next_commit_crashes(self, where: str) -> None:
        self.crash_at = where

    @rule()
    def the_writer_is_killed_and_starts_again(self) -> None:
        self.reopen()

    @rule(uid=UIDS, name=NAMES, spec=TEXTS, labels=LABELS, deleted_at_s=TIMES)
    def create(
        self, uid: str, name: str, spec: str, labels: dict[str, str], deleted_at_s: float | None
    ) -> None:
        new = Resource(uid, "BatchJob", name, 1, 0, spec, "{}", labels, {}, 1.0, deleted_at_s)
        self.both(
            lambda store: store.resources.put(new, expected_version=None) and None,
            lambda model: model.create(new),
        )

    @rule(uid=UIDS, version=st.integers(1, 4), spec=TEXTS, labels=LABELS, deleted_at_s=TIMES)
    def replace(
        self, uid: str, version: int, spec: str, labels: dict[str, str], deleted_at_s: float | None
    ) -> None:
        name = self.model.resources[uid].name if uid in self.model.resources else "a"
        new = Resource(uid, "BatchJob", name, 2, 0, spec, "no", labels, {}, 1.0, deleted_at_s)
        self.both(
            lambda store: store.resources.put(new, expected_version=version) and None,
            lambda model: model.replace(new, version),
        )

    @rule(uid=UIDS, status=TEXTS, version=st.integers(1, 4))
    def put_status(self, uid: str, status: str, version: int) -> None:
        self.both(
            lambda store: store.resources.put_status(uid, status, expected_version=version),
            lambda model: model.put_status(uid, status, version),
        )

    @rule(uid=UIDS)
    def delete(self, uid: str) -> None:
        self.both(lambda store: store.resources.delete(uid), lambda model: model.delete(uid))

    @rule(
        uid=UIDS, units=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2)), max_size=3),
        state=STATES, params=TEXTS,
    )  # fmt: skip
    def begin(self, uid: str, units: list[tuple[int, int]], state: RunState, params: str) -> None:
        runs = [made_run(uid, index, attempt, state, params) for index, attempt in units]
        self.both(lambda store: store.runs.begin(runs), lambda model: model.begin(runs))

    @rule(
        uid=UIDS, unit=st.tuples(st.integers(0, 2), st.integers(1, 2)), state=STATES,
        states=st.just(LIVE_STATES) | st.frozensets(STATES), result=st.none() | TEXTS,
        metrics=METRICS, message=TEXTS, code=st.none() | st.integers(-64, 255), end=TIMES,
    )  # fmt: skip
    def advance(  # type: ignore[no-untyped-def]
        self, uid, unit, state, states, result, metrics, message, code, end
    ) -> None:
        run = made_run(uid, *unit, state, "{}")
        run = replace(run, message=message, exit_code=code, ended_at_s=end, sandbox=message)

        def on_model(model: Model) -> bool:
            done = model.advance(run, states, result)
            if done:
                model.keep_metrics(run.name, metrics)
            return done

        self.both(
            lambda store: store.runs.advance(
                run, from_states=states, result=result, metrics=metrics
            ),
            on_model,
        )

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        store, model = self.store, self.model
        assert {r.uid: r for r in store.resources.list()} == model.resources
        for uid in ("u1", "u2", "u3"):
            expected = sorted(
                (run for run in model.runs.values() if run.uid == uid),
                key=lambda run: (run.index, run.attempt),
            )
            assert list(store.runs.of(uid)) == [
                (run, model.results.get(run.name)) for run in expected
            ]
            for run in expected:
                kept = model.metrics.get(run.name, {})
                assert list(store.runs.metrics_of(run.name)) == [kept[seq] for seq in sorted(kept)]

    @invariant()
    def a_living_name_is_found_and_no_other(self) -> None:
        for name in ("a", "b"):
            found = self.store.resources.get("BatchJob", name)
            living = [
                r
                for r in self.model.resources.values()
                if r.name == name and r.deleted_at_s is None
            ]
            assert [found] == (living or [None])

    @invariant()
    def the_change_counter_never_falls(self) -> None:
        changes, _ = self.store.resources.watch(0)
        assert changes >= self.changes
        self.changes = changes


def made_run(uid: str, index: int, attempt: int, state: RunState, params: str) -> Run:
    name = f"fl-{uid}-{index}-{attempt}"
    return Run(name, uid, index, attempt, state, "local", name, "hash", params, "p", 1.0)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
