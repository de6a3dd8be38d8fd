"""One row: ask, check the answer, and where it does not match ask once more.

Called by the provider. Everything that it does hangs on the request and on the replies, so that who
asks again under the same numbers comes to the same end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.guest.journal.results import RESULT_BYTES_MAX
from fleetctl.providers.endpoint.replies import Answer, Failure, Reply, Usage, read
from fleetctl.providers.endpoint.schema import Mismatch, parsed
from fleetctl.specs.blocks.prompt import Prompt
from fleetctl.specs.values.hashing import canonical_json

# Of the calls of a row: what the gateway keeps their answers under.
FIRST, REPAIR = 1, 2

Post = Callable[[int, Mapping[str, Any]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """result: canonical JSON of a row that succeeded; else failure. log: what people may read of a
    row that failed: the answers that were not taken.
    """

    result: str | None = field(default=None, repr=False)
    failure: Failure | None = None
    log: str = field(default="", repr=False)


async def asked(prompt: Prompt, model: str, params: Mapping[str, object], post: Post) -> Outcome:
    """model: what the endpoint calls it, or "" for the server's only one. Raises Refused, and
    Unavailable when nothing was asked.
    """
    try:
        messages = prompt.said(params)
    except KeyError as error:
        raise Refused(
            f"the prompt names `${{{error.args[0]}}}`, and the row has no such parameter",
            hint="give every row the same parameters",
        ) from None
    first = read(await post(FIRST, _body(prompt, model, messages)))
    if isinstance(first, Failure):
        return Outcome(failure=first)
    try:
        return _taken(prompt, first, first.usage)
    except Mismatch as mismatch:
        return await _repaired(prompt, model, messages, first, str(mismatch), post)


async def _repaired(
    prompt: Prompt, model: str, messages: list[dict[str, str]], first: Answer, why: str, post: Post
) -> Outcome:
    """Ask once more, with the answer and what is wrong with it. The row fails when that cannot be
    asked now: the first answer is paid for, and to begin anew would pay it again.
    """
    log = f"[answer 1: {why}]\n{first.text}\n"
    text = (
        f"Your answer does not match the JSON schema: {why}. Answer again with nothing but JSON"
        " that matches it."
    )
    messages = [
        *messages,
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": text},
    ]
    try:
        second = read(await post(REPAIR, _body(prompt, model, messages)))
    except Unavailable as error:
        second = Failure("", str(error))
    if isinstance(second, Failure):
        message = f"{why}; it could not be asked again: {second.message}"
        return Outcome(failure=Failure("AnswerInvalid", message), log=log)
    try:
        return _taken(prompt, second, first.usage + second.usage)
    except Mismatch as mismatch:
        cut = ", cut off at `maxTokens`" if second.finish == "length" else ""
        message = f"{mismatch}; asked twice{cut}"
        log += f"[answer 2: {mismatch}]\n{second.text}\n"
        return Outcome(failure=Failure("AnswerInvalid", message), log=log)


def _taken(prompt: Prompt, answer: Answer, usage: Usage) -> Outcome:
    """Raises Mismatch."""
    value = answer.text if prompt.answer is None else parsed(answer.text, prompt.answer)
    finish = {} if answer.finish in ("", "stop") else {"finish": answer.finish}
    result = canonical_json({"answer": value, "usage": usage.told(), **finish})
    if len(result) > RESULT_BYTES_MAX:
        message = f"the answer has {len(result):,} bytes; at most {RESULT_BYTES_MAX:,} are kept"
        return Outcome(failure=Failure("ResultInvalid", message))
    return Outcome(result)


def _body(prompt: Prompt, model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    """In OpenAI's words, which Ollama's server reads as well: the gateway chooses the server."""
    body = {**prompt.parameters.body(), "messages": messages, "stream": False}
    if model:
        body["model"] = model
    if prompt.answer is not None:
        schema = {"name": "answer", "schema": prompt.answer}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body
