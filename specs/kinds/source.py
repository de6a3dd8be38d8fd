"""Source: keeps the objects that manifests of a git repository declare equal to that repository."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, WithJsonSchema, model_validator

from fleetctl.specs.blocks.notify import SourceNotices
from fleetctl.specs.blocks.template import GitSource, InsideRepository
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.specs.values.scalars import Bool, Duration, Name, NonEmptyText, PositiveCount, Spec

INTERVAL_S = 60.0
INTERVAL_S_MIN = 1.0
WAIT = "Wait"
FINISH_RUNNING = "FinishRunning"
REPLACE = "Replace"
REPAIR = "Repair"
REPORT = "Report"
# An archive of millions of commits is not a source of manifests.
DEPTH_MAX = 100_000

_LIMIT = re.compile(r"\d{1,9}|(\d{1,2}|100)%")


def _check_limit(value: Any) -> Any:
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or not _LIMIT.fullmatch(text):
        raise ValueError("it must be a number of objects, or a share such as `20%`")
    return text


Interval = Annotated[Duration, Field(ge=INTERVAL_S_MIN)]
Limit = Annotated[
    str,
    BeforeValidator(_check_limit),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]


class SignatureCheck(Spec):
    """The signers, one of whom must have signed the commit; exactly one of `gpg` and `ssh`."""

    gpg: tuple[NonEmptyText, ...] = Field(
        default=(), description="Public keys, as `gpg --export --armor` writes them; default none."
    )
    ssh: tuple[NonEmptyText, ...] = Field(
        default=(),
        description="Lines of an allowed signers file: `name@host ssh-ed25519 AAAA...`;"
        " default none.",
    )

    @model_validator(mode="after")
    def _names_somebody(self) -> SignatureCheck:
        if bool(self.gpg) == bool(self.ssh):
            raise ValueError("exactly one of `gpg` and `ssh` must name who may sign")
        return self


class SourceRepository(GitSource):
    """A repository that holds manifests, and how often it is looked at."""

    path: InsideRepository = Field(
        default=".",
        description="Directory of the manifests, with all below it; default: the whole repository.",
    )
    interval: Interval = Field(
        default=INTERVAL_S, description="Seconds or `5m` between two checks; default 60."
    )
    secret: Name | None = Field(
        default=None,
        description="A Secret with `GIT_TOKEN` (and `GIT_USERNAME`) for https, or `GIT_SSH_KEY`"
        " for ssh; default none.",
    )
    known_hosts: tuple[NonEmptyText, ...] = Field(
        default=(),
        description="Lines of a known_hosts file, all that ssh trusts; default: the user's own.",
    )
    depth: Annotated[PositiveCount, Field(le=DEPTH_MAX)] = Field(
        default=1, description="Commits that are fetched; default 1."
    )
    verify: SignatureCheck | None = Field(
        default=None, description="Signers, one of whom must have signed the commit; default none."
    )


class SourceSpec(Spec):
    """Keeps objects equal to the manifests of a repository."""

    git: SourceRepository = Field(description="The repository.")
    prune: Bool = Field(
        default=False,
        description="Whether objects without a manifest are deleted, and all of them with the"
        " Source; default false.",
    )
    max_prune: Limit | None = Field(
        default=None,
        description="Objects that one commit may remove, a number or `20%`; default: half of them.",
    )
    suspend: Bool = Field(
        default=False, description="Whether to leave everything as it is; default false."
    )
    namespace: Name = Field(
        default=DEFAULT_NAMESPACE,
        description="Namespace of manifests that name none; default: default.",
    )
    variables: dict[NonEmptyText, JsonValue] = Field(
        default_factory=dict,
        description="Values of variables that the manifests declare; default none.",
    )
    drift: Literal["Repair", "Report"] = Field(
        default="Repair",
        description="Objects changed by hand: made equal again, or only reported; default Repair.",
    )
    on_disruption: Literal["Wait", "FinishRunning", "Replace"] = Field(
        default="Wait",
        description="Effect of a commit that would end running work; default Wait.",
    )
    notify: SourceNotices = ()
