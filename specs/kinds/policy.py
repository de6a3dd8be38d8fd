"""Policy: conditions on objects before they are stored, as expressions of CEL."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.blocks.common import LabelKey, LabelValue
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.exempt import EXEMPT
from fleetctl.specs.values.scalars import Bool, Name, NonEmptyText, PositiveCount, Spec

RULES_MAX = 50
# A longer one is a program; and the parsed text is bounded with it.
EXPRESSION_CHARS_MAX = 4096


def _is_kind(value: str) -> str:
    if value not in KINDS:
        raise ValueError(f"it must be a kind: {', '.join(KINDS)}")
    if value == "Policy":
        raise ValueError("a policy is not held to policies")
    return value


Expression = Annotated[NonEmptyText, Field(max_length=EXPRESSION_CHARS_MAX)]


class PolicyMatch(Spec):
    """The objects that a policy is about; each field narrows the choice."""

    kinds: tuple[Annotated[str, AfterValidator(_is_kind)], ...] = Field(
        default=(),
        description="Kinds of the objects, such as BatchJob; default: every kind but Policy.",
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
        description="CEL that must be true, over `object`, `old`, `plan`, `cost` and `namespace`."
    )
    message: NonEmptyText | None = Field(
        default=None, description="Message where it does not hold; default: the expression."
    )
    message_expression: Expression | None = Field(
        default=None, description="CEL that gives the message instead, a string; default none."
    )
    action: Literal["Deny", "Warn"] = Field(
        default="Deny", description="Refuse the object, or only warn; default Deny."
    )

    @model_validator(mode="after")
    def _require_one_form(self) -> PolicyRule:
        if self.message is not None and self.message_expression is not None:
            raise ValueError("`message` and `messageExpression` do not go together")
        return self


class PolicyExemptions(Spec):
    """The limits of exceptions: an annotation of an object has a last day and a reason."""

    allowed: Bool = Field(default=True, description="Whether exceptions are allowed; default true.")
    max_days: PositiveCount = Field(
        default=90, description="Days from now in which an exception must end; default 90."
    )


class PolicySpec(Spec):
    """Rules that objects must meet before they are stored. Stored objects stay as they are."""

    match: PolicyMatch = Field(
        default_factory=PolicyMatch,
        description="Objects that it checks; default: all of every kind.",
    )
    rules: Annotated[tuple[PolicyRule, ...], Field(min_length=1, max_length=RULES_MAX)] = Field(
        description="Rules; each of them must hold."
    )
    exemptions: PolicyExemptions = Field(
        default_factory=PolicyExemptions,
        description=f"Exceptions by the annotation `{EXEMPT}`; default: allowed for 90 days.",
    )
