"""Converts files of other tools to manifests of ours, for `fleetctl convert`.

One module a format, each a function from documents to manifests, each with its document. A field
that cannot be carried over is reported, never silently dropped; the result is a manifest that
`validate` accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign.foreign_mapping import (
    ConversionOptions,
    DocumentLines,
    ForeignMapping,
)
from fleetctl.manifest.foreign.foreign_yaml import fit_manifest, parse_foreign_yaml, sweep_files


class Conversion(NamedTuple):
    """The result of a conversion. notes: sentences on fields that were left out, changed or added,
    with the position in the source.
    """

    manifests: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def convert_text(
    format_: str,
    text: str,
    *,
    file: str,
    name: str,
    old_names: bool = False,
) -> Conversion:
    """Converts all documents of a text. old_names: programs find all variables of the other tool
    under its names. Raises UsageError if no manifest could be made of the text.
    """
    module = import_module(f"{__name__}.{format_.replace('-', '_')}")
    parts: list[str] = []
    sources = []
    for data, lines in (
        sweep_files(text, file) if format_ == "wandb" else parse_foreign_yaml(text, file)
    ):
        origin = DocumentLines(file, lines)
        if isinstance(data, dict):
            sources.append(ForeignMapping(data, parts, origin))
        else:
            parts.append(f"{origin.at('')}a document that is not a mapping is left out")
    manifests = []
    for source, one in module.convert(sources, ConversionOptions(name, old_names)):
        manifests.append(fit_manifest(one, parts, at=source.place, file=file))
    for source in sources:
        source.finish()
    if not manifests:
        why = "; ".join(parts) or "it is empty"
        raise UsageError(f"{file}: there is nothing of `{format_}` to convert: {why}")
    return Conversion(tuple(manifests), tuple(dict.fromkeys(parts)))
