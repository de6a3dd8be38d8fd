"""Expressions of policies that cannot be ones. Called by predict.py, and for policies of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.policies.expressions import ExpressionError, compile_expression
from fleetctl.apply.policies.typecheck import check_types
from fleetctl.common.finding import Finding, Path
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.specs.kinds.registry import KINDS

POLICY = "Policy"

if TYPE_CHECKING:
    from fleetctl.apply.policies.expressions import CompiledExpression
    from fleetctl.apply.predictions.world import PlannedWorld
    from fleetctl.manifest import Manifest


def of_policy(
    manifest: Manifest,
    spec: PolicySpec,
    world: PlannedWorld,
) -> Iterator[Finding]:
    return wrong_in(spec)


def wrong_in(spec: PolicySpec) -> Iterator[Finding]:
    """Yields the expressions that are invalid. Raises Refused where the library of CEL is not
    installed."""
    kinds = spec.match.kinds or tuple(it for it in KINDS if it != POLICY)
    for number, rule in enumerate(spec.rules):
        here: Path = ("spec", "rules", number)
        yield from _check_expression(rule.expression, (*here, "expression"), kinds)
        if rule.message_expression is not None:
            yield from _check_expression(
                rule.message_expression, (*here, "messageExpression"), kinds
            )


def _check_expression(
    text: str,
    at: Path,
    kinds: Sequence[str],
) -> Iterator[Finding]:
    try:
        _: CompiledExpression = compile_expression(text)
        check_types(text, kinds)
    except ExpressionError as error:
        yield Finding(at, f" is not an expression: {error}", error.hint)
