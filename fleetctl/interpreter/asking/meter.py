"""What a call of an interpreter's language model may cost at worst, and what it did cost.

Used by questions.py. Tokens are what the model says it used: a server in its `usage`, a model of
dspy's to dspy's usage tracker, a function by a `usage` beside its `text`. Of one that says nothing
they are the bytes of the texts, which are never fewer; what it thought besides cannot be known.
Dollars are what our gateway says, else by `llm_prices`, else unknown, which is never 0.
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
from fleetctl.interpreter.asking.endpoint import ModelServer, Reply

ANY_MODEL = "*"
PRICE_NAMES = ("inputPerMillion", "outputPerMillion")
HINT = 'llm_prices={"%s": {"inputPerMillion": 0.10, "outputPerMillion": 0.30}}'

Prices = Mapping[str, Mapping[str, float]]
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Said:
    """What a model returned, and the `usage` that it told apart from it."""

    answer: Any
    usage: Mapping[str, Any] | None = None


class Meter:
    """Of one language model. limited: whether dollars are, so that its price must be known.

    Raises UsageError for prices that are none, and where nobody could say what the model costs.
    """

    def __init__(self, model: Callable[..., Any], prices: Prices, *, limited: bool) -> None:
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

    def ask(self, arguments: Arguments) -> Said:
        """Call the model; what a coroutine function returns is yet to be awaited. May block."""
        args, named = arguments
        if not is_dspys(self._model):
            return Said(self._model(*args, **named))
        from dspy.utils.usage_tracker import track_usage

        with track_usage() as tracker:
            answer = self._model(*args, **named)
        totals = [usage_of(one) for one in tracker.get_total_tokens().values()]
        told = [one for one in totals if one is not None]
        if not told:
            return Said(answer)  # of dspy's cache, or by a server that does not count
        inward, outward = (sum(column) for column in zip(*told, strict=True))
        return Said(answer, {"prompt_tokens": inward, "completion_tokens": outward})

    def cost(self, arguments: Arguments, said: Said) -> tuple[int, float | None]:
        """(tokens, USD) of an answer."""
        answer, usage = said.answer, said.usage
        if isinstance(answer, Mapping) and usage is None:
            usage = answer.get("usage")
        tokens = answer.tokens if isinstance(answer, Reply) else usage_of(usage)
        if tokens is None:
            args, named = arguments
            tokens = _length_bytes([*args, named]), _length_bytes(answer)
        if isinstance(answer, Reply) and answer.usd is not None:
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
    """Without importing it: who has one of its models has imported it."""
    dspy = sys.modules.get("dspy")
    return dspy is not None and isinstance(model, cast(type, dspy.BaseLM))


def _length_bytes(value: Any) -> int:
    """Of what was said, with what frames it."""
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
