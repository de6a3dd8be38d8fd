"""Spans of model calls, as the gateway makes them before an emulated model, at a collector."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fleetctl.common.telemetry import TraceContext, derive_span_id, derive_trace_id
from tests.emulators.llm.server import Fault, Model
from tests.telemetry.collector import Collector, Received, collecting
from tests.unit.gateway.hosted import Hosted, hosting
from tests.unit.gateway.test_process import in_loop

OWNER = TraceContext(derive_trace_id("job"), derive_span_id("attempt"))
OTHER = TraceContext(derive_trace_id("job"), derive_span_id("a span of the program"))
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
PROMPT = "prompt-5b1d"  # one word, as the model streams words


class Traced:
    """A gateway whose spans are collected once it has ended."""

    gateway: Hosted
    collector: Collector

    @property
    def span(self) -> Received:
        (span,) = self.collector.spans
        return span


@asynccontextmanager
async def tracing(directory: Path, model: Model, **variables: str) -> AsyncIterator[Traced]:
    """Ends the gateway, which sends the spans, at the end of the block."""
    traced = Traced()
    with collecting() as traced.collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traced.collector.url)
        for name, value in variables.items():
            patch.setenv(name, value)
        async with hosting(directory, model) as traced.gateway:
            await grant(traced.gateway)
            yield traced


async def grant(gateway: Hosted) -> None:
    row = {
        "run": "r1",
        "tree": "r1",
        "uid": "uid",
        "object": "batchjob/r1",
        "namespace": "default",
        "endpoints": ["small"],
        "traceparent": OWNER.header,
    }
    await gateway.control.put("/grants", json={"grants": [row], "caps": []})


def check_usage(span: Received, answer: Mapping[str, int]) -> None:
    assert span.attributes["gen_ai.usage.input_tokens"] == answer["prompt_tokens"]
    assert span.attributes["gen_ai.usage.output_tokens"] == answer["completion_tokens"]


@in_loop
async def test_a_call_is_a_span_of_its_task_by_the_conventions(tmp_path: Path) -> None:
    model = Model()
    async with tracing(tmp_path, model) as traced:
        reply = await traced.gateway.ask("r1", PROMPT, temperature=0.5, max_tokens=9)
    span = traced.span
    assert span.name == "chat chat"  # the operation, and the model that was asked for
    assert (span.trace, span.parent) == (OWNER.trace_id, OWNER.span_id)
    assert span.kind == 3  # CLIENT
    assert span.schema == "https://opentelemetry.io/schemas/1.37.0"
    assert not span.failed
    found = span.attributes
    answer = json.loads(reply.raw)
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.provider.name"] == "openai"
    assert found["gen_ai.request.model"] == "chat"
    assert found["gen_ai.response.model"] == answer["model"]
    assert found["gen_ai.response.finish_reasons"] == ["stop"]
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["gen_ai.request.max_tokens"] == 9
    assert found["server.address"] == "127.0.0.1"
    assert found["server.port"] == int(model.url.rpartition(":")[2])
    assert found["fleetctl.endpoint"] == "small"
    check_usage(span, answer["usage"])
    # The server behind got the span as its parent.
    assert model.heads[-1]["traceparent"] == f"00-{span.trace}-{span.id}-01"
    assert not any(PROMPT.encode() in it for it in traced.collector.raw)


@in_loop
async def test_a_call_belongs_to_the_span_that_its_task_names(tmp_path: Path) -> None:
    async with tracing(tmp_path, Model()) as traced:
        await traced.gateway.ask("r1", headers={"traceparent": OTHER.header})
    assert traced.span.parent == OTHER.span_id


@in_loop
async def test_a_stream_has_its_usage_its_end_and_its_model(tmp_path: Path) -> None:
    async with tracing(tmp_path, Model()) as traced:
        await traced.gateway.ask("r1", PROMPT, stream=True)
    found = traced.span.attributes
    assert found["gen_ai.response.finish_reasons"] == ["stop"]
    assert found["gen_ai.response.model"] == "tiny"
    assert found["gen_ai.usage.input_tokens"] > 0
    assert found["gen_ai.usage.output_tokens"] > 0
    assert not any(PROMPT.encode() in it for it in traced.collector.raw)


@in_loop
async def test_content_is_there_only_where_the_variable_requests_it(tmp_path: Path) -> None:
    async with tracing(tmp_path, Model(), **{CONTENT: "true"}) as traced:
        await traced.gateway.ask("r1", PROMPT)
        await traced.gateway.ask("r1", PROMPT, stream=True)
    assert len(traced.collector.spans) == 2
    for span in traced.collector.spans:
        (asked,) = json.loads(span.attributes["gen_ai.input.messages"])
        assert asked == {"role": "user", "parts": [{"type": "text", "content": PROMPT}]}
        (answer,) = json.loads(span.attributes["gen_ai.output.messages"])
        assert answer["role"] == "assistant"
        assert PROMPT in answer["parts"][0]["content"]  # the model echoes it
        assert answer["finish_reason"] == "stop"


@in_loop
async def test_a_call_tried_twice_is_one_span_and_a_refused_one_has_its_error(
    tmp_path: Path,
) -> None:
    model = Model()
    model.faults.append(Fault(503))
    async with tracing(tmp_path, model) as traced:
        assert (await traced.gateway.ask("r1")).status == 200
        assert len(model.asked) == 2
        model.faults.append(Fault(400))
        assert (await traced.gateway.ask("r1")).status == 400
    good, bad = sorted(traced.collector.spans, key=lambda it: it.began_ns)
    assert not good.failed
    assert "error.type" not in good.attributes
    assert bad.failed
    assert bad.attributes["error.type"] == "400"


@in_loop
async def test_a_trace_that_is_not_sampled_has_no_span_of_its_calls(tmp_path: Path) -> None:
    quiet = TraceContext(OTHER.trace_id, OTHER.span_id, sampled=False)
    async with tracing(tmp_path, Model()) as traced:
        await traced.gateway.ask("r1", headers={"traceparent": quiet.header})
    assert not traced.collector.spans
