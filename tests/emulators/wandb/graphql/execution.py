"""What a document selects, taken from nodes: an unknown field or input is refused as a server's
schema refuses it, so that a client's typing error is seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Refused
from .documents import Document, Selected, Variable

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """An object: its fields, whose values are leaves, nodes, lists of nodes, or made of arguments
    by a function.
    """

    type: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """inputs: the known keys of the one argument `input`. needed: those that must be there."""

    inputs: frozenset[str]
    needed: frozenset[str]
    run: Callable[[Arguments], Node]


def query(document: Document, variables: Arguments, root: Node) -> dict[str, Any]:
    """Raises Refused."""
    return _Execution(document, variables).node(root, document.selections, top=True)


def mutate(
    document: Document, variables: Arguments, mutations: Mapping[str, Mutation]
) -> dict[str, Any]:
    """Do each in turn. Raises Refused, and what was done before it stays done."""
    execution = _Execution(document, variables)
    root = {
        name: lambda arguments, name=name, mutation=mutation: _run(name, mutation, arguments)
        for name, mutation in mutations.items()
    }
    return execution.node(Node("Mutation", root), document.selections, top=True)


def _run(name: str, mutation: Mutation, arguments: Arguments) -> Node:
    values: Arguments = arguments.get("input") or {}
    kind = f"{name[0].upper()}{name[1:]}Input"
    for key in values:
        if key not in mutation.inputs:
            raise Refused(400, f'Unknown field "{key}" on input type "{kind}".')
    given = {key: value for key, value in values.items() if value is not None}
    for key in sorted(mutation.needed):
        if key not in given:
            raise Refused(400, f'Field "{kind}.{key}" of required type was not provided.')
    return mutation.run(given)


class _Execution:
    def __init__(self, document: Document, variables: Arguments) -> None:
        self._document = document
        self._variables = {
            name: declared.value(variables.get(name))
            for name, declared in document.variables.items()
        }
        for name, declared in document.variables.items():
            if declared.needed and self._variables[name] is None:
                raise Refused(400, f'Variable "${name}" of required type was not provided.')

    def node(
        self, node: Node, selections: tuple[Selected, ...], *, top: bool = False
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for selected in selections:
            if not all(self._holds(*condition) for condition in selected.conditions):
                continue
            if selected.fragment or not selected.name:
                found |= self.node(node, self._inner(selected))
                continue
            try:
                found[selected.alias] = self._field(node, selected)
            except Refused as refused:
                if top:
                    refused.path = refused.path or selected.alias
                raise
        return found

    def _inner(self, selected: Selected) -> tuple[Selected, ...]:
        if not selected.fragment:
            return selected.selections
        if selected.fragment not in self._document.fragments:
            raise Refused(400, f'Unknown fragment "{selected.fragment}".')
        return self._document.fragments[selected.fragment]

    def _holds(self, directive: str, condition: Any) -> bool:
        met = bool(self._value(condition))
        return met if directive == "include" else not met

    def _field(self, node: Node, selected: Selected) -> Any:
        if selected.name == "__typename":
            return node.type
        if selected.name not in node.fields:
            raise Refused(400, f'Cannot query field "{selected.name}" on type "{node.type}".')
        value = node.fields[selected.name]
        if callable(value):
            value = value({key: self._value(one) for key, one in selected.arguments.items()})
        return self._shaped(value, selected)

    def _shaped(self, value: Any, selected: Selected) -> Any:
        if isinstance(value, Node):
            if not selected.selections:
                kind = value.type
                raise Refused(
                    400, f'Field "{selected.name}" of type "{kind}" must have a sub selection.'
                )
            return self.node(value, selected.selections)
        if isinstance(value, list) and any(isinstance(one, Node) for one in value):
            return [self._shaped(one, selected) for one in value]
        return value

    def _value(self, value: Any) -> Any:
        if isinstance(value, Variable):
            if value.name not in self._variables:
                raise Refused(400, f'Variable "${value.name}" is not defined.')
            return self._variables[value.name]
        if isinstance(value, dict):
            return {key: self._value(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._value(one) for one in value]
        return value
