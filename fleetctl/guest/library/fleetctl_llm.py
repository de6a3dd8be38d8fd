"""Model endpoints of a fleetctl task from its own program: standard library only.

    from fleetctl_llm import embed, llm_map, llm_query, llm_query_batched

    text = llm_query("Shorten: ...", model="chat", max_tokens=64)
    texts = llm_query_batched(prompts, temperature=0)       # at once, answers in their order
    vectors = embed(texts, model="embed")                   # one request for all
    kept = llm_map(rewrite, texts, on_error="original")     # any function, a thread each

`on_error` is the substitute for a call that failed: "raise" (the default), "original" (the prompt,
or the item of `llm_map`), "text" ("[ERROR] why"), or a mapping with the value itself:
{"text": ...}, for `embed` {"vector": ...}, for `llm_map` {"value": ...}. Each one is counted, and
above `maxFallbackShare` TooManyFallbacks is raised: no training on constants passes unnoticed. A
refusal of the endpoint, above all by a limit, is never replaced.

Threads may call at any time, and processes that were forked.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fleetctl_llm_line import (
    CallRefused,
    Instead,
    Line,
    TooManyFallbacks,
    line_of,
    model_of,
    shorten_error,
)

__all__ = [
    "CallRefused",
    "TooManyFallbacks",
    "embed",
    "llm_map",
    "llm_query",
    "llm_query_batched",
    "rlm_query",
    "rlm_query_batched",
]

AT_ONCE_MAX = 64  # in a batch; as many as the slots of a large server
TEXTS_MAX = 2048  # in a request for vectors; OpenAI's own limit, and others' too
PROBLEMS_MAX = 20  # failed calls that the error of a batch shows


def llm_query(
    prompt: str,
    model: Optional[str] = None,
    on_error: Any = "raise",
    system: Optional[str] = None,
    **parameters: Any,
) -> str:
    """Returns the model's answer. model: a name of the endpoint's `models`, the first one when
    None; parameters: of /v1/chat/completions, such as temperature and max_tokens.

    Raises ValueError for an empty prompt, RuntimeError when the call failed, CallRefused over a
    limit, TooManyFallbacks.
    """
    _check_text(prompt, "prompt")
    instead = _parse_on_error(on_error, "text")
    line = line_of("llm_query")
    try:
        return _request_text(
            line,
            prompt,
            model,
            system,
            parameters,
        )
    except Exception as error:  # `instead` stands in for any failure
        if instead is None:
            raise
        return str(line.replaced(prompt, error, instead, model))


def llm_query_batched(
    prompts: Sequence[str],
    model: Optional[str] = None,
    concurrency: Optional[int] = None,
    on_error: Any = "raise",
    system: Optional[str] = None,
    **parameters: Any,
) -> List[str]:
    """Returns the answers in the order of the prompts; `concurrency` (1 to 64) calls run at once,
    as many as the endpoint carries when None. The other arguments are llm_query's.

    Raises ValueError for an empty prompt; CallRefused when the limit does not allow all of them
    (no call is made then); RuntimeError, after all have ended, when some failed.
    """
    prompts = _check_texts(prompts, "prompt")
    instead = _parse_on_error(on_error, "text")
    width = _choose_width(concurrency)
    if not prompts:
        return []
    line = line_of("llm_query_batched")
    width = min(width, line.room(len(prompts), model))
    return _map_items(
        line,
        lambda prompt: _request_text(
            line,
            prompt,
            model,
            system,
            parameters,
        ),
        prompts,
        width,
        instead,
        "prompt",
        model,
    )


def embed(
    texts: Sequence[str],
    model: Optional[str] = None,
    on_error: Any = "raise",
) -> List[List[float]]:
    """Returns one vector a text, in their order, by one request (above 2048 texts by several).

    Raises ValueError for an empty text, else as llm_query.
    """
    texts = _check_texts(texts, "text")
    instead = _parse_on_error(on_error, "vector")
    if not texts:
        return []
    line = line_of("embed")
    vectors: List[List[float]] = []
    for begin in range(0, len(texts), TEXTS_MAX):
        part = texts[begin : begin + TEXTS_MAX]
        try:
            vectors += _request_vectors(line, part, model)
        except Exception as error:  # `instead` stands in for any failure
            if instead is None:
                raise
            vectors += [
                line.replaced(
                    None,
                    error,
                    instead,
                    model,
                    len(part),
                )
            ] * len(part)
    return vectors


def llm_map(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    concurrency: Optional[int] = None,
    on_error: Any = "raise",
) -> List[Any]:
    """Returns `function` of each item, in their order, from `concurrency` (1 to 64) threads: for
    chains of calls. Raises RuntimeError, after all have ended, when some failed.
    """
    items = list(items)
    instead = _parse_on_error(on_error, "value")
    width = _choose_width(concurrency)
    if not items:
        return []
    return _map_items(
        line_of("llm_map"),
        function,
        items,
        width,
        instead,
        "item",
    )


def rlm_query(
    prompt: str,
    context: str = "",
    model: Optional[str] = None,
    max_llm_calls: int = 50,
    max_llm_tokens: Optional[int] = None,
    max_llm_usd: Optional[float] = None,
    rlm_timeout: float = 3600.0,
    **parameters: Any,
) -> str:
    """Returns the answer of a recursive query: dspy's RLM calls the endpoint and runs code, in a
    process of its own in this sandbox, until it has one. max_llm_calls, max_llm_tokens,
    max_llm_usd: of the query and all queries below; rlm_timeout: seconds until all are ended.

    Raises ValueError for an empty prompt; RuntimeError without dspy in the image, over a limit,
    without a price where dollars are limited, or when the query failed.
    """
    limits = (max_llm_calls, max_llm_tokens, max_llm_usd, rlm_timeout)
    return rlm_query_batched(
        [prompt],
        1,
        context,
        model,
        *limits,
        **parameters,
    )[0]


def rlm_query_batched(
    prompts: Sequence[Any],
    concurrency: Optional[int] = None,
    context: str = "",
    model: Optional[str] = None,
    max_llm_calls: int = 50,
    max_llm_tokens: Optional[int] = None,
    max_llm_usd: Optional[float] = None,
    rlm_timeout: float = 3600.0,
    **parameters: Any,
) -> List[str]:
    """Returns the answers in the order of the prompts, which are texts or {"query", "context"};
    `concurrency` (1 to 4) queries run at once. The limits cover these and all below. Raises
    as rlm_query; when some failed, after all have ended.
    """
    import fleetctl_llm_rlm as rlm

    if isinstance(prompts, str):
        raise ValueError("prompts is a text; it must be a list of texts")
    line = line_of("rlm_query")

    def reply(messages: List[Dict[str, str]], again: Any) -> Tuple[str, Dict[str, Any]]:
        return _request_reply(
            line,
            messages,
            model,
            parameters,
            again,
        )

    budget = rlm.root(max_llm_calls, max_llm_tokens, max_llm_usd, rlm_timeout)
    price = line.price(model) if max_llm_usd is not None else None
    asking = rlm.Model(reply, parameters, price)
    return list(
        rlm.answer_prompts(
            asking,
            prompts,
            context,
            concurrency,
            budget,
        )
    )


def _request_text(
    line: Line,
    prompt: str,
    model: Optional[str],
    system: Optional[str],
    parameters: Dict[str, Any],
) -> str:
    messages = [{"role": "user", "content": prompt}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return _request_reply(line, messages, model, parameters)[0]


def _request_reply(
    line: Line,
    messages: List[Dict[str, str]],
    model: Optional[str],
    parameters: Dict[str, Any],
    again: Any = None,
) -> Tuple[str, Dict[str, Any]]:
    """Returns the text, and the whole reply."""
    body = {**model_of(model), "messages": messages, **parameters}
    reply = line.ask("/chat/completions", body, 1, again)
    finish = None
    try:
        choice = reply["choices"][0]
        text = choice["message"]["content"]
        finish = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        text = None
    if finish == "content_filter" and not text:
        raise RuntimeError("a content filter took the model's answer away")
    if not isinstance(text, str):
        raise RuntimeError("the model answered without a text")
    return text, reply


def _request_vectors(
    line: Line,
    texts: List[str],
    model: Optional[str],
) -> List[List[float]]:
    reply = line.ask("/embeddings", {**model_of(model), "input": texts}, len(texts))
    try:
        rows = sorted(reply["data"], key=lambda row: row["index"])
        vectors = [row["embedding"] for row in rows]
    except (KeyError, TypeError):
        raise RuntimeError("the model answered without vectors") from None
    if len(vectors) != len(texts):
        raise RuntimeError("%d texts were sent, and %d vectors came" % (len(texts), len(vectors)))
    return vectors


def _map_items(
    line: Line,
    function: Callable[[Any], Any],
    items: List[Any],
    width: int,
    instead: Instead,
    what: str,
    model: Optional[str] = None,
) -> List[Any]:
    stop: List[Exception] = []  # the error after which no further call is begun

    def outcome(item: Any) -> Tuple[Any, Optional[Exception]]:
        line.begun()
        if stop:
            return None, stop[0]
        try:
            return function(item), None
        except Exception as error:  # `instead` stands in for any failure
            failure = error
        try:
            return line.replaced(item, failure, instead, model), None
        except Exception as error:  # `instead` stands in for any failure
            if isinstance(error, (CallRefused, TooManyFallbacks)):
                stop.append(error)
            return None, error

    line.plan_calls(len(items))
    with ThreadPoolExecutor(min(width, len(items))) as pool:
        outcomes = list(pool.map(outcome, items))
    failed = [(number, error) for number, (_, error) in enumerate(outcomes) if error is not None]
    if failed:
        raise _of_all(failed, len(items), what)
    return [value for value, _ in outcomes]


def _of_all(
    failed: List[Tuple[int, Exception]],
    asked: int,
    what: str,
) -> Exception:
    """Returns one error for a batch, of the most specific kind."""
    too_many: List[Exception] = [
        error for _, error in failed if isinstance(error, TooManyFallbacks)
    ]
    if too_many:
        return too_many[0]
    shown = [
        "%s[%d]: %s" % (what, number, shorten_error(error))
        for number, error in failed[:PROBLEMS_MAX]
    ]
    if len(failed) > PROBLEMS_MAX:
        shown.append("and %d more" % (len(failed) - PROBLEMS_MAX))
    refused = any(isinstance(error, CallRefused) for _, error in failed)
    whole: Exception = (CallRefused if refused else RuntimeError)(
        "%d/%d failed: %s" % (len(failed), asked, "; ".join(shown))
    )
    whole.__cause__ = failed[0][1]
    return whole


def _parse_on_error(on_error: Any, name: str) -> Instead:
    if on_error == "raise":
        return None
    if on_error == "original" and name != "vector":
        return lambda original, _: original
    if on_error == "text" and name != "vector":
        return lambda _, error: "[ERROR] %s" % error
    if isinstance(on_error, dict) and list(on_error) == [name]:
        return lambda *_: on_error[name]
    words = '"raise"' if name == "vector" else '"raise", "original", "text"'
    raise ValueError('on_error is %r; it must be %s or {"%s": ...}' % (on_error, words, name))


def _check_texts(texts: Sequence[str], what: str) -> List[str]:
    if isinstance(texts, str):
        raise ValueError("%ss is a text; it must be a list of texts" % what)
    texts = list(texts)
    for number, text in enumerate(texts):
        _check_text(text, "%s[%d]" % (what, number))
    return texts


def _check_text(text: Any, where: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("%s is `%r`; it must be a text that is not empty" % (where, text))


def _choose_width(concurrency: Optional[int]) -> int:
    if concurrency is not None and concurrency < 1:
        raise ValueError("concurrency is `%s`; it must be at least 1" % concurrency)
    return min(AT_ONCE_MAX, concurrency or AT_ONCE_MAX)
