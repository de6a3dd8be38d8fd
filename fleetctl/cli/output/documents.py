"""Objects as JSON and YAML documents. Both formats escape control characters by themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from fleetctl.cli.output.screen import Screen
from fleetctl.common.text import escape_lines
from fleetctl.specs.kinds.registry import API_VERSION


def build_list(documents: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": "List", "items": list(documents)}


def write_all(
    documents: Sequence[Mapping[str, object]],
    output: str,
    screen: Screen,
) -> None:
    """Writes several objects: a JSON List, or a YAML stream, which `apply -f` reads as it is."""
    if output == "yaml":
        screen.data("\n---\n".join(_render_yaml(document, screen) for document in documents))
    else:
        write_document(build_list(documents), output, screen)


def write_document(
    document: object,
    output: str,
    screen: Screen,
) -> None:
    screen.data(
        _render_yaml(document, screen) if output == "yaml" else json.dumps(document, indent=2)
    )


def write_stream(
    documents: Iterable[object],
    output: str,
    screen: Screen,
) -> None:
    """Writes for `-w`: one JSON document a line, or YAML documents that each end in a separator."""
    for document in documents:
        screen.data(
            f"{_render_yaml(document, screen)}\n---" if output == "yaml" else json.dumps(document)
        )


def _render_yaml(document: object, screen: Screen) -> str:
    from fleetctl.manifest.yaml.emit import (
        to_yaml,  # here: only this format pays for the YAML library
    )

    text = to_yaml(document).removesuffix("\n")
    # The emitter takes bidirectional marks for ordinary letters; a terminal does not.
    if screen.out_is_terminal:
        return "\n".join(escape_lines(text))
    return text
