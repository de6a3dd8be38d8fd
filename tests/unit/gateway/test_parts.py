"""The gateway's pure parts, with the time as an argument."""

from fleetctl.gateway.keeping.cache import cacheable
from fleetctl.gateway.rules.concurrency import Adaptive
from fleetctl.gateway.rules.limits import Limits, Minute, over_task_limit
from fleetctl.gateway.rules.queue import FairQueue
from fleetctl.gateway.rules.retry import Retry, wait_s
from fleetctl.gateway.rules.servers import Server, choose
from fleetctl.gateway.rules.usage import Tokens, calls_of, price_usd, used, worst_case


def test_a_batch_is_refused_whole_before_its_first_call() -> None:
    limits = Limits(calls_per_task=10)
    assert over_task_limit(limits, calls=8, tokens=0, asked=2) == ""
    sentence = over_task_limit(limits, calls=8, tokens=0, asked=3)
    assert sentence == "callsPerTask: 8 used, 3 asked, 10 allowed"
    assert calls_of({"prompt": ["a", "b", "c"]}) == 3
    assert calls_of({"input": [1, 2, 3]}) == 1


def test_a_minute_over_its_limit_waits_for_its_oldest_request() -> None:
    minute, limits = Minute(), Limits(requests_per_minute=2)
    minute.add(0.0, requests=1, tokens=5)
    minute.add(10.0, requests=1, tokens=5)
    assert minute.wait_s(limits, 20.0) == 40.0
    assert minute.wait_s(limits, 60.0) == 0.0


def test_one_object_with_many_requests_does_not_starve_another() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(3):
        queue.add("job", f"job-{n}")
    queue.add("trainer", "trainer-0")
    assert [queue.take() for _ in range(5)] == ["job-0", "trainer-0", "job-1", "job-2", None]


def test_the_server_with_the_fewest_in_flight_per_slot_is_chosen() -> None:
    large, small = Server("a", 8, in_flight=3), Server("b", 2, in_flight=1)
    assert choose([large, small], 0.0) is large
    large.in_flight = 8
    assert choose([large, small], 0.0) is small
    small.in_flight = 2
    assert choose([large, small], 0.0) is None


def test_a_failing_server_rests_five_seconds_doubling_to_sixty() -> None:
    server, rests = Server("a", 1), []
    for _ in range(5):
        server.failed(0.0, refused=True)
        rests.append(server.resting_until_s)
    assert rests == [5, 10, 20, 40, 60]
    server.succeeded()
    for expected in (0.0, 0.0, 105.0):
        server.resting_until_s = 0.0
        server.failed(100.0, refused=False)
        assert server.resting_until_s == expected


def test_a_retry_waits_as_the_server_asks_and_ends_after_its_attempts() -> None:
    retry = Retry()
    assert wait_s(retry, tried=1, status=503, retry_after_s=0) == 0.5
    assert wait_s(retry, tried=3, status=None, retry_after_s=0) == 2.0
    assert wait_s(retry, tried=1, status=429, retry_after_s=7) == 7
    assert wait_s(retry, tried=4, status=503, retry_after_s=0) is None
    assert wait_s(retry, tried=1, status=400, retry_after_s=0) is None


def test_only_what_would_be_answered_the_same_is_cached() -> None:
    path = "/v1/chat/completions"
    assert cacheable("Deterministic", path, {"temperature": 0})
    assert cacheable("Deterministic", path, {"seed": 0})
    assert cacheable("Deterministic", "/api/chat", {"options": {"seed": 3}})
    assert cacheable("Deterministic", "/v1/embeddings", {})
    assert not cacheable("Deterministic", path, {"temperature": 1})
    assert cacheable("Always", path, {})
    assert not cacheable("Never", path, {"temperature": 0})


def test_usage_is_read_from_answers_and_ends_of_streams_of_both_protocols() -> None:
    stream = b'data: {"choices": []}\n\ndata: {"usage": {"prompt_tokens": 3, '
    stream += b'"completion_tokens": 4}}\n\ndata: [DONE]\n\n'
    assert used(stream) == Tokens(3, 4)
    assert used(b'{"done": false}\n{"prompt_eval_count": 2, "eval_count": 1}\n') == Tokens(2, 1)
    assert used(b'{\n "usage": {"prompt_tokens": 1}\n}') == Tokens(1, 0)
    assert used(b"{not json") is None


def test_the_worst_case_has_a_price_only_where_the_model_has_one() -> None:
    worst = worst_case("/v1/chat/completions", {"max_tokens": 10, "n": 2}, 100)
    assert worst == Tokens(100, 20)
    spec = {"prices": {"chat": {"inputPerMillion": 1.0, "outputPerMillion": 5.0}}}
    assert price_usd(spec, "chat", worst) == 200 / 1e6
    assert price_usd(spec, "other", worst) is None


def test_the_limit_halves_when_the_server_is_busy_and_grows_after_a_full_round() -> None:
    adaptive = Adaptive(most=8, limit=8)
    adaptive.failed(429)
    adaptive.failed(404)
    assert adaptive.limit == 4
    for _ in range(4):
        adaptive.answered()
    assert adaptive.limit == 5
    for _ in range(5):
        adaptive.failed(503)
    assert adaptive.limit == 1
    for _ in range(100):
        adaptive.answered()
    assert adaptive.limit == 8
