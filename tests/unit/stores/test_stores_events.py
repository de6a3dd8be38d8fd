"""Events: repeats are counted, the newest are kept, and none outlives its object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common import state_paths as places
from fleetctl.controllers.model import Resource
from fleetctl.stores.base import EVENT_MESSAGE_CHARS_MAX, EVENTS_PER_OBJECT_MAX, EventRow
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.read.rows import EventLine
from fleetctl.stores.sqlite.store import SqliteStore, open_store


class FixedClock:
    def now_s(self) -> float:
        return 1_000.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[SqliteStore]:
    opened = open_store(home, FixedClock())
    add_jobs(opened)
    yield opened
    opened.close()


def add_jobs(store: SqliteStore) -> None:
    with store.transaction():
        for uid in ("u1", "u2"):
            job = Resource(uid, "BatchJob", uid, 1, 0, "{}", "{}", {}, {}, 5.0)
            store.resources.put(job, expected_version=None)


def event(at_s: float, message: str = "no room", uid: str = "u1", **changes: object) -> EventRow:
    return EventRow(uid, at_s, "Warning", "Waiting", message, **changes)  # type: ignore[arg-type]


def record(store: SqliteStore, *events: EventRow) -> None:
    with store.transaction():
        store.events.record(events)


def forget(store: SqliteStore, *, until_s: float) -> None:
    more = True
    while more:
        with store.transaction():
            more = store.gone.forget(until_s=until_s, bytes_max=1 << 30, objects_max=1000)


def shown(home: Path, uid: str | None = None) -> list[EventLine]:
    with Reader(home) as reader:
        return reader.events(uid)


def test_equal_events_within_a_minute_are_counted(home: Path, store: SqliteStore) -> None:
    record(store, event(0.0), event(30.0))
    record(store, event(80.0, count=3))
    [line] = shown(home, "u1")
    assert (line.count, line.at_s, line.reason, line.message) == (5, 80.0, "Waiting", "no room")


def test_equal_events_further_apart_or_of_other_objects_are_repeated(
    home: Path, store: SqliteStore
) -> None:
    record(store, event(0.0), event(61.0), event(61.0, uid="u2"), event(61.0, "no gpu"))
    assert [(e.message, e.count) for e in shown(home, "u1")] == [
        ("no room", 1), ("no room", 1), ("no gpu", 1),
    ]  # fmt: skip
    assert [e.count for e in shown(home, "u2")] == [1]


def test_the_newest_events_of_an_object_are_kept_and_others_are_not_touched(
    home: Path, store: SqliteStore
) -> None:
    record(store, event(0.0, uid="u2"))
    total = EVENTS_PER_OBJECT_MAX + 250
    record(store, *(event(float(n), f"message {n}") for n in range(total)))
    kept = [e.message for e in shown(home, "u1")]
    assert kept == [f"message {n}" for n in range(250, total)]
    assert len(shown(home, "u2")) == 1


def test_an_event_that_repeats_is_not_pushed_out_by_others(home: Path, store: SqliteStore) -> None:
    for n in range(EVENTS_PER_OBJECT_MAX + 50):
        record(store, event(float(n), "again"), event(float(n), f"message {n}"))
    kept = {e.message: e.count for e in shown(home, "u1")}
    assert kept["again"] == EVENTS_PER_OBJECT_MAX + 50


def test_a_long_message_is_cut(home: Path, store: SqliteStore) -> None:
    record(store, event(0.0, "x" * 100_000))
    [line] = shown(home, "u1")
    assert len(line.message) == EVENT_MESSAGE_CHARS_MAX and line.message.endswith("…")


def test_events_of_a_block_that_failed_are_not_told(home: Path, store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.events.record([event(0.0)])
        raise ZeroDivisionError
    record(store, event(0.0, "later"))
    assert [e.message for e in shown(home)] == ["later"]


def test_events_stay_when_their_object_goes_and_go_when_it_is_forgotten(
    home: Path, store: SqliteStore
) -> None:
    record(store, event(0.0), event(0.0, uid="u2"))
    with store.transaction():
        store.events.record([event(1.0, "before the end")])
        store.resources.delete("u1")
    assert [e.uid for e in shown(home)] == ["u1", "u2", "u1"]
    forget(store, until_s=FixedClock().now_s())
    assert [e.uid for e in shown(home)] == ["u2"]


def test_events_of_what_is_gone_are_no_orphans_of_a_crash(home: Path, store: SqliteStore) -> None:
    record(store, event(0.0))
    with store.transaction():
        store.resources.delete("u1")
    store.close()
    reopened = open_store(home, FixedClock())
    assert [e.uid for e in shown(home)] == ["u1"]
    with reopened.transaction():
        again = Resource("u1", "BatchJob", "job", 1, 0, "{}", "", {}, {}, 1.0)
        reopened.resources.put(again, expected_version=None)
        reopened.events.record([event(2.0, "anew")])
    with Reader(home) as reader:
        assert [e.message for e in reader.events("u1")] == ["anew"]
    reopened.close()


def test_events_that_a_crash_left_without_an_object_are_swept_at_the_next_start(
    home: Path, store: SqliteStore
) -> None:
    record(store, event(0.0), event(0.0, uid="gone"), event(1.0, "b", uid="gone"))
    store.close()
    reopened = open_store(home, FixedClock())
    assert [e.uid for e in shown(home)] == ["u1"]
    reopened.close()


def test_without_its_history_a_store_opens_and_begins_a_new_one(
    home: Path, store: SqliteStore
) -> None:
    record(store, event(0.0))
    store.close()
    for path in (home / places.STORE).glob("events.db*"):
        path.unlink()
    reopened = open_store(home, FixedClock())
    record(reopened, event(9.0, "new"))
    assert [e.message for e in shown(home)] == ["new"]
    reopened.close()
