"""YAML of other tools, which may hold anchors: read into plain data within limits.

Scalars mean what YAML 1.2 says, as in our own manifests: `1e-4` is a number and `no` a text. W&B's
sweep files are read as `searchFrom` reads them.
"""

from __future__ import annotations

from typing import Any

import yaml

from fleetctl.common.errors import UsageError
from fleetctl.manifest.plain import resolve
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.manifest.yaml.reader import read
from fleetctl.manifest.yaml.wandb import WANDB

VALUES_MAX = 200_000  # with what anchors repeat, so that no file is a bomb
DEPTH_MAX = 64
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "<<"


def documents(text: str, file: str) -> list[Any]:
    """Raises UsageError for what is no YAML, or too much of it."""
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_LOADER) if node is not None]
        building = _Building()
        return [building.value(node, 0) for node in nodes]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise UsageError(f"{file}{where}: this is not YAML: {problem}") from error
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error


def sweep_files(text: str, file: str) -> list[Any]:
    """The same of W&B's, by its YAML. Raises ManifestErrors."""
    reading = read(file, text, dialect=WANDB)
    if reading.problems:
        raise ManifestErrors(reading.problems)
    return [root.value for root in reading.roots]


class _Building:
    """Counts what it builds."""

    def __init__(self) -> None:
        self._built = 0

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._built += 1
        if self._built > VALUES_MAX or depth > DEPTH_MAX:
            raise ValueError(f"it holds more than {VALUES_MAX:,} values, or is nested too deeply")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(one, depth + 1) for one in node.value]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth)
        assert isinstance(node, yaml.ScalarNode)
        return node.value if node.style else resolve(node.value)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError("a key is a collection, which no format has")
            built = self.value(value, depth + 1)
            if key.value != _MERGE or key.style:
                own[key.value] = built
                continue
            for one in built if isinstance(built, list) else [built]:
                merged = {**(one if isinstance(one, dict) else {}), **merged}
        return {**merged, **own}
