"""A model server with OpenAI's protocol as the language model of an interpreter: `endpoint=`.

Made by interpreter.py when there is no `sub_lm`. Standard library alone; sends a request once, and
in the calling thread.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from fleetctl.common.errors import UsageError
from fleetctl.guest.library.fleetctl_llm_costs import tokens_of

FROM_VARIABLES = "env"
URL = "OPENAI_BASE_URL"
KEY = "OPENAI_API_KEY"
MODEL = "FLEETCTL_LLM_MODEL"
PROBLEM_CHARACTERS_MAX = 500
ANSWER_BYTES_MAX = 16 * 1024 * 1024
USD = "X-Fleetctl-Usd"  # header with the cost of a reply from our gateway, over all of its tries
TOKENS = "X-Fleetctl-Tokens"  # likewise: `in out`
LATE, BUSY = 408, 503  # with BUSY, as for a client's error, no model was asked yet


class ModelReply(str):
    """A reply's text. tokens: (in, out) as counted, None if uncounted; usd: likewise."""

    tokens: tuple[int, int] | None = None
    usd: float | None = None


class ServerRefused(RuntimeError):
    """The server refused before it asked a model, so that the usage is zero."""


class ModelServer:
    """endpoint: the base URL, such as http://127.0.0.1:11434/v1, or `env` for $OPENAI_BASE_URL; the
    key is $OPENAI_API_KEY, and the model $FLEETCTL_LLM_MODEL. Raises UsageError.
    """

    def __init__(self, endpoint: str, *, timeout_s: float) -> None:
        url = os.environ.get(URL, "") if endpoint == FROM_VARIABLES else endpoint
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            where = f"{URL} is" if endpoint == FROM_VARIABLES else "endpoint is"
            raise UsageError(
                f"{where} `{url}`; it must be the base URL of a model server",
                hint=f"endpoint='http://127.0.0.1:11434/v1', or endpoint='env' for ${URL}",
            )
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self.model = os.environ.get(MODEL, "")
        self._prices: dict[str, Mapping[str, float] | None] = {}

    def __call__(
        self,
        prompt: str = "",
        model: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> ModelReply:
        """Raises RuntimeError."""
        name = model or self.model
        if not name:
            raise RuntimeError(f"no model is named: set ${MODEL}, or llm_query(..., model=...)")
        asked = messages or [{"role": "user", "content": prompt}]
        body = json.dumps({"model": name, "messages": list(asked)}).encode()
        data, headers = self._send(self._request(self._url + "/chat/completions", body))
        return _parse_reply(data, headers)

    def price(self, model: str) -> Mapping[str, float] | None:
        """Returns our gateway's price of the model; None from every other server. Asks once."""
        if model not in self._prices:
            try:
                url = f"{self._url.removesuffix('/v1')}/limits?model={quote(model)}"
                data, _ = self._send(self._request(url))
                told = json.loads(data).get("price")
            except (RuntimeError, ValueError, AttributeError):
                told = None
            self._prices[model] = told if isinstance(told, dict) else None
        return self._prices[model]

    def _request(self, url: str, body: bytes | None = None) -> urllib.request.Request:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        return urllib.request.Request(url, body, headers)  # noqa: S310 - checked when made

    def _send(self, request: urllib.request.Request) -> tuple[bytes, Mapping[str, str]]:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:  # noqa: S310
                return reply.read(ANSWER_BYTES_MAX), reply.headers
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(PROBLEM_CHARACTERS_MAX).decode("utf-8", "replace")
            unasked = error.code == BUSY or (error.code < 500 and error.code != LATE)
            kind = ServerRefused if unasked else RuntimeError
            raise kind(f"the model server answered {error.code}: {text}") from None
        except OSError as error:
            raise RuntimeError(f"the model server cannot be asked: {error}") from error


def _parse_reply(data: bytes, headers: Mapping[str, str]) -> ModelReply:
    try:
        told = json.loads(data)
        text = told["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        text = None
    if not isinstance(text, str):
        raise RuntimeError("the model server answered without a text")
    reply = ModelReply(text)
    reply.tokens = tokens_of(headers.get(TOKENS), told.get("usage"))
    if usd := headers.get(USD):
        reply.usd = float(usd)
    return reply
