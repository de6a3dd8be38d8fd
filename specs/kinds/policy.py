"""Policy: what objects must be like before they are stored, as expressions of CEL."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.blocks.common import LabelKey, LabelValue
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.exempt import EXEMPT
from fleetctl.specs.values.scalars import Bool, Name, NonEmptyText, PositiveCount, Spec

RULES_MAX = 50
# More is a program; and what is parsed is bounded with it.
EXPRESSION_CHARS_MAX = 4096


def _is_kind(value: str) -> str:
    if value not in KINDS:
        raise ValueError(f"it must be a kind: {', '.join(KINDS)}")
    if value == "Policy":
        raise ValueError("a policy is not held to policies")
    return value


Expression = Annotated[NonEmptyText, Field(max_length=EXPRESSION_CHARS_MAX)]


class PolicyMatch(Spec):
    """Which objects; each field narrows it."""

    kinds: tuple[Annotated[str, AfterValidator(_is_kind)], ...] = Field(
        default=(), description="Of these kinds, such as BatchJob; default: every kind but Policy."
    )
    namespaces: tuple[Name, ...] = Field(
        default=(), description="In these namespaces; default: all."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="With these labels, all of them; default: any."
    )


class PolicyRule(Spec):
    """One thing that must hold."""

    expression: Expression = Field(
        description="CEL that is true where all is well, over `object`, `old`, `plan`, `cost` and"
        " `namespace`."
    )
    message: NonEmptyText | None = Field(
        default=None, description="What to say where it does not hold; default: the expression."
    )
    message_expression: Expression | None = Field(
        default=None, description="CEL that gives the message instead, a string; default none."
    )
    action: Literal["Deny", "Warn"] = Field(
        default="Deny", description="Refuse the object, or only tell; default Deny."
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> PolicyRule:
        if self.message is not None and self.message_expression is not None:
            raise ValueError("`message` and `messageExpression` do not go together")
        return self


class PolicyExemptions(Spec):
    """Whether an object may be left out, by an annotation that says until when and why."""

    allowed: Bool = Field(default=True, description="Whether there may be any; default true.")
    max_days: PositiveCount = Field(
        default=90, description="How far ahead one may end, in days; default 90."
    )


class PolicySpec(Spec):
    """What objects must be like before they are stored. What is stored already stays as it is."""

    match: PolicyMatch = Field(
        default_factory=PolicyMatch, description="Which objects; default: all of every kind."
    )
    rules: Annotated[tuple[PolicyRule, ...], Field(min_length=1, max_length=RULES_MAX)] = Field(
        description="What must hold; each is looked at."
    )
    exemptions: PolicyExemptions = Field(
        default_factory=PolicyExemptions,
        description=f"Exceptions by the annotation `{EXEMPT}`; default: allowed for 90 days.",
    )
