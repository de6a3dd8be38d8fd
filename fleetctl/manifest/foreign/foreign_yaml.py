"""YAML of other tools, which may hold anchors: read into plain data within limits.

Scalars mean the same as in YAML 1.2 and our own manifests: `1e-4` is a number and `no` a text.
W&B's sweep files are read as `searchFrom` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from fleetctl.common.errors import UsageError
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.manifest.yaml.wandb import WANDB

VALUES_MAX = 200_000  # counts the repetitions of anchors, so that no file is a bomb
DEPTH_MAX = 64
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "<<"


class ForeignDocument(NamedTuple):
    """One document as plain data. lines: where each of its fields stands, by its path, such as
    `resources.any_of[0]`; the document itself is the path without a name.
    """

    data: Any
    lines: Mapping[str, int]


def parse_foreign_yaml(text: str, file: str) -> list[ForeignDocument]:
    """Parses a text. Raises UsageError for text that is not YAML, or too large."""
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_LOADER) if node is not None]
        building = _TreeBuilder()
        found = []
        for node in nodes:
            building.lines = {"": node.start_mark.line + 1}
            found.append(ForeignDocument(building.value(node, 0), building.lines))
        return found
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise UsageError(f"{file}{where}: this is not YAML: {problem}") from error
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error


def sweep_files(text: str, file: str) -> list[ForeignDocument]:
    """The same of W&B's, by its YAML. Raises ManifestErrors."""
    reading = read_yaml(file, text, dialect=WANDB)
    if reading.problems:
        raise ManifestErrors(reading.problems)
    lines = [it.lines for it in parse_foreign_yaml(text, file)]
    if len(lines) != len(reading.roots):
        lines = [{"": root.position[0]} for root in reading.roots]
    return [ForeignDocument(root.value, at) for root, at in zip(reading.roots, lines, strict=True)]


class _TreeBuilder:
    """Builds a tree, and counts its values."""

    def __init__(self) -> None:
        self._built = 0
        self.lines: dict[str, int] = {}

    def value(
        self,
        node: yaml.Node,
        depth: int,
        path: str = "",
    ) -> Any:
        self._built += 1
        if self._built > VALUES_MAX or depth > DEPTH_MAX:
            raise ValueError(f"it holds more than {VALUES_MAX:,} values, or is nested too deeply")
        if isinstance(node, yaml.SequenceNode):
            found = []
            for number, one in enumerate(node.value):
                below = f"{path}[{number}]"
                self.lines[below] = one.start_mark.line + 1
                found.append(self.value(one, depth + 1, below))
            return found
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth, path)
        assert isinstance(node, yaml.ScalarNode)
        if node.style:
            return node.value
        return resolve_scalar(node.value)

    def _mapping(
        self,
        node: yaml.MappingNode,
        depth: int,
        path: str,
    ) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError("a key is a collection, which no format has")
            below = f"{path}.{key.value}" if path else key.value
            if key.value == _MERGE and not key.style:
                below = path
            else:
                self.lines[below] = key.start_mark.line + 1
            built = self.value(value, depth + 1, below)
            if key.value != _MERGE or key.style:
                own[key.value] = built
                continue
            for one in built if isinstance(built, list) else [built]:
                merged = {**(one if isinstance(one, dict) else {}), **merged}
        return {**merged, **own}
