"""The server itself, in the loop of the test; `asked` is the ground truth of what it was asked."""

import asyncio
import contextlib
import hashlib
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.emulators.llm import dialects
from tests.emulators.llm.batches import Batches

DIMENSIONS = 8
_NO_ANSWERS = {  # content type and text
    "error": ("application/json", '{"error": {"message": "upstream overloaded", "code": 503}}'),
    "page": ("text/html", "<!doctype html><title>Sign in</title>"),
    "no-choices": ("application/json", '{"object": "chat.completion", "choices": []}'),
    "error-event": ("text/event-stream", 'data: {"error": {"message": "no room"}}\n\n'),
}
MEET_S_MAX = 20.0


@dataclass(frozen=True)
class Fault:
    """What the next request meets: a status, or `hang`; or it is counted whole, and its answer is
    `lost` with the connection, `late`, `cut` after its first piece, or `wrong-json`. `error`,
    `page`, `no-choices` and `error-event` are sent with status 200.
    """

    what: str | int
    retry_after: str = ""


@dataclass
class Model:
    """`answer_s` is the time of an answer in a slot; `key` "" lets everyone in. usage: it tells
    what it counted; stream_options: it knows that field.
    """

    slots: int = 4
    answer_s: float = 0.0
    key: str = ""
    base: str = ""  # a path in place of `/v1`; "" for `/v1`
    key_header: str = ""  # which carries the key; "" as a Bearer
    query: dict[str, str] = field(default_factory=dict)  # that each request must have
    models: tuple[str, ...] = ("tiny",)
    unlisted: tuple[str, ...] = ()  # served all the same
    usage: bool = True
    stream_options: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)  # headers of the requests
    tokens: int = 0
    most_at_once: int = 0
    cancelled: int = 0
    faults: deque[Fault] = field(default_factory=deque)
    says: Callable[[dict[str, Any]], str] | None = None  # to a request; None: an echo of it
    held: asyncio.Event | None = None  # streams wait for it after their first piece
    together: int = 0  # so many must be in slots at once before the first is answered
    poison: str = ""  # prompts with it are answered with 500
    finish: str = "stop"  # why its answers end
    refuses: dict[str, str] = field(default_factory=dict)  # field of a request -> the sentence
    url: str = ""
    batches: Batches | None = None  # its batch API; None: it has none
    _now: int = 0

    async def start(self) -> "Model":
        """Where it listened before, if it did."""
        self._slots = asyncio.Semaphore(self.slots)
        self._met = asyncio.Event()
        app = web.Application(client_max_size=32 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        port = int(self.url.rpartition(":")[2] or 0)
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    def busy(self) -> asyncio.Semaphore:
        """`async with` it: one of its slots is taken."""
        return self._slots

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get(self.key_header or "Authorization")
        if self.key and given != (self.key if self.key_header else f"Bearer {self.key}"):
            return web.json_response({"error": {"message": "bad key"}}, status=401)
        if self.base:
            rest = request.path.removeprefix(self.base)
            if rest == request.path or dict(request.query) != self.query:
                return web.json_response({"error": {"message": "no such path"}}, status=404)
            request = request.clone(rel_url=f"/v1{rest}")
        match request.path:
            case "/v1/models":
                return web.json_response({"data": [{"id": name} for name in self.models]})
            case "/api/tags":
                return web.json_response({"models": [{"name": name} for name in self.models]})
            case "/health":
                return web.Response()
            case "/api/show" | "/api/ps" | "/api/version":
                body = await request.json() if request.method == "POST" else {}
                status, document = dialects.ollama(request.path, self.models, body)
                return web.json_response(document, status=status)
        if request.path.startswith(("/v1/files", "/v1/batches")):
            if self.batches is None:
                return web.json_response({"error": {"message": "not found"}}, status=404)
            return await self.batches.serve(request, self.reply)
        body = await request.json()
        self.asked.append({"path": request.path, **body})
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        if body.get("model") not in (*self.models, *self.unlisted):
            return web.json_response({"error": {"message": "model not found"}}, status=404)
        if "stream_options" in body and not self.stream_options:
            message = "unknown field `stream_options`"
            return web.json_response({"error": {"message": message}}, status=400)
        for name, message in self.refuses.items():
            if name in body:
                return web.json_response({"error": {"message": message}}, status=400)
        if self.poison and self.poison in _text(body):
            return web.json_response({"error": {"message": "poisoned"}}, status=500)
        try:
            async with self._slots:
                self._now += 1
                self.most_at_once = max(self.most_at_once, self._now)
                try:
                    await self._meet()
                    return await self._answer(request, body)
                finally:
                    self._now -= 1
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """To a row of a batch; its tokens are not among `tokens`."""
        text = f"echo: {_text(body)}" if self.says is None else self.says(body)
        found = _openai(text, len(_text(body).split()), {**body, "stream": False}, usage=self.usage)
        whole: dict[str, Any] = json.loads(found[0])
        return whole

    async def _meet(self) -> None:
        """Where they never do, whoever waits is answered, and the test sees how many there were."""
        if self._now >= self.together:
            self._met.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._met.wait(), MEET_S_MAX)

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and isinstance(fault.what, int):
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return web.json_response({"error": {}}, status=fault.what, headers=headers)
        if fault is not None and fault.what == "hang":
            await asyncio.Event().wait()
        if fault is not None and fault.what in _NO_ANSWERS:
            kind, text = _NO_ANSWERS[str(fault.what)]
            return web.Response(text=text, content_type=kind)
        await asyncio.sleep(self.answer_s)
        words = len(_text(body).split())
        self.tokens += words
        if request.path in ("/v1/embeddings", "/api/embed"):
            return web.json_response(_embedded(request.path, body, words))
        text = f"echo: {_text(body)}" if self.says is None else self.says(body)
        if request.path in dialects.PATHS:
            pieces = dialects.pieces(request.path, text, words, body)
        elif request.path.startswith("/v1/"):
            pieces = _openai(text, words, body, usage=self.usage, finish=self.finish)
        else:
            pieces = _ollama(request.path, text, words, body)
        what = fault.what if fault is not None else ""
        if len(pieces) > 1 and what not in ("lost", "late"):
            return await self._stream(request, pieces, text, cut=what == "cut")
        self.tokens += len(text.split())
        if what == "late":
            await asyncio.Event().wait()
        if what == "lost":
            assert request.transport is not None
            request.transport.close()
        body_bytes = b"{not json" if what == "wrong-json" else b"".join(pieces)
        headers = {"Content-Type": "application/json", **self._told()}
        return web.Response(body=body_bytes, headers=headers)

    def _told(self) -> dict[str, str]:
        """Returns the headers that hosted services add to each answer."""
        return {"x-request-id": f"req-{len(self.asked)}", "x-ratelimit-remaining-requests": "7"}

    async def _stream(
        self, request: web.Request, pieces: list[bytes], text: str, *, cut: bool
    ) -> web.StreamResponse:
        """A word is counted when it is sent."""
        kind = "text/event-stream" if request.path.startswith("/v1/") else "application/x-ndjson"
        response = web.StreamResponse(headers={"Content-Type": kind, **self._told()})
        await response.prepare(request)
        for number, piece in enumerate(pieces):
            if number == 1 and cut:
                assert request.transport is not None
                request.transport.close()
                return response
            if number == 1 and self.held is not None:
                await self.held.wait()
            self.tokens += int(number < len(text.split()))
            await response.write(piece)
        return response


def embedding(text: str) -> list[float]:
    """The same for the same text, everywhere."""
    return [byte / 255 for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]


def _text(body: dict[str, Any]) -> str:
    if "messages" in body:
        return str(body["messages"][-1]["content"])
    found = body.get("prompt", body.get("input", ""))
    return " ".join(map(str, found)) if isinstance(found, list) else str(found)


def _embedded(path: str, body: dict[str, Any], words: int) -> dict[str, Any]:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    found = [embedding(str(text)) for text in texts]
    if path == "/api/embed":
        return {"model": body["model"], "prompt_eval_count": words, "embeddings": found}
    rows = [
        {"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(found)
    ]
    usage = {"prompt_tokens": words, "total_tokens": words}
    return {"object": "list", "model": body["model"], "data": rows, "usage": usage}


def _openai(
    text: str, words: int, body: dict[str, Any], *, usage: bool, finish: str = "stop"
) -> list[bytes]:
    out = len(text.split())
    counts = {"prompt_tokens": words, "completion_tokens": out, "total_tokens": words + out}
    told = {"usage": counts} if usage else {}
    head = {"id": "c-1", "created": 0, "model": body["model"]}
    if not body.get("stream"):
        choice = {
            "index": 0,
            "finish_reason": finish,
            "text": text,
            "message": {"role": "assistant", "content": text},
        }
        whole = {**head, "object": "chat.completion", "choices": [choice], **told}
        return [json.dumps(whole).encode()]
    chunk = {**head, "object": "chat.completion.chunk"}
    deltas: list[dict[str, Any]] = [
        {"index": 0, "delta": {"role": "assistant", "content": part}, "finish_reason": None}
        for part in text.split(" ")
    ]
    # Without it litellm takes a stream for one that broke off.
    deltas.append({"index": 0, "delta": {}, "finish_reason": finish})
    rows: list[dict[str, Any]] = [{**chunk, "choices": [delta]} for delta in deltas]
    if told and (body.get("stream_options") or {}).get("include_usage"):
        rows.append({**chunk, "choices": [], **told})
    return [f"data: {json.dumps(row)}\n\n".encode() for row in rows] + [b"data: [DONE]\n\n"]


def _ollama(path: str, text: str, words: int, body: dict[str, Any]) -> list[bytes]:
    def row(part: str, done: bool) -> bytes:
        said = {"message": {"role": "assistant", "content": part}}
        fields: dict[str, Any] = said if path == "/api/chat" else {"response": part}
        counts = {"prompt_eval_count": words, "eval_count": len(text.split())} if done else {}
        return (
            json.dumps({"model": body["model"], "done": done, **fields, **counts}).encode() + b"\n"
        )

    if body.get("stream") is False:
        return [row(text, True)]
    return [*(row(part, False) for part in text.split(" ")), row("", True)]
