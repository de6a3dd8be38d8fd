"""Objects as JSON and YAML documents. Text of users is not escaped here: a program reads it.

JSON escapes control characters by itself, and so does the YAML emitter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from fleetctl.cli.render import Screen
from specs.kinds import API_VERSION


def listing(documents: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": "List", "items": list(documents)}


def write(document: object, output: str, screen: Screen) -> None:
    screen.data(_yaml(document) if output == "yaml" else json.dumps(document, indent=2))


def write_stream(documents: Iterable[object], output: str, screen: Screen) -> None:
    """For `-w`: one JSON document a line, or YAML documents that each end in a separator."""
    for document in documents:
        screen.data(f"{_yaml(document)}\n---" if output == "yaml" else json.dumps(document))


def _yaml(document: object) -> str:
    import yaml  # here and not above: 33 ms that only this format needs

    dumped: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return dumped.rstrip("\n")
