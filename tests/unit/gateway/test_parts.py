"""The gateway's pure parts, with the time as an argument."""

import time
from pathlib import Path

from fleetctl.gateway.answer_log import (
    PUTS_PER_CLEAN,
    AnswerCache,
    cache_key,
    is_cacheable,
)
from fleetctl.gateway.endpoints import FairQueue
from fleetctl.gateway.rules.failures import RetryRule, read_retry, retry_after_s, wait_s
from fleetctl.gateway.rules.servers import (
    Burst,
    ServerPace,
    UpstreamServer,
    choose_server,
    read_server,
)
from fleetctl.gateway.rules.usage import (
    EndpointLimits,
    MinuteUsage,
    TokenCount,
    UsageRate,
    calls_of,
    count_lost,
    count_used,
    describe_task_excess,
    price_usd,
    worst_case,
)


def test_a_batch_is_refused_whole_before_its_first_call() -> None:
    limits = EndpointLimits(calls_per_task=10)
    assert describe_task_excess(limits, calls=8, tokens=0, asked=2) == ""
    sentence = describe_task_excess(limits, calls=8, tokens=0, asked=3)
    assert sentence == "callsPerTask: 8 used, 3 asked, 10 allowed"
    assert calls_of({"prompt": ["a", "b", "c"]}) == 3
    assert calls_of({"input": [1, 2, 3]}) == 1


def test_a_minute_over_its_limit_waits_for_its_oldest_request() -> None:
    minute, limits = MinuteUsage(), EndpointLimits(requests_per_minute=2)
    minute.add(0.0, requests=1, tokens=5)
    minute.add(10.0, requests=1, tokens=5)
    assert minute.wait_s(limits, 20.0) == 40.0
    assert minute.wait_s(limits, 60.0) == 0.0
    minute.add(60.0, requests=0, tokens=95)
    assert minute.wait_s(EndpointLimits(tokens_per_minute=100), 61.0) == 9.0


def test_a_server_is_as_wide_as_declared_or_as_is_found() -> None:
    def read(known: UpstreamServer | None = None, **row: object) -> UpstreamServer:
        return read_server({"api": "openai"}, {"url": "http://a/v1", **row}, known)

    declared, unknown, ollama = read(slots=40), read(), read(api="ollama")
    found = [(it.url, it.slots, it.pace.limit) for it in (declared, unknown, ollama)]
    assert found == [("http://a", 40, 40), ("http://a", 64, 8), ("http://a", 1, 1)]
    declared.in_flight = 3
    assert read(declared, slots=50) is declared
    assert (declared.pace.limit, declared.room, declared.in_flight) == (50, 47, 3)
    auto = read_server({"concurrency": "auto"}, {"url": "a", "slots": 20}, None)
    assert (auto.pace.limit, auto.pace.most) == (8, 20)


def test_one_object_with_many_requests_does_not_starve_another() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(3):
        queue.add("job", f"job-{n}")
    queue.add("trainer", "trainer-0")
    assert [queue.take() for _ in range(5)] == ["job-0", "trainer-0", "job-1", "job-2", None]


def test_a_task_at_its_own_limit_keeps_nobody_behind_it_waiting() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(3):
        queue.add("job", f"full-{n}", "run-1")
    queue.add("job", "free", "run-2")
    assert queue.take(lambda waiter: not waiter.startswith("full")) == "free"
    queue.discard("job", "full-0", "run-1")
    assert (queue.take(), len(queue)) == ("full-1", 1)


def test_the_server_with_the_fewest_in_flight_per_slot_is_chosen() -> None:
    large, small = (
        UpstreamServer("a", 8, in_flight=3),
        UpstreamServer("b", 2, "ollama", in_flight=1),
    )
    assert choose_server([large, small]) is large
    assert choose_server([large, small], api="ollama") is small
    assert choose_server([large, small], failed=[large]) is small
    large.in_flight = 8
    assert choose_server([large, small]) is small
    small.in_flight = 2
    assert choose_server([large, small]) is None


def test_a_server_that_failed_a_request_is_asked_again_where_no_other_is_awake() -> None:
    first, second = UpstreamServer("a", 1), UpstreamServer("b", 1, in_flight=1)
    assert choose_server([first, second], failed=[first]) is None  # the other is only busy
    second.resting = True
    assert choose_server([first, second], failed=[first]) is first


def test_a_failing_server_rests_five_seconds_doubling_to_sixty() -> None:
    server, rests, now_s = UpstreamServer("a", 1), [], 0.0
    for _ in range(5):
        server.refused(now_s)
        rests.append(server.resting_until_s - now_s)
        now_s = server.resting_until_s
    assert rests == [5, 10, 20, 40, 60]
    server.succeeded()
    for caller, resting in (("a", False), ("a", False), ("b", True)):
        server.failed(now_s, caller=caller, status=500, last=False)
        assert server.resting is resting
    assert server.resting_until_s == now_s + 5.0


def test_one_callers_failures_are_no_servers_fault_unless_another_server_answers() -> None:
    server = UpstreamServer("a", 8)
    for _ in range(50):
        server.failed(0.0, caller="batchjob/bad", status=500, last=False)
    assert not server.resting
    server.note_outdone(0.0, "run-1", last=False)
    assert server.resting


def test_the_last_server_that_is_awake_rests_for_no_answer_of_its_own() -> None:
    server = UpstreamServer("a", 8)
    for n in range(50):
        server.failed(0.0, caller=f"batchjob/{n}", status=500, last=True)
        server.note_outdone(0.0, f"run-{n}", last=True)
    assert not server.resting
    server.refused(0.0)
    assert server.resting


def test_a_server_that_has_rested_is_asked_once_a_look_finds_it_there() -> None:
    server = UpstreamServer("a", 8)
    server.refused(0.0)
    assert choose_server([server]) is None
    server.record_probe(5.0, there=False)
    assert (choose_server([server]), server.resting_until_s) == (None, 15.0)
    server.record_probe(15.0, there=True)
    assert choose_server([server]) is server


def test_a_retry_waits_as_the_server_asks_and_ends_after_its_attempts() -> None:
    retry = RetryRule()
    assert wait_s(retry, tried=1, status=503, retry_after_s=0) == 0.5
    assert wait_s(retry, tried=3, status=None, retry_after_s=0) == 2.0
    assert wait_s(retry, tried=1, status=429, retry_after_s=7) == 7
    assert wait_s(retry, tried=4, status=503, retry_after_s=0) is None
    assert wait_s(retry, tried=1, status=400, retry_after_s=0) is None


def test_a_pause_is_read_in_seconds_in_milliseconds_and_as_a_date() -> None:
    assert retry_after_s({"retry-after": "1.5"}, 0.0) == 1.5
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "1"}, 0.0) == 0.25
    assert retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 20.0) == 40.0
    assert retry_after_s({"retry-after": "soon"}, 0.0) == 0.0
    spec = {"retry": {"attempts": 2, "backoff": {"initialSeconds": 0}}}
    assert wait_s(read_retry(spec), tried=1, status=503, retry_after_s=0) == 0.0


def test_only_what_would_be_answered_the_same_is_cached() -> None:
    path = "/v1/chat/completions"
    assert is_cacheable("Deterministic", path, {"temperature": 0})
    assert is_cacheable("Deterministic", path, {"seed": 0})
    assert is_cacheable("Deterministic", "/api/chat", {"options": {"seed": 3}})
    assert is_cacheable("Deterministic", "/v1/embeddings", {})
    assert not is_cacheable("Deterministic", path, {"temperature": 1})
    assert is_cacheable("Always", path, {})
    assert not is_cacheable("Never", path, {"temperature": 0})


def test_what_nobody_counted_is_never_below_what_a_server_can_have_counted() -> None:
    asked, worst = {"messages": []}, TokenCount(40, 4096, estimated=True)
    assert count_used(
        asked, b'{"usage": {"prompt_tokens": 1, "total_tokens": 9}}', worst
    ) == TokenCount(1, 8)
    assert count_used(asked, b'{"prompt_eval_count": 2, "eval_count": 1}', worst) == TokenCount(
        2, 1
    )
    silent = b'{"choices": [{"message": {"role": "assistant", "content": "four"}}], "usage": {}}'
    assert count_used(asked, silent, worst) == TokenCount(40, 4, estimated=True)
    assert count_used(asked, b"{not json", worst) == TokenCount(40, 9, estimated=True)
    assert count_used({"max_tokens": 3}, b"{not json", worst).outward == 3
    assert count_lost(asked, 0, worst, quiet_s=0.01).outward == 30
    assert count_lost(asked, 7, worst, quiet_s=60).outward == 4096
    assert count_lost(asked, 5000, worst, quiet_s=60).outward == 5000


def test_images_count_as_images_and_not_by_their_bytes() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:" + "x" * 10**6}}
    body = {"messages": [{"role": "user", "content": [picture]}]}
    assert 16_384 <= worst_case("/v1/chat/completions", body, 1_000_200).inward < 17_000
    small = {"messages": [{"content": [{"image_url": {"url": "http://x/y.png"}}]}]}
    assert worst_case("/v1/chat/completions", small, 90).inward >= 16_384


def test_the_worst_case_has_a_price_only_where_the_model_has_one() -> None:
    worst = worst_case("/v1/chat/completions", {"max_tokens": 10, "n": 2}, 100)
    assert (worst.inward, worst.outward) == (100, 20)
    spec = {"prices": {"chat": {"inputPerMillion": 1.0, "outputPerMillion": 5.0}}}
    assert price_usd(spec, "chat", worst) == 200 / 1e6
    assert price_usd(spec, "other", worst) is None


def test_the_limit_halves_when_the_server_is_busy_and_grows_after_a_full_round() -> None:
    pace = ServerPace(8)
    pace.failed(429, 1.0, begun_s=0.0)
    pace.failed(429, 1.1, begun_s=0.0)  # sent with the first
    pace.failed(404, 1.2, begun_s=1.1)
    assert pace.limit == 4
    for _ in range(4):
        pace.record_answer(2.0, 0.1, full=True)
        pace.record_answer(2.0, 0.1, full=False)
    assert pace.limit == 5
    for n in range(5):
        pace.failed(503, 3.0 + n, begun_s=3.0 + n)
    assert pace.limit == 1
    for _ in range(100):
        pace.record_answer(9.0, 0.1, full=True)
    assert pace.limit == 8


def test_an_unknown_server_is_found_to_take_sixteen_and_not_much_more() -> None:
    pace, now_s, tops = ServerPace(64, trying=True), 0.0, []
    for _ in range(40):
        took_s = 0.1 * max(1.0, pace.limit / 16)
        now_s, tops = now_s + took_s, [*tops, pace.limit]
        for _ in range(pace.limit):
            pace.record_answer(now_s, took_s, full=True)
    assert max(tops) == 32 and 16 <= pace.limit <= 32


def burst(begun: list[float], ended: list[float]) -> int:
    found = Burst()
    for n, at_s in enumerate(begun):
        found.begin(n, at_s)
    for n, at_s in sorted(enumerate(ended), key=lambda it: it[1]):
        found.end(n, at_s, answered=True, idle=False)
    return found.at_once


def test_answers_that_come_one_at_a_time_tell_a_server_with_one_slot() -> None:
    at_once = [0.0] * 8
    assert burst(at_once, [0.1 * (n + 1) for n in range(8)]) == 8
    assert burst(at_once, [0.12, 0.2, 0.33, 0.41, 0.5, 0.64, 0.7, 0.83]) == 8
    assert burst(at_once, [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4]) == 0  # two slots
    assert burst(at_once, [0.1, 0.11, 0.1, 0.12, 0.1, 0.11, 0.1, 0.1]) == 0
    assert burst(at_once, [0.5, 0.1, 0.7, 0.3, 0.2, 0.8, 0.4, 0.6]) == 0  # of different lengths
    assert burst(at_once[:4], [0.1, 0.2, 0.3, 0.4]) == 0  # too few to tell


def test_headers_that_name_a_call_leave_its_answer_the_same() -> None:
    def key(**headers: str) -> str:
        named = {name.replace("_", "-"): it for name, it in headers.items()}
        return cache_key("default", "small", "/v1/chat/completions", {"model": "m"}, named)

    traced = key(traceparent="00-1", x_datadog_trace_id="1", x_b3_traceid="1", x_request_id="1")
    assert traced == key(x_client_request_id="2") == key()
    assert key(anthropic_beta="a") != key(anthropic_beta="b") != key()


def test_answers_past_their_time_go_and_of_too_many_those_that_end_soonest(
    tmp_path: Path,
) -> None:
    cache = AnswerCache(tmp_path / "cache.db", bytes_max=200_000)
    cache.put("old", "text", b"x" * 1_000, 50.0)
    now_s = time.time()
    for number in range(2 * PUTS_PER_CLEAN):
        cache.put(f"{number:04}", "text", b"x" * 4_000, now_s + 1_000.0 + number)
    cache.clean(now_s)
    assert cache.get("old", 0.0) is None and cache.get("0000", now_s) is None
    for number in range(2 * PUTS_PER_CLEAN, 3 * PUTS_PER_CLEAN):
        cache.put(f"{number:04}", "text", b"x" * 10, now_s + 1_000.0 + number)
    assert cache.get(f"{3 * PUTS_PER_CLEAN - 1:04}", now_s) is not None


def test_a_rate_is_of_the_last_minute_and_takes_the_same_room_for_any_number_of_calls() -> None:
    rate = UsageRate()
    for at in range(10_000):
        rate.add(at / 100, tokens=3, usd=0.5)
    assert rate.read(100.0) == {"requests": 5_900, "tokens": 17_700, "usd": 2950.0}
    assert len(rate._seconds) <= 61
    assert rate.read(159.0) == {"requests": 0, "tokens": 0, "usd": 0.0}
