"""Computes the worst-case and the actual cost of a call to an interpreter's language model.

Used by questions.py. Tokens are those reported by the model: a server in its `usage`, a model of
dspy's to dspy's usage tracker, a function by a `usage` beside its `text`. Without a report they are
the bytes of the texts, which are never fewer; its hidden reasoning cannot be known. Dollars are
those of our gateway, else by `llm_prices`, else unknown, which is never 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fleetctl.common.errors import UsageError
from fleetctl.guest.library.fleetctl_llm_budget import Ask
from fleetctl.guest.library.fleetctl_llm_costs import usage_of, usd_of, worst_tokens
from fleetctl.interpreter.asking.model_server import ModelReply, ModelServer

ANY_MODEL = "*"
PRICE_NAMES = ("inputPerMillion", "outputPerMillion")
HINT = 'llm_prices={"%s": {"inputPerMillion": 0.10, "outputPerMillion": 0.30}}'

Prices = Mapping[str, Mapping[str, float]]
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


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
