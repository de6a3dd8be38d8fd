"""x-kubernetes-validations: rules in CEL that a CRD adds to its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.schema.nodes import Node
from tests.emulators.kubernetes.schema.validation import Cause


def broken(value: Any, node: Node, old: Any) -> Iterator[Cause]:
    yield from ()
