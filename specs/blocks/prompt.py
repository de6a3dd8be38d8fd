"""The request of a unit to a model: `template.prompt`, which replaces a program and its sandbox.

Read by controllers as part of a template, and by provider `endpoint`, which sends the request.
Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator

from fleetctl.specs.values.scalars import Float, Int, Name, NonEmptyText, PositiveCount, Spec, Text

MESSAGES_MAX = 256  # a conversation that is written by hand is far shorter
STOPS_MAX = 16  # servers take 4 to 16
# `$${name}` is written for `${name}` itself.
_NAMED = re.compile(r"\$?\$\{([^{}]*)\}")


class PromptMessage(Spec):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Role of the speaker.")
    content: Text = Field(description="Text of the message; `${name}` is a parameter.")


class PromptParameters(Spec):
    """How the model answers; the server decides what is left out."""

    temperature: Annotated[Float, Field(ge=0, le=2)] | None = Field(
        default=None, description="Randomness from 0 to 2; default: the server's."
    )
    top_p: Annotated[Float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Share of likely words to draw from; default: the server's."
    )
    max_tokens: PositiveCount | None = Field(
        default=None, description="Tokens of an answer at most; default: the server's."
    )
    seed: Int | None = Field(default=None, description="Seed of the draws; default none.")
    stop: tuple[NonEmptyText, ...] = Field(
        default=(),
        max_length=STOPS_MAX,
        description="Texts that end an answer; default none.",
    )
    frequency_penalty: Annotated[Float, Field(ge=-2, le=2)] | None = Field(
        default=None, description="Penalty for repeated words; default: the server's."
    )
    presence_penalty: Annotated[Float, Field(ge=-2, le=2)] | None = Field(
        default=None, description="Penalty for known subjects; default: the server's."
    )
    extra: dict[NonEmptyText, JsonValue] = Field(
        default_factory=dict,
        description="Further fields of the request, as the server names them, such as `top_k`;"
        " default none.",
    )

    @model_validator(mode="after")
    def _require_each_once(self) -> PromptParameters:
        for name in self.extra:
            if name in _OWN:
                raise ValueError(f"`extra` holds `{name}`, which has a field of its own")
        return self

    def body(self) -> dict[str, Any]:
        """Returns the fields of a request, named as servers name them."""
        given = self.model_dump(
            mode="json",
            exclude={"extra"},
            exclude_defaults=True,
        )
        return {**self.extra, **given}


# Fields of a request that others of ours stand for.
_OWN = {*PromptParameters.model_fields, "model", "messages", "response_format", "stream", "n"}
_OWN -= {"extra"}


class Prompt(Spec):
    """One call of a model: exactly one of `text` and `messages`."""

    endpoint: Name = Field(description="Name of the Endpoint object to ask.")
    model: NonEmptyText | None = Field(
        default=None, description="One of the endpoint's `models`; default: its first."
    )
    text: NonEmptyText | None = Field(
        default=None, description="The user's message; `${name}` is a parameter of the row."
    )
    messages: tuple[PromptMessage, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MESSAGES_MAX,
        description="A whole conversation in place of `text`.",
    )
    system: NonEmptyText | None = Field(
        default=None, description="System message before it; default none."
    )
    answer: dict[str, JsonValue] | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema of the answer, which is asked for once more if it differs;"
        " default: text.",
    )
    parameters: PromptParameters = Field(
        default_factory=PromptParameters, description="How the model answers."
    )
    mode: Literal["online", "batch"] = Field(
        default="online",
        description="`online`: a row is a call; `batch`: rows go by the server's batch API; default"
        " online.",
    )

    @model_validator(mode="after")
    def _require_one_form(self) -> Prompt:
        if (self.text is None) == (self.messages is None):
            raise ValueError("a prompt needs exactly one of `text` and `messages`")
        if self.system is not None and self.messages and self.messages[0].role == "system":
            raise ValueError("`messages` begins with the system's message; leave `system` out")
        return self

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yields each text of the messages, with its path in the prompt."""
        if self.system is not None:
            yield ("system",), self.system
        if self.text is not None:
            yield ("text",), self.text
        for number, message in enumerate(self.messages or ()):
            yield ("messages", number, "content"), message.content

    def said(self, params: Mapping[str, object]) -> list[dict[str, str]]:
        """Returns the conversation with the parameters in it. Raises KeyError for an
        unknown name.
        """
        told = [] if self.system is None else [("system", self.system)]
        told += [(it.role, it.content) for it in self.messages or ()]
        if self.text is not None:
            told.append(("user", self.text))
        return [{"role": role, "content": fill_text(text, params)} for role, text in told]


def names_in(text: str) -> Iterator[str]:
    """The parameters that a text names."""
    for match in _NAMED.finditer(text):
        if not match[0].startswith("$$"):
            yield match[1]


def fill_text(text: str, params: Mapping[str, object]) -> str:
    """Returns `text` with each `${name}` replaced: by a text as it is, by anything else as JSON."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        found = params[match[1]]
        if isinstance(found, str):
            return found
        return json.dumps(found, ensure_ascii=False)

    return _NAMED.sub(value, text)
