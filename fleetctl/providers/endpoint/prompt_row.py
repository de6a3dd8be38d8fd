"""Asks one row: sends it, checks whether the answer is the JSON that its schema asks for, and where
it is not, sends it once more.

Everything that it does hangs on the request and on the replies, so that who asks again under the
same numbers comes to the same end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.guest.journal.results import RESULT_BYTES_MAX
from fleetctl.providers.endpoint.gateway_connection import (
    CALL_REFUSED,
    GatewayReply,
    ModelAnswer,
    ModelFailure,
    TokenUsage,
    read_reply,
)
from fleetctl.specs.blocks.prompt import Prompt
from fleetctl.specs.values.hashing import canonical_json

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


# Numbers of a row's calls, under which the gateway keeps their answers.
FIRST, REPAIR, PLAINER, PLAINEST = NUMBERS = (1, 2, 3, 4)

Messages = list[dict[str, str]]
Post = Callable[[int, Mapping[str, Any]], Awaitable[GatewayReply]]

MESSAGE_CHARS_MAX = 300
# Models without a grammar of their own put their JSON into a block of Markdown.
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)

_THOUGHT = "</think>"


@dataclass(frozen=True, slots=True)
class AskOptions:
    """The way a row is sent: servers without `response_format`, and models without a system's
    message, refuse a row that has them, and answer where the prompt's text has the same content.
    """

    schema_in_text: bool = False
    system_in_text: bool = False

    def after(self, refusal: ModelFailure, prompt: Prompt) -> AskOptions | None:
        """Returns the options of a second request; None if the refusal has another cause."""
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
class RowOutcome:
    """The outcome of a row. result: canonical JSON of a row that succeeded; else failure. log: for
    readers of a failed
    row: the answers that were not taken.
    """

    result: str | None = field(default=None, repr=False)
    failure: ModelFailure | None = None
    log: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class PromptRow:
    prompt: Prompt
    model: str
    post: Post

    def body(self, messages: Messages, manner: AskOptions) -> dict[str, Any]:
        """Returns the body in OpenAI's words, which Ollama's servers read as well: the gateway
        chooses one.
        """
        prompt = self.prompt
        messages = manner.put(prompt, messages)
        body = {**prompt.parameters.body(), "messages": messages, "stream": False}
        if self.model:
            body["model"] = self.model
        if prompt.answer is not None and not manner.schema_in_text:
            schema = {"name": "answer", "schema": prompt.answer}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


async def ask_row(
    prompt: Prompt,
    model: str,
    params: Mapping[str, object],
    post: Post,
) -> RowOutcome:
    """Asks a row. model: its name at the endpoint, or "" for the server's only one. Raises Refused,
    and Unavailable when no model was asked.
    """
    try:
        messages = prompt.said(params)
    except KeyError as error:
        raise Refused(
            f"the prompt names `${{{error.args[0]}}}`, and the row has no such parameter",
            hint="give every row the same parameters",
        ) from None
    row = PromptRow(prompt, model, post)
    manner, first = AskOptions(), read_reply(await post(FIRST, row.body(messages, AskOptions())))
    for number in (PLAINER, PLAINEST):
        other = manner.after(first, prompt) if isinstance(first, ModelFailure) else None
        if other is None:
            break
        manner = other
        first = read_reply(await post(number, row.body(messages, manner)))
    if isinstance(first, ModelFailure):
        return RowOutcome(failure=first)
    try:
        return _parse_outcome(prompt, first, first.usage)
    except SchemaMismatch as mismatch:
        return await _repair_answer(
            row,
            manner,
            messages,
            first,
            str(mismatch),
        )


async def _repair_answer(
    row: PromptRow,
    manner: AskOptions,
    messages: Messages,
    first: ModelAnswer,
    why: str,
) -> RowOutcome:
    """Sends a second request with the answer and its problem. The row fails if this cannot be sent
    now: the first answer is paid for, and a new start would pay for it again.
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
        second = read_reply(await row.post(REPAIR, row.body(messages, manner)))
    except Unavailable as error:
        second = ModelFailure("", str(error))
    if isinstance(second, ModelFailure):
        message = f"{why}; it could not be asked again: {second.message}"
        return RowOutcome(failure=ModelFailure("AnswerInvalid", message), log=log)
    try:
        return _parse_outcome(row.prompt, second, first.usage + second.usage)
    except SchemaMismatch as mismatch:
        cut = ", cut off at `maxTokens`" if second.finish == "length" else ""
        message = f"{mismatch}; asked twice{cut}"
        log += f"[answer 2: {mismatch}]\n{second.text}\n"
        return RowOutcome(failure=ModelFailure("AnswerInvalid", message), log=log)


def _parse_outcome(
    prompt: Prompt,
    answer: ModelAnswer,
    usage: TokenUsage,
) -> RowOutcome:
    """Builds the result of a row from the answer. Raises SchemaMismatch where the answer is not of
    the schema.
    """
    value = answer.text if prompt.answer is None else parse_matching(answer.text, prompt.answer)
    finish = {} if answer.finish in ("", "stop") else {"finish": answer.finish}
    result = canonical_json({"answer": value, "usage": usage.to_json(), **finish})
    if len(result) > RESULT_BYTES_MAX:
        message = f"the answer has {len(result):,} bytes; at most {RESULT_BYTES_MAX:,} are kept"
        return RowOutcome(failure=ModelFailure("ResultInvalid", message))
    return RowOutcome(result)


class SchemaMismatch(Exception):
    """Raised when an answer does not fit the schema; the text has where and why."""


def parse_matching(text: str, schema: Mapping[str, Any]) -> Any:
    """Returns the value of an answer. Raises SchemaMismatch; Refused for an invalid schema, or
    without the library.
    """
    try:
        value = _parse_value(text)
    except RecursionError:
        raise SchemaMismatch("the answer is nested too deeply") from None
    except ValueError as error:
        raise SchemaMismatch(f"the answer is not JSON: {error}") from None
    validator = _build_validator(canonical_json(schema))
    try:
        # The mistake nearest to the top explains most; of equally near ones the first.
        errors = validator.iter_errors(value)
        found = min(errors, key=lambda it: len(it.absolute_path), default=None)
    except _unresolved_error() as error:
        message = f"prompt.schema refers to `{error}`, which it does not hold"
        raise Refused(message, hint="write it below `$defs`; nothing is fetched") from error
    if found is not None:
        raise SchemaMismatch(f"at {found.json_path}: {found.message[:MESSAGE_CHARS_MAX]}")
    return value


def _parse_value(text: str) -> Any:
    """Returns the JSON value of an answer. Raises ValueError, RecursionError. Thoughts before the
    answer, which servers without a parser for them leave in the text, are cut off.
    """
    match = _FENCED.fullmatch(text)
    try:
        return json.loads(match[1] if match else text, parse_constant=_refuse_number)
    except ValueError:
        _, thought, answer = text.rpartition(_THOUGHT)
        if not thought:
            raise
        return _parse_value(answer)


def _unresolved_error() -> type[Exception]:
    from referencing.exceptions import Unresolvable

    return Unresolvable


def _refuse_number(word: str) -> object:
    raise ValueError(f"{word} is not a number of JSON")


@lru_cache(64)
def _build_validator(schema: str) -> Validator:
    """Returns the validator of a schema. schema: canonical JSON. Its references are never
    fetched.
    """
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from referencing import Registry
    except ModuleNotFoundError as error:
        raise Refused(
            f"a schema needs the package `{error.name}`, which is not installed",
            hint=install_hint("endpoints"),
        ) from error
    document = json.loads(schema)
    try:
        Draft202012Validator.check_schema(document)
    except SchemaError as error:
        message = f"prompt.schema must be a JSON Schema: {error.message}"
        raise Refused(message, hint="`{type: object, properties: {...}}` is one") from error
    return Draft202012Validator(document, registry=Registry())
