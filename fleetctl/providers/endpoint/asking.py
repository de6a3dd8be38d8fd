"""One row: ask, check the answer, and where it does not match ask once more.

Called by the provider. Everything that it does hangs on the request and on the replies, so that who
asks again under the same numbers comes to the same end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.guest.journal.results import RESULT_BYTES_MAX
from fleetctl.providers.endpoint.replies import CALL_REFUSED, Answer, Failure, Reply, Usage, read
from fleetctl.providers.endpoint.schema import Mismatch, parsed
from fleetctl.specs.blocks.prompt import Prompt
from fleetctl.specs.values.hashing import canonical_json

# Of the calls of a row: what the gateway keeps their answers under.
FIRST, REPAIR, PLAINER, PLAINEST = NUMBERS = (1, 2, 3, 4)

Messages = list[dict[str, str]]
Post = Callable[[int, Mapping[str, Any]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a row is asked: servers without `response_format`, and models without a system's message,
    refuse a row that has them, and answer where the prompt's text says the same.
    """

    schema_in_text: bool = False
    system_in_text: bool = False

    def after(self, refusal: Failure, prompt: Prompt) -> Manner | None:
        """How to ask once more; None where the refusal is of something else."""
        words = refusal.message.lower()
        if refusal.reason != CALL_REFUSED:
            return None
        of_format = "response_format" in words or "json_schema" in words
        if prompt.answer is not None and not self.schema_in_text and of_format:
            return replace(self, schema_in_text=True)
        of_system = "system" in words and ("role" in words or "message" in words)
        if not self.system_in_text and of_system:
            return replace(self, system_in_text=True)
        return None

    def put(self, prompt: Prompt, messages: Messages) -> Messages:
        if self.system_in_text and messages[0]["role"] == "system" and len(messages) > 1:
            system, first, *others = messages
            text = f"{system['content']}\n\n{first['content']}"
            messages = [{**first, "content": text}, *others]
        if self.schema_in_text:
            *others, last = messages
            schema = canonical_json(prompt.answer)
            asks = f"Answer with nothing but JSON that matches this JSON schema: {schema}"
            messages = [*others, {**last, "content": f"{last['content']}\n\n{asks}"}]
        return messages


@dataclass(frozen=True, slots=True)
class Outcome:
    """result: canonical JSON of a row that succeeded; else failure. log: what people may read of a
    row that failed: the answers that were not taken.
    """

    result: str | None = field(default=None, repr=False)
    failure: Failure | None = None
    log: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Row:
    prompt: Prompt
    model: str
    post: Post

    def body(self, messages: Messages, manner: Manner) -> dict[str, Any]:
        """In OpenAI's words, which Ollama's servers read as well: the gateway chooses one."""
        prompt = self.prompt
        messages = manner.put(prompt, messages)
        body = {**prompt.parameters.body(), "messages": messages, "stream": False}
        if self.model:
            body["model"] = self.model
        if prompt.answer is not None and not manner.schema_in_text:
            schema = {"name": "answer", "schema": prompt.answer}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


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
    row = Row(prompt, model, post)
    manner, first = Manner(), read(await post(FIRST, row.body(messages, Manner())))
    for number in (PLAINER, PLAINEST):
        other = manner.after(first, prompt) if isinstance(first, Failure) else None
        if other is None:
            break
        manner = other
        first = read(await post(number, row.body(messages, manner)))
    if isinstance(first, Failure):
        return Outcome(failure=first)
    try:
        return _taken(prompt, first, first.usage)
    except Mismatch as mismatch:
        return await _repaired(row, manner, messages, first, str(mismatch))


async def _repaired(
    row: Row, manner: Manner, messages: Messages, first: Answer, why: str
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
        second = read(await row.post(REPAIR, row.body(messages, manner)))
    except Unavailable as error:
        second = Failure("", str(error))
    if isinstance(second, Failure):
        message = f"{why}; it could not be asked again: {second.message}"
        return Outcome(failure=Failure("AnswerInvalid", message), log=log)
    try:
        return _taken(row.prompt, second, first.usage + second.usage)
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
