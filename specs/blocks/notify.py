"""`notify`: who gets notices of an object, and how. Addresses that are secrets, passwords
and keys stand in Secrets; a manifest names those.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.values.scalars import Name, NonEmptyText, Spec

SINKS_MAX = 20  # of one object; each of its ends writes a row for each of them
# Variables of the Secret that a sink names.
WEBHOOK_URL, WEBHOOK_KEY = "WEBHOOK_URL", "WEBHOOK_SECRET"
SLACK_URL = "SLACK_WEBHOOK_URL"
SMTP_URL = "SMTP_URL"

_ADDRESS = re.compile(r"[^@\s,;<>\"()]+@[^@\s,;<>\"()]+")


def _is_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError("it must be an address of mail, such as `me@example.org`")
    return value


def _is_url(value: str) -> str:
    if not value.startswith(("https://", "http://")) or "@" in value:
        raise ValueError(
            "it must be a URL with https or http, without a password; a secret one goes into a"
            f" Secret, as `{WEBHOOK_URL}`"
        )
    return value


Address = Annotated[str, AfterValidator(_is_address), Field(max_length=254)]


class Webhook(Spec):
    """A request with the notice as JSON, signed as standardwebhooks.com says."""

    url: Annotated[str, AfterValidator(_is_url), Field(max_length=2048)] | None = Field(
        default=None,
        description=f"Where to; default: what the secret has as `{WEBHOOK_URL}`.",
    )
    secret: Name | None = Field(
        default=None,
        description=f"A Secret with `{WEBHOOK_KEY}`, which signs, or `{WEBHOOK_URL}`; default: no.",
    )

    @model_validator(mode="after")
    def _has_a_url(self) -> Webhook:
        if self.url is None and self.secret is None:
            raise ValueError("a webhook needs `url`, or `secret` where the URL is one")
        return self


class Slack(Spec):
    """A line in a channel of Slack, or of what understands its incoming webhooks."""

    secret: Name = Field(description=f"A Secret with `{SLACK_URL}`.")


class Email(Spec):
    """A mail."""

    to: tuple[Address, ...] = Field(min_length=1, max_length=20, description="Who gets it.")
    secret: Name = Field(
        description=f"A Secret with `{SMTP_URL}`, such as `smtp://user:password@example.org:587`."
    )
    sender: Address | None = Field(
        default=None, alias="from", description="Who sends it; default: the first of `to`."
    )


class Notify(Spec):
    """A sink, and the events that it gets; which there are depends on the kind."""

    on: tuple[Literal["Failed", "Succeeded", "Skipped", "BudgetLow", "SourceFailed"], ...] = Field(
        min_length=1,
        description="Events: Failed, Succeeded, Skipped, BudgetLow or SourceFailed.",
    )
    webhook: Webhook | None = Field(default=None, description="A request; default none.")
    slack: Slack | None = Field(default=None, description="A line in Slack; default none.")
    email: Email | None = Field(default=None, description="A mail; default none.")
    command: tuple[NonEmptyText, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="A program on the controller's machine, which gets the notice on its standard"
        " input; default none.",
    )

    @model_validator(mode="after")
    def _tells_one(self) -> Notify:
        if len(self.sink) != 1:
            raise ValueError("it needs one of `webhook`, `slack`, `email` and `command`")
        return self

    @property
    def sink(self) -> dict[str, Any]:
        """Where notices go, as JSON: its one field, without the events."""
        return self.model_dump(
            mode="json", by_alias=True, exclude={"on"}, exclude_defaults=True, exclude_none=True
        )


class WorkNotify(Notify):
    """A sink, and the events that it gets."""

    on: tuple[Literal["Failed", "Succeeded", "Skipped", "BudgetLow"], ...] = Field(
        min_length=1, description="Events: Failed, Succeeded, Skipped or BudgetLow."
    )


class BudgetNotify(Notify):
    """A sink that gets a notice when a level of `warnAt` is crossed."""

    on: tuple[Literal["BudgetLow"], ...] = Field(
        min_length=1, description="Events: BudgetLow, at each level of `warnAt`."
    )


class SourceNotify(Notify):
    """A sink that gets a notice when a commit cannot be read or applied."""

    on: tuple[Literal["SourceFailed"], ...] = Field(
        min_length=1, description="Events: SourceFailed."
    )


WorkNotices = Annotated[
    tuple[WorkNotify, ...],
    Field(max_length=SINKS_MAX, description="Who gets notices of its end; default nobody."),
]
BudgetNotices = Annotated[
    tuple[BudgetNotify, ...],
    Field(max_length=SINKS_MAX, description="Who gets a notice when it runs low; default nobody."),
]
SourceNotices = Annotated[
    tuple[SourceNotify, ...],
    Field(max_length=SINKS_MAX, description="Who gets a notice when it fails; default nobody."),
]


def secrets_in(notify: tuple[Notify, ...]) -> tuple[tuple[int, str, str], ...]:
    """(position, field, name) of each Secret that is named there."""
    ways = ("webhook", "slack", "email")
    named = (
        (number, way, getattr(getattr(rule, way), "secret", None))
        for number, rule in enumerate(notify)
        for way in ways
    )
    return tuple((number, way, name) for number, way, name in named if name)
