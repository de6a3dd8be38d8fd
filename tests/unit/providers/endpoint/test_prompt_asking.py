"""A row: what is asked, what is taken, what is asked once more, and what waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.endpoint.gateway_connection import GatewayReply, ModelFailure, read_reply
from fleetctl.providers.endpoint.prompt_row import FIRST, REPAIR, RowOutcome, ask_row
from fleetctl.specs.blocks.prompt import Prompt

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
ANN = '{"name": "Ann", "age": 7}'


def says(text: Any, *, finish: str = "stop", usd: float | None = None) -> GatewayReply:
    choice = {"message": {"content": text}, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return GatewayReply(200, json.dumps({"choices": [choice], "usage": usage}).encode(), usd)


def error(status: int, code: object = None, *, ours: bool = True) -> GatewayReply:
    told = {"message": "why", "code": code, **({"type": "fleetctl"} if ours else {})}
    return GatewayReply(status, json.dumps({"error": told}).encode())


class Script:
    """Replies in turn; `calls` are (number, body)."""

    def __init__(self, *replies: GatewayReply | Exception) -> None:
        self.replies, self.calls = list(replies), list[tuple[int, Mapping[str, Any]]]()

    async def post(self, number: int, body: Mapping[str, Any]) -> GatewayReply:
        self.calls.append((number, body))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def ask(self, params: Mapping[str, Any] | None = None, **fields: Any) -> RowOutcome:
        prompt = Prompt.model_validate({"endpoint": "small", "text": "hi ${who}", **fields})
        return asyncio.run(ask_row(prompt, "chat", params or {"who": "you"}, self.post))


def result(outcome: RowOutcome) -> Any:
    assert outcome.failure is None and outcome.result is not None
    return json.loads(outcome.result)


def failure(outcome: RowOutcome) -> ModelFailure:
    assert outcome.failure is not None and outcome.result is None
    return outcome.failure


def test_a_text_and_its_tokens_are_the_result() -> None:
    script = Script(says("hello", usd=0.25))
    found = result(script.ask(parameters={"temperature": 0}))
    assert found == {"answer": "hello", "usage": {"tokens_in": 10, "tokens_out": 5, "usd": 0.25}}
    ((number, body),) = script.calls
    assert number == FIRST
    assert body == {
        "model": "chat",
        "messages": [{"role": "user", "content": "hi you"}],
        "temperature": 0,
        "stream": False,
    }


def test_an_answer_that_was_cut_off_says_so() -> None:
    assert result(Script(says("hel", finish="length")).ask())["finish"] == "length"


@pytest.mark.parametrize(
    "text",
    [
        ANN,
        f"```json\n{ANN}\n```",
        f"\n```\n{ANN}\n```\n",
        f"<think>hmm {{ }} </think>\n{ANN}",
        f"I </think> think </think>\n```json\n{ANN}\n```",
    ],
)
def test_an_answer_that_matches_is_taken_as_a_value(text: str) -> None:
    script = Script(says(text))
    assert result(script.ask(schema=PERSON))["answer"] == {"name": "Ann", "age": 7}
    wanted = script.calls[0][1]["response_format"]
    assert wanted == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": PERSON},
    }


def test_thoughts_stay_in_a_text_and_in_a_value() -> None:
    text = "<think>hmm</think> hello"
    assert result(Script(says(text)).ask())["answer"] == text
    kept = '{"name": "</think>", "age": 7}'
    assert result(Script(says(kept)).ask(schema=PERSON))["answer"]["name"] == "</think>"


def test_a_filtered_answer_with_a_text_stays_and_is_marked() -> None:
    found = result(Script(says("hel", finish="content_filter")).ask())
    assert (found["answer"], found["finish"]) == ("hel", "content_filter")


def refuses(message: str) -> GatewayReply:
    return GatewayReply(400, json.dumps({"error": {"message": message}}).encode())


def test_a_server_without_response_format_is_asked_in_the_text() -> None:
    script = Script(refuses("response_format is not supported"), says('{"a": 1}'), says(ANN))
    assert result(script.ask(schema=PERSON))["answer"] == {"name": "Ann", "age": 7}
    (one, first), (two, second), (three, again) = script.calls
    assert (one, two, three) == (1, 3, 2)
    assert "response_format" in first
    assert "response_format" not in second and "response_format" not in again
    assert '"required":["name","age"]' in second["messages"][-1]["content"]
    assert second["messages"][-1]["content"].startswith("hi you\n\n")


def test_a_model_without_a_system_role_is_asked_in_the_text() -> None:
    script = Script(
        refuses("System role not supported"), refuses("unknown field response_format"), says(ANN)
    )
    assert result(script.ask(system="be short", schema=PERSON))["answer"]["name"] == "Ann"
    (last,) = script.calls[-1][1]["messages"]
    assert last["role"] == "user" and last["content"].startswith("be short\n\nhi you\n\n")


def test_a_refusal_of_something_else_is_asked_once() -> None:
    script = Script(refuses("this model's maximum context length is 4096"))
    assert failure(script.ask(system="be short", schema=PERSON)).reason == "CallRefused"
    assert len(script.calls) == 1


def test_a_row_that_a_server_asks_to_wait_says_how_long_and_until_when() -> None:
    reply = GatewayReply(429, error(429, ours=False).body, again_at_s=time.time() + 86400.0)
    with pytest.raises(Unavailable, match=r"why; it asks to wait 24h00m, until 20\S+Z$") as raised:
        read_reply(reply)
    assert raised.value.retry_after_s == 600.0


def test_an_answer_that_does_not_match_is_asked_once_more_with_the_reason() -> None:
    script = Script(says('{"name": "Ann"}', usd=0.5), says(ANN, usd=0.25))
    found = result(script.ask(schema=PERSON))
    assert found["answer"] == {"name": "Ann", "age": 7}
    assert found["usage"] == {"tokens_in": 20, "tokens_out": 10, "usd": 0.75}
    (first, _), (second, body) = script.calls
    assert (first, second) == (FIRST, REPAIR)
    user, assistant, again = body["messages"]
    assert (user["content"], assistant["content"]) == ("hi you", '{"name": "Ann"}')
    assert "at $: 'age' is a required property" in again["content"]


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ('{"name": 3, "age": 7}', "at $.name: 3 is not of type 'string'"),
        ("Ann is 7", "the answer is not JSON"),
        ('{"name": "Ann", "age": NaN}', "NaN is not a number of JSON"),
    ],
)
def test_a_second_mistake_fails_the_row_with_its_place(answer: str, where: str) -> None:
    outcome = Script(says("no"), says(answer, finish="length")).ask(schema=PERSON)
    found = failure(outcome)
    assert (found.reason, found.infrastructure) == ("AnswerInvalid", False)
    assert where in found.message
    assert found.message.endswith("; asked twice, cut off at `maxTokens`")
    assert answer in outcome.log and "no" in outcome.log


def test_a_row_that_cannot_be_asked_again_fails_and_is_not_paid_anew() -> None:
    found = failure(Script(says("no"), Unavailable("the gateway is away")).ask(schema=PERSON))
    assert found.reason == "AnswerInvalid"
    assert found.message.endswith("it could not be asked again: the gateway is away")


def test_an_answer_larger_than_a_result_may_be_is_not_kept() -> None:
    assert failure(Script(says("x" * 300_000)).ask()).reason == "ResultInvalid"


def test_a_row_without_a_parameter_is_refused_by_its_name() -> None:
    with pytest.raises(Refused, match=r"\$\{who\}"):
        Script().ask({"whom": 1})


def test_no_schema_makes_anybody_fetch_another_one() -> None:
    with pytest.raises(Refused, match="which it does not hold"):
        Script(says("{}")).ask(schema={"$ref": "http://127.0.0.1:9/schema.json"})


@pytest.mark.parametrize(
    ("reply", "reason", "infrastructure"),
    [
        (error(429, "LimitReached"), "CallRefused", False),
        (error(404, "EndpointUnknown"), "CallRefused", False),
        (error(413), "CallRefused", False),
        (error(400, "context_length_exceeded", ours=False), "CallRefused", False),
        (error(502, "NoAnswer"), "CallFailed", True),
        (error(504, "NoAnswer"), "CallFailed", False),  # in time, at any try
        (error(500, ours=False), "CallFailed", False),
        (GatewayReply(504, b"<html>"), "CallFailed", False),
        (GatewayReply(502, b"<html>"), "CallFailed", True),  # of a proxy before it
        (GatewayReply(200, b"{not json"), "AnswerInvalid", False),
        (says(None), "AnswerInvalid", False),
        (says("", finish="content_filter"), "AnswerFiltered", False),
        (says(None, finish="content_filter"), "AnswerFiltered", False),
    ],
)
def test_a_reply_without_an_answer_ends_the_attempt(
    reply: GatewayReply, reason: str, infrastructure: bool
) -> None:
    found = read_reply(reply)
    assert isinstance(found, ModelFailure)
    assert (found.reason, found.infrastructure) == (reason, infrastructure)


def test_a_row_for_a_batch_is_refused_where_no_server_has_batches() -> None:
    with pytest.raises(Refused) as raised:
        read_reply(error(404, "NoBatches"))
    assert "leave `mode: batch` out" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (error(502, "ServerUnreachable"), "EndpointNotReady"),
        (error(429, "BudgetExceeded"), "BudgetExceeded"),
        (error(403, "PriceUnknown"), "PriceUnknown"),
        (error(401, "NotGranted"), "Unavailable"),
        (error(429, ours=False), "Unavailable"),
        (error(503, ours=False), "Unavailable"),
    ],
)
def test_a_row_that_nobody_was_asked_waits(reply: GatewayReply, reason: str) -> None:
    with pytest.raises(Unavailable) as raised:
        read_reply(reply)
    assert raised.value.reason == reason
