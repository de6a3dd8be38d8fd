"""What is worth a notice, what it says, how it is signed, and when it is tried again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.controllers.kinds.notices import (
    BURST,
    EVERY_S,
    RETRY_MAX_S,
    Notice,
    NoticeEvent,
    SinkPace,
    body_of,
    find_notice_events,
    id_of,
    key_bytes,
    message_of,
    retry_after_s,
    sign_message,
    sink_of,
)
from fleetctl.controllers.model import Resource

JOB = Resource("u1", "BatchJob", "a", 2, 1, "{}", "{}", {}, {}, 0.0, None, "team")
ENDED = {"phase": "Failed", "completionTime": 7.0, "contents": ["x"], "reason": "FailedIndexes"}


def told(kind: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [it.event for it in find_notice_events(kind, before, after, runs=kind == "BatchJob")]


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ({}, {"phase": "Pending"}, []),
        ({"phase": "Running"}, ENDED, ["Failed"]),
        ({}, {**ENDED, "phase": "Succeeded"}, ["Succeeded"]),
        ({"phase": "Running"}, {**ENDED, "phase": "Skipped"}, ["Skipped"]),
        # Written again, such as after a change of `notify`: nothing ran.
        (ENDED, {**ENDED, "completionTime": 9.0}, []),
        (ENDED, {**ENDED, "contents": ["y"], "completionTime": 9.0}, ["Failed"]),
        (
            {"budget": {"warned": 0, "maxCost": 5}},
            {"budget": {"warned": 80, "maxCost": 5}},
            ["BudgetLow"],
        ),
        ({"budget": {"warned": 80, "maxCost": 5}}, {"budget": {"warned": 80, "maxCost": 5}}, []),
        ({"budget": {"warned": 80, "maxCost": 5}}, {"budget": {"warned": 0, "maxCost": 9}}, []),
    ],
)
def test_work_tells_its_end_and_each_level_of_its_budget_once(
    before: dict[str, Any], after: dict[str, Any], events: list[str]
) -> None:
    assert told("BatchJob", before, after) == events


def test_a_budget_tells_each_level_once_a_period() -> None:
    low = {"warned": 80, "since": 0.0, "maxCost": 5.0}
    assert told("Budget", {**low, "warned": 0}, low) == ["BudgetLow"]
    assert told("Budget", low, {**low, "left": 0.1}) == []
    assert told("Budget", low, {**low, "warned": 100}) == ["BudgetLow"]
    assert told("Budget", low, {**low, "since": 9.0}) == ["BudgetLow"]
    assert told("Volume", low, {**low, "warned": 100}) == []


def test_a_source_tells_each_revision_that_fails_once_and_no_gap_of_a_network() -> None:
    failed = {"reason": "RevisionRefused", "attemptedRevision": "a1", "lastError": "x.yaml:3"}
    away = {**failed, "reason": "SourceUnreachable", "lastError": "no answer"}
    assert told("Source", {}, failed) == ["SourceFailed"]
    assert told("Source", failed, {**failed, "message": "again"}) == []
    assert told("Source", failed, {**failed, "attemptedRevision": "b2"}) == ["SourceFailed"]
    assert told("Source", {}, away) == []
    assert told("Source", away, failed) == ["SourceFailed"]
    assert told("Source", {}, {**away, "reason": "AccessDenied"}) == ["SourceFailed"]
    assert told("Source", failed, {"reason": "Ready", "lastError": ""}) == []


def test_an_id_is_of_what_happened_and_nothing_else() -> None:
    what = NoticeEvent("Failed", "7.0")
    one = id_of("store", JOB, what)
    assert one == id_of("store", JOB, NoticeEvent("Failed", "7.0"))
    others = {
        id_of("other", JOB, what),
        id_of("store", JOB, NoticeEvent("Failed", "8.0")),
        id_of("store", JOB, NoticeEvent("Skipped", "7.0")),
    }
    assert one not in others and len(others) == 3


def notice(number: int) -> Notice:
    body = body_of(f"msg_{number}", JOB, "Failed", {**ENDED, "message": "canary"}, 1.5 + number)
    return Notice(f"msg_{number}", "{}", "u1", "batchjob/a", "team", "Failed", body, 1.0, 2.0)


def test_a_body_has_names_reasons_counts_and_money_and_no_sentence() -> None:
    status = {
        **ENDED,
        "message": "ValueError: canary",
        "hint": "canary",
        "warning": "canary",
        "total": 3,
        "failed": 1,
        "cost": {"actual": 1.25, "unpricedRuns": 1},
        "lastFailure": {"index": 2, "attempt": 1, "reason": "ExitCode:3", "message": "canary"},
    }
    body = json.loads(body_of("msg_1", JOB, "Failed", status, 1.5))
    assert body == {
        "id": "msg_1", "event": "Failed", "at": "1970-01-01T00:00:01.500Z", "kind": "BatchJob",
        "name": "a", "namespace": "team", "uid": "u1", "generation": 2, "phase": "Failed",
        "reason": "FailedIndexes", "counts": {"total": 3, "failed": 1},
        "costUsd": {"actual": 1.25},
        "lastFailure": {"index": 2, "attempt": 1, "reason": "ExitCode:3"},
    }  # fmt: skip


def test_many_notices_go_as_one_message_that_tells_every_id() -> None:
    whole = message_of([notice(number) for number in range(37)])
    sent = json.loads(whole.json)
    assert sent["type"] == "fleetctl.Many"
    assert (sent["data"]["count"], sent["data"]["more"]) == (37, 17)
    assert sent["data"]["ids"] == [f"msg_{number}" for number in range(37)]
    assert len(sent["data"]["notices"]) == 20
    assert whole.text.endswith("and 17 more")
    assert whole.title == "batchjob/a in team has failed, and 36 more notices"
    assert whole.id == message_of([notice(number) for number in range(37)]).id
    assert whole.id != message_of([notice(number) for number in range(36)]).id


def test_a_signature_is_that_of_standard_webhooks() -> None:
    # By the library `standardwebhooks` of the specification's authors.
    key = key_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = sign_message(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("text", ["secret", "whsec_not base64!", "whsec_c2hvcnQ="])
def test_a_key_that_is_none_is_refused_without_being_told(text: str) -> None:
    with pytest.raises(ValueError, match="it must") as refused:
        key_bytes(text)
    assert text not in str(refused.value)


def test_tries_come_ever_later_and_as_late_as_the_sink_asks() -> None:
    waits = [retry_after_s(tries, asked_s=0.0, chance=0.5) for tries in range(1, 12)]
    assert waits[:4] == [5.0, 20.0, 80.0, 320.0]
    assert waits[-1] == RETRY_MAX_S
    assert retry_after_s(1, asked_s=100.0, chance=0.0) == 100.0
    assert retry_after_s(1, asked_s=1e9, chance=0.0) == RETRY_MAX_S


def test_a_sink_gets_a_few_at_once_and_then_one_at_a_time() -> None:
    pace, now_s = SinkPace(0.0), 0.0
    for _ in range(BURST):
        assert pace.room(now_s) >= 1
        pace.take()
    assert pace.room(now_s) == 0
    at_s = pace.ready_at_s(now_s)
    assert now_s + EVERY_S <= at_s < now_s + EVERY_S + 1
    assert pace.room(at_s) == 1
    assert pace.room(at_s - 5.0) <= 1, "a clock that is set back gives nothing"


def test_where_a_notice_goes_is_told_without_its_path() -> None:
    where = {
        '{"namespace":"n","webhook":{"url":"https://x.org/t0ken?k=1"}}': "webhook https://x.org",
        '{"namespace":"n","webhook":{"secret":"s"}}': "webhook of secret/s",
        '{"namespace":"n","slack":{"secret":"s"}}': "slack of secret/s",
        '{"email":{"secret":"s","to":["a@x.org"]},"namespace":"n"}': "email to a@x.org",
        '{"command":["say","canary"],"namespace":"n"}': "command say",
    }
    assert {text: sink_of(text).title for text in where} == where
