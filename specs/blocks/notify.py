"""`notify`: the receivers of notices of an object, and the ways. Addresses that are secrets,
passwords and keys stand in Secrets; a manifest names those.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.values.scalars import OLD_NAME, Name, NonEmptyText, Spec, WhenSpec

SINKS_MAX = 20  # per object; each end of the object writes a row for each sink
# Variables of the Secret that a sink names.
WEBHOOK_URL = "WEBHOOK_URL"
WEBHOOK_KEY = "WEBHOOK_SECRET"
SLACK_URL = "SLACK_WEBHOOK_URL"
SMTP_URL = "SMTP_URL"
GITHUB_TOKEN, GITLAB_TOKEN = "GITHUB_TOKEN", "GITLAB_TOKEN"

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
        description=f"Address of the webhook; default: the secret's `{WEBHOOK_URL}`.",
    )
    secret: Name | None = Field(
        default=None,
        description=f"A Secret with `{WEBHOOK_KEY}`, which signs, or `{WEBHOOK_URL}`; default"
        " none.",
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

    to: tuple[Address, ...] = Field(
        min_length=1,
        max_length=20,
        description="Addresses of the recipients.",
    )
    secret: Name = Field(
        description=f"A Secret with `{SMTP_URL}`, such as `smtp://user:password@example.org:587`."
    )
    sender: Address | None = Field(
        default=None,
        alias="from",
        description="Address of the sender; default: the first of `to`.",
    )


class CommitStatus(Spec):
    """The state of a Source's commit, shown beside the commit at GitHub or GitLab."""

    secret: Name = Field(description=f"A Secret with `{GITHUB_TOKEN}` or `{GITLAB_TOKEN}`.")
    url: Annotated[str, AfterValidator(_is_url), Field(max_length=2048)] | None = Field(
        default=None,
        description="URL of the API, such as `https://git.example.org/api/v4`; default: by the"
        " repository's host.",
    )


AnyEvent = Literal["Failed", "Succeeded", "Skipped", "BudgetLow", "SourceFailed", "SourceApplied"]
WorkEvent = Literal["Failed", "Succeeded", "Skipped", "BudgetLow"]
BudgetEvent = Literal["BudgetLow"]
SourceEvent = Literal["SourceFailed", "SourceApplied"]
_OF_COMMITS: tuple[SourceEvent, ...] = ("SourceFailed", "SourceApplied")


class Notify(WhenSpec):
    """A sink, and the events that it gets; which there are depends on the kind."""

    when_needed: ClassVar[bool] = True

    when: tuple[AnyEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description="Events: Failed, Succeeded, Skipped, BudgetLow, SourceFailed or SourceApplied;"
        " required.",
    )
    on: tuple[AnyEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description=OLD_NAME,
    )
    webhook: Webhook | None = Field(default=None, description="A request; default none.")
    slack: Slack | None = Field(default=None, description="A line in Slack; default none.")
    email: Email | None = Field(default=None, description="A mail; default none.")
    commit_status: CommitStatus | None = Field(
        default=None,
        description="The state of a Source's commit at its forge; default none.",
    )
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
            ways = "`webhook`, `slack`, `email`, `commitStatus` and `command`"
            raise ValueError(f"it needs one of {ways}")
        if self.commit_status is not None and set(self.named_when or ()) - set(_OF_COMMITS):
            raise ValueError("`commitStatus` reports `SourceApplied` and `SourceFailed` alone")
        return self

    @property
    def sink(self) -> dict[str, Any]:
        """Returns the target of notices, as JSON: its one field, without the events."""
        return self.model_dump(
            mode="json",
            by_alias=True,
            exclude={"on", "when"},
            exclude_defaults=True,
            exclude_none=True,
        )


class WorkNotify(Notify):
    """A sink, and the events that it gets."""

    when: tuple[WorkEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description="Events: Failed, Succeeded, Skipped or BudgetLow; required.",
    )
    on: tuple[WorkEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description=OLD_NAME,
    )


class BudgetNotify(Notify):
    """A sink that gets a notice when a level of `warnAt` is crossed."""

    when: tuple[BudgetEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description="Events: BudgetLow, at each level of `warnAt`; required.",
    )
    on: tuple[BudgetEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description=OLD_NAME,
    )


class SourceNotify(Notify):
    """A sink that gets a notice when a commit is applied, or cannot be."""

    when: tuple[SourceEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description="Events: SourceFailed or SourceApplied; required.",
    )
    on: tuple[SourceEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description=OLD_NAME,
    )


WorkNotices = Annotated[
    tuple[WorkNotify, ...],
    Field(max_length=SINKS_MAX, description="Recipients of notices of its end; default none."),
]
BudgetNotices = Annotated[
    tuple[BudgetNotify, ...],
    Field(
        max_length=SINKS_MAX, description="Recipients of a notice when it runs low; default none."
    ),
]
SourceNotices = Annotated[
    tuple[SourceNotify, ...],
    Field(max_length=SINKS_MAX, description="Recipients of a notice when it fails; default none."),
]


def secrets_in(notify: tuple[Notify, ...]) -> tuple[tuple[int, str, str], ...]:
    """Returns (position, field, name) of each Secret that is named there."""
    ways = ("webhook", "slack", "email", "commit_status")
    named = (
        (number, way, getattr(getattr(rule, way), "secret", None))
        for number, rule in enumerate(notify)
        for way in ways
    )
    return tuple((number, way, name) for number, way, name in named if name)
