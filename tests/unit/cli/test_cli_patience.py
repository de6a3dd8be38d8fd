"""When `apply --wait` gives up, and when it waits on."""

from __future__ import annotations

import json

from fleetctl.cli.follow.progress import (
    ACCOUNT_S,
    STUCK_S,
    StuckPolicy,
    describe_stuck,
    describe_way_out,
)
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.views.objects import View, build_view


class Clock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s


def seen(lack: str = "", *, generation: int = 1) -> View:
    fields = {"lack": lack, "reason": "SecretMissing", "message": "no secret", "hint": "apply it"}
    status = {"observedGeneration": 1, "phase": "Pending", **({"stuck": fields} if lack else {})}
    row = ResourceRow(
        uid="u", kind="BatchJob", name="job", generation=generation, version=1, created_at_s=0.0,
        deleted_at_s=None, labels={}, annotations={}, status=json.dumps(status),
    )  # fmt: skip
    return build_view(row, lambda: "{}")


def ends_after_s(patience: StuckPolicy, clock: Clock, *views: View) -> float | None:
    begun_s = clock.time_s
    while clock.time_s < begun_s + 2 * ACCOUNT_S:
        if patience.ended(views):
            return clock.time_s - begun_s
        clock.time_s += 1.0
    return None


def test_what_nothing_brings_is_waited_for_only_a_moment() -> None:
    clock = Clock()
    assert ends_after_s(StuckPolicy(clock=clock), clock, seen("missing"), seen("money")) == STUCK_S


def test_a_word_of_the_service_on_the_account_is_waited_out() -> None:
    clock = Clock()
    assert ends_after_s(StuckPolicy(clock=clock), clock, seen("account")) == ACCOUNT_S


def test_what_gets_on_or_speaks_of_an_older_spec_is_waited_for() -> None:
    clock = Clock()
    for it in (seen(), seen("missing", generation=2)):
        assert ends_after_s(StuckPolicy(clock=clock), clock, seen("missing"), it) is None


def test_a_person_may_wait_on_all_the_same() -> None:
    clock = Clock()
    assert ends_after_s(StuckPolicy(["capacity"], clock), clock, seen("capacity")) is None
    assert ends_after_s(StuckPolicy(["capacity"], clock), clock, seen("missing")) == STUCK_S


def test_what_was_mended_meanwhile_begins_anew() -> None:
    clock = Clock()
    patience = StuckPolicy(clock=clock)
    assert not patience.ended([seen("missing")])
    clock.time_s += STUCK_S
    assert not patience.ended([seen()])
    assert not patience.ended([seen("missing")])


def test_the_error_says_what_is_lacking_and_both_ways_on() -> None:
    assert describe_stuck(seen("missing")) == (
        "batchjob/job cannot go on by itself: SecretMissing: no secret"
    )
    assert describe_way_out(seen("missing")) == "apply it; `--wait --allow-missing` waits on"
    assert describe_way_out(seen("money")) == "apply it"
