"""A model server with OpenAI's protocol as the language model of an interpreter, and the worst-case
and actual cost of a call to it.

Tokens are those reported by the model: a server in its `usage`, a model of dspy's to dspy's usage
tracker, a function by a `usage` beside its `text`. Without a report they are the bytes of the
texts, which are never fewer; hidden reasoning cannot be known then. Dollars are those of our
gateway, else by `llm_prices`, else unknown, which is never 0.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlsplit

from fleetctl.common.errors import UsageError
from fleetctl.guest.library.fleetctl_llm_budget import Ask
from fleetctl.guest.library.fleetctl_llm_costs import tokens_of, usage_of, usd_of, worst_tokens

FROM_VARIABLES = "env"
URL = "OPENAI_BASE_URL"
KEY = "OPENAI_API_KEY"
MODEL = "FLEETCTL_LLM_MODEL"
PROBLEM_CHARACTERS_MAX = 500
ANSWER_BYTES_MAX = 16 * 1024 * 1024
USD = "X-Fleetctl-Usd"  # header with the cost of a reply from our gateway, over all of its tries
TOKENS = "X-Fleetctl-Tokens"  # likewise: `in out`
LATE, BUSY = 408, 503  # with BUSY, as for a client's error, no model was asked yet

ANY_MODEL = "*"
PRICE_NAMES = ("inputPerMillion", "outputPerMillion")
HINT = 'llm_prices={"%s": {"inputPerMillion": 0.10, "outputPerMillion": 0.30}}'

Prices = Mapping[str, Mapping[str, float]]
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


class ModelReply(str):
    """A reply's text. tokens: (in, out) as counted, None if uncounted; usd: likewise."""

    tokens: tuple[int, int] | None = None
    usd: float | None = None


class ServerRefused(RuntimeError):
    """The server refused before it asked a model, so that the usage is zero."""


class ModelServer:
    """A server that is called with the standard library alone, once for each request, in the
    calling thread.

    endpoint: the base URL, such as http://127.0.0.1:11434/v1, or `env` for $OPENAI_BASE_URL; the
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
        """Sends a prompt or messages to a model, and returns its reply. Raises RuntimeError."""
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


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """The reply of a model, and the `usage` that it reported beside it."""

    answer: Any
    usage: Mapping[str, Any] | None = None


class CallMeter:
    """Meters one language model. limited: dollars are limited, so that its price must be known.

    Raises UsageError for invalid prices, and where the model's cost cannot be known.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        prices: Prices,
        *,
        limited: bool,
    ) -> None:
        _check_prices(prices)
        if limited and not prices and not isinstance(model, ModelServer):
            raise UsageError(
                "max_llm_usd limits what sub_lm costs, and its price is unknown, which is not 0",
                hint=HINT % (getattr(model, "model", "") or ANY_MODEL),
            )
        self._model = model
        self._prices = prices
        self._limited = limited

    def worst(self, arguments: Arguments) -> Ask:
        """Asks for the price once, where dollars are limited and our gateway may know it."""
        name, (args, named) = self._name(arguments), arguments
        own = getattr(self._model, "kwargs", None)  # of a model of dspy's
        parameters = {**(own if isinstance(own, Mapping) else {}), **named}
        length_bytes = _length_bytes([*args, named])
        tokens = worst_tokens(length_bytes, parameters)
        unpriced = f"`{name}` has no price: " + HINT % (name or ANY_MODEL)
        return Ask(sum(tokens), usd_of(self._price(name), tokens), unpriced)

    def ask(self, arguments: Arguments) -> ModelOutput:
        """Calls the model; the result of a coroutine function is yet to be awaited. May block."""
        args, named = arguments
        if not is_dspys(self._model):
            return ModelOutput(self._model(*args, **named))
        from dspy.utils.usage_tracker import track_usage

        with track_usage() as tracker:
            answer = self._model(*args, **named)
        totals = [usage_of(one) for one in tracker.get_total_tokens().values()]
        told = [one for one in totals if one is not None]
        if not told:
            return ModelOutput(answer)  # of dspy's cache, or by a server that does not count
        inward, outward = (sum(column) for column in zip(*told, strict=True))
        return ModelOutput(answer, {"prompt_tokens": inward, "completion_tokens": outward})

    def cost(self, arguments: Arguments, said: ModelOutput) -> tuple[int, float | None]:
        """Returns (tokens, USD) of a reply."""
        answer = said.answer
        usage = said.usage
        if isinstance(answer, Mapping) and usage is None:
            usage = answer.get("usage")
        tokens = answer.tokens if isinstance(answer, ModelReply) else usage_of(usage)
        if tokens is None:
            args, named = arguments
            tokens = _length_bytes([*args, named]), _length_bytes(answer)
        if isinstance(answer, ModelReply) and answer.usd is not None:
            return sum(tokens), answer.usd
        return sum(tokens), usd_of(self._price(self._name(arguments)), tokens)

    def _name(self, arguments: Arguments) -> str:
        return str(arguments[1].get("model") or getattr(self._model, "model", "") or "")

    def _price(self, name: str) -> Mapping[str, float] | None:
        price = self._prices.get(name) or self._prices.get(ANY_MODEL)
        if price is None and self._limited and isinstance(self._model, ModelServer):
            return self._model.price(name)
        return price


def is_dspys(model: object) -> bool:
    """Checks without importing dspy: a caller with one of its models has imported it."""
    dspy = sys.modules.get("dspy")
    return dspy is not None and isinstance(model, cast(type, dspy.BaseLM))


def _length_bytes(value: Any) -> int:
    """Returns the bytes of a message, with its frame."""
    try:
        return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        return len(str(value).encode("utf-8", "replace"))


def _check_prices(prices: Prices) -> None:
    for model, price in prices.items():
        known = isinstance(price, Mapping) and set(price) <= set(PRICE_NAMES) and price
        if not known or any(
            isinstance(usd, bool) or not isinstance(usd, (int, float)) or not 0 <= usd < 1e9
            for usd in price.values()
        ):
            raise UsageError(
                f"llm_prices of `{model}` is `{price!r}`; it must be USD of a million tokens",
                hint=HINT % model,
            )
