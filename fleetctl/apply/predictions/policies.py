"""Expressions of policies that cannot be ones. Called by predict.py, and for policies of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleetctl.apply.policies.expressions import Wrong, program
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path
from fleetctl.specs.kinds.policy import PolicySpec

if TYPE_CHECKING:
    from fleetctl.apply.policies.expressions import Program


def wrong_in(spec: PolicySpec) -> Iterator[Finding]:
    """Raises Refused where the library of CEL is not installed."""
    for number, rule in enumerate(spec.rules):
        here: Path = ("spec", "rules", number)
        yield from _wrong(rule.expression, (*here, "expression"))
        if rule.message_expression is not None:
            yield from _wrong(rule.message_expression, (*here, "messageExpression"))


def _wrong(text: str, at: Path) -> Iterator[Finding]:
    try:
        _: Program = program(text)
    except Wrong as error:
        yield Finding(at, at, f" is not an expression: {error}", error.hint)
