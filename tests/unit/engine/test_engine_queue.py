"""The queue of keys."""

from __future__ import annotations

from fleetctl.engine.shared.due_queue import DueQueue


def test_repeats_collapse() -> None:
    queue = DueQueue()
    for _ in range(3):
        queue.add("a")
    assert queue.take(0.0, keys_max=9) == ["a"]
    assert queue.take(0.0, keys_max=9) == []


def test_keys_that_are_due_come_first_come_first_served() -> None:
    queue = DueQueue()
    for key in ("c", "a", "b", "a"):
        queue.add(key)
    assert queue.take(0.0, keys_max=9) == ["c", "a", "b"]


def test_a_key_waits_for_its_time() -> None:
    queue = DueQueue()
    queue.add("a", 10.0)
    assert queue.take(9.9, keys_max=9) == []
    assert queue.next_due_at_s() == 10.0
    assert queue.take(10.0, keys_max=9) == ["a"]
    assert queue.next_due_at_s() is None


def test_the_earliest_time_of_a_key_counts() -> None:
    queue = DueQueue()
    queue.add("a", 10.0)
    queue.add("a", 5.0)
    queue.add("a", 7.0)
    assert len(queue) == 1
    assert queue.take(5.0, keys_max=9) == ["a"]
    assert queue.take(100.0, keys_max=9) == []


def test_a_key_that_is_due_now_is_not_put_off() -> None:
    queue = DueQueue()
    queue.add("a")
    queue.add("a", 50.0)
    assert queue.next_due_at_s() == 0.0
    assert queue.take(0.0, keys_max=9) == ["a"]
    assert len(queue) == 0


def test_a_discarded_key_is_gone_at_any_time() -> None:
    queue = DueQueue()
    queue.add("a")
    queue.add("b", 10.0)
    queue.discard("a")
    queue.discard("b")
    assert queue.take(100.0, keys_max=9) == []
    assert queue.next_due_at_s() is None


def test_no_more_than_asked_for_are_taken() -> None:
    queue = DueQueue()
    for key in "abc":
        queue.add(key)
    assert queue.take(0.0, keys_max=2) == ["a", "b"]
    assert queue.take(0.0, keys_max=2) == ["c"]


def test_keys_that_are_always_busy_cannot_keep_a_timed_one_from_its_turn() -> None:
    queue = DueQueue()
    queue.add("timed", 1.0)
    busy = [f"busy-{number}" for number in range(10)]
    for key in busy:
        queue.add(key)
    taken: list[str] = []
    for _ in range(10):
        turn = queue.take(2.0, keys_max=4)
        taken += turn
        for key in turn:
            if key != "timed":
                queue.add(key)
    assert "timed" in taken[:12]
