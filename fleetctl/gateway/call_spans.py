"""Makes a span of each call of a model, by the semantic conventions of OpenTelemetry 1.37.0.

A call belongs to the span that its task names in `traceparent`, else to the attempt that its grant
belongs to. It is one span with all its tries; asking/ reports what it asked and what came. What was
asked and answered is in it only where the standard's variable requests that.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fleetctl.common.telemetry import (
    TRACEPARENT,
    AttributeValue,
    SpanExport,
    SpanRecord,
    TraceContext,
    make_trace_context,
    parse_traceparent,
)
from fleetctl.gateway.numbered_calls import CallAnswer
from fleetctl.gateway.rules.failures import GatewayRefusal

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_WITH_CONTENT = ("true", "span_only", "span_and_event")
CONTENT_CHARS_MAX = 64 * 1024  # of each attribute with content; longer ones are left out

_OPERATIONS = {
    "/v1/completions": "text_completion",
    "/api/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/api/embed": "embeddings",
    "/api/embeddings": "embeddings",
}  # of all other paths: chat
# The end of a server's name, and the convention's name of its provider.
_PROVIDERS = (
    ("openai.azure.com", "azure.ai.openai"),
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("amazonaws.com", "aws.bedrock"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "x_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.cohere.com", "cohere"),
)
# A field of a request, and the attribute for it.
_REQUESTED = (
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("max_tokens", "max_tokens"),
    ("max_completion_tokens", "max_tokens"),
    ("max_output_tokens", "max_tokens"),
    ("frequency_penalty", "frequency_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("seed", "seed"),
    ("n", "choice.count"),
)


@dataclass(slots=True)
class CallSpan:
    """A call under way. reply facts: of the last piece that had them."""

    context: TraceContext
    parent: TraceContext | None
    name: str
    attributes: dict[str, AttributeValue]
    content: bool
    began_at_s: float = field(default_factory=time.time)
    problem: str = ""
    _finish: list[str] = field(default_factory=list)
    _text: list[str] = field(default_factory=list, repr=False)
    _chars: int = 0

    @property
    def traceparent(self) -> str:
        """Returns what a server gets, so that its own spans belong to the call."""
        return self.context.header

    def note_server(self, url: str) -> None:
        """Takes the server of a try; that of the last one is shown."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        self.attributes["server.address"] = host
        if port := parts.port or {"http": 80, "https": 443}.get(parts.scheme):
            self.attributes["server.port"] = port
        for end, name in _PROVIDERS:
            if host == end or host.endswith(f".{end}"):
                self.attributes["gen_ai.provider.name"] = name

    def note_reply(self, reply: object) -> None:
        """Takes an answer, or a piece of a stream."""
        if not isinstance(reply, dict):
            return
        # Events of `/v1/responses` and `/v1/messages` have the answer one level below.
        for holder in (reply, reply.get("response"), reply.get("message")):
            if isinstance(holder, dict):
                self._note_names(holder)
        choices = reply.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._note_finish(choice.get("finish_reason"))
                self._note_text(choice.get("message") or choice.get("delta") or choice)
        delta = reply.get("delta")
        if isinstance(delta, dict):
            self._note_finish(delta.get("stop_reason"))
        self._note_finish(reply.get("stop_reason"))
        self._note_finish(reply.get("done_reason"))
        if not choices:
            self._note_text(reply.get("message") or delta or reply)

    def _note_names(self, holder: Mapping[str, Any]) -> None:
        for name in ("model", "id"):
            if isinstance(holder.get(name), str):
                self.attributes[f"gen_ai.response.{name}"] = holder[name]

    def _note_finish(self, reason: object) -> None:
        if isinstance(reason, str) and reason:
            self._finish.append(reason)

    def _note_text(self, holder: object) -> None:
        if not self.content or not isinstance(holder, dict):
            return
        for name in ("content", "text", "response"):
            parts = holder.get(name)
            for part in parts if isinstance(parts, list) else [parts]:
                text = part.get("text") if isinstance(part, dict) else part
                if isinstance(text, str) and self._chars <= CONTENT_CHARS_MAX:
                    self._text.append(text)
                    self._chars += len(text)

    def end(self, answer: CallAnswer | None, tokens: str, usd: str) -> SpanRecord:
        """Returns the span. tokens: `in out`; usd: empty where it is not known."""
        found = self.attributes
        if answer is not None and answer.status >= 400:
            self.problem = self.problem or str(answer.status)
        if self.problem:
            found["error.type"] = self.problem
        if self._finish:
            found["gen_ai.response.finish_reasons"] = self._finish
        inward, _, outward = tokens.partition(" ")
        if inward.isdigit() and outward.isdigit():
            found["gen_ai.usage.input_tokens"] = int(inward)
            found["gen_ai.usage.output_tokens"] = int(outward)
        if usd:
            found["fleetctl.cost_usd"] = float(usd)
        if self.content and 0 < self._chars <= CONTENT_CHARS_MAX:
            part = {"type": "text", "content": "".join(self._text)}
            finish = self._finish[-1] if self._finish else "stop"
            written = {"role": "assistant", "parts": [part], "finish_reason": finish}
            found["gen_ai.output.messages"] = json.dumps([written], ensure_ascii=False)
        return SpanRecord(
            self.name,
            self.context.trace_id,
            self.context.span_id,
            self.parent.span_id if self.parent is not None else "",
            self.began_at_s,
            time.time(),
            found,
            kind="CLIENT",
            problem=self.problem,
            schema=SCHEMA,
        )


class CallSpans:
    """The spans of a gateway. usage, cost: headers of an answer, with its tokens and its price."""

    def __init__(
        self,
        export: SpanExport,
        environ: Mapping[str, str],
        *,
        usage: str,
        cost: str,
    ) -> None:
        self._export, self._usage, self._cost = export, usage, cost
        self._content = environ.get(CONTENT, "").strip().lower() in _WITH_CONTENT

    def begin(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        *,
        owner: str,
        endpoint: str,
        run: str,
    ) -> CallSpan:
        """Begins the span of a call. headers: of the task's request. owner: the traceparent of its
        attempt."""
        named = next((it for name, it in headers.items() if name.upper() == TRACEPARENT), "")
        parent = parse_traceparent(named) or parse_traceparent(owner)
        operation = _OPERATIONS.get(path, "chat")
        model = str(body.get("model") or "")
        provider = "ollama" if path.startswith("/api/") else "openai"
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "anthropic" if path == "/v1/messages" else provider,
            "fleetctl.endpoint": endpoint,
            "fleetctl.run": run,
        }
        if model:
            attributes["gen_ai.request.model"] = model
        for name, attribute in _REQUESTED:
            value = body.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                attributes[f"gen_ai.request.{attribute}"] = value
        if self._content and (asked := _format_asked(body)):
            attributes["gen_ai.input.messages"] = asked
        context = make_trace_context(parent, os.environ)
        return CallSpan(context, parent, f"{operation} {model}".strip(), attributes, self._content)

    @contextmanager
    def trace(self, span: CallSpan) -> Iterator[list[CallAnswer]]:
        """Sends the span at the end of the block, which appends the answer, if there is one."""
        answers: list[CallAnswer] = []
        try:
            yield answers
        except GatewayRefusal as refusal:
            span.problem = refusal.code
            raise
        finally:
            answer = answers[0] if answers else None
            if answer is None and not span.problem:
                span.problem = "cancelled"
            kept = answer.headers if answer is not None else {}
            record = span.end(answer, kept.get(self._usage, ""), kept.get(self._cost, ""))
            if span.context.sampled:
                self._export.add([record])

    def close(self, within_s: float) -> None:
        self._export.close(within_s)


def _format_asked(body: Mapping[str, Any]) -> str:
    """Returns the messages of a request in the convention's form; empty for none, and for more than
    an attribute may hold."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        asked = body.get("prompt") or body.get("input")
        messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else []
    rows = [
        {"role": str(it.get("role") or "user"), "parts": _list_parts(it.get("content"))}
        for it in messages
        if isinstance(it, dict)
    ]
    text = json.dumps(rows, ensure_ascii=False) if rows else ""
    return text if len(text) <= CONTENT_CHARS_MAX else ""


def _list_parts(content: object) -> list[dict[str, str]]:
    """Returns the texts of a message; images and files are left out."""
    parts = content if isinstance(content, list) else [content]
    texts = [it.get("text") if isinstance(it, dict) else it for it in parts]
    return [{"type": "text", "content": it} for it in texts if isinstance(it, str)]
