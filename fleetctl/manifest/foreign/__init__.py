"""Files of other tools as manifests of ours: what `fleetctl convert` does.

One module a format, each a function from documents to manifests, each with its document. What
cannot be carried over is told, never silently dropped; what comes out is a manifest that `validate`
accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign.fitting import fitted
from fleetctl.manifest.foreign.reading import Foreign, Origin, Wanted
from fleetctl.manifest.foreign.text import documents, sweep_files


class Conversion(NamedTuple):
    """notes: sentences on what was left out, changed or added, with the place in the source."""

    manifests: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def convert(
    format_: str, text: str, *, file: str, name: str, old_names: bool = False
) -> Conversion:
    """All documents of one text. old_names: programs find all variables of the other tool under
    its names. Raises UsageError when nothing could be made of it.
    """
    module = import_module(f"{__name__}.{format_.replace('-', '_')}")
    parts: list[str] = []
    sources = []
    for data, lines in sweep_files(text, file) if format_ == "wandb" else documents(text, file):
        origin = Origin(file, lines)
        if isinstance(data, dict):
            sources.append(Foreign(data, parts, origin))
        else:
            parts.append(f"{origin.at('')}a document that is not a mapping is left out")
    manifests = []
    for source, one in module.convert(sources, Wanted(name, old_names)):
        manifests.append(fitted(one, parts, at=source.place, file=file))
    for source in sources:
        source.finish()
    if not manifests:
        why = "; ".join(parts) or "it is empty"
        raise UsageError(f"{file}: there is nothing of `{format_}` to convert: {why}")
    return Conversion(tuple(manifests), tuple(dict.fromkeys(parts)))
