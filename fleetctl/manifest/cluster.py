"""Manifests for a cluster: which of their fields name a file, of which there is none beside a
custom resource, and what `fleetctl convert --to kubernetes` makes of them.

Called by the operator before an apply, and by `convert`. For the operator this is a border: a file
that is named here would be read in its own container, with its token and its keys, for whoever may
create a custom resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.files.includes import include
from fleetctl.manifest.rendering.render import rendered_values
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.packages import LOCAL

_IN_GIT = "use `source.git`"
_APPLY = "`fleetctl apply` on a machine that has the file makes a manifest without it"
_HINTS = {
    "tasks.fromFile": "write its rows as `tasks.items`",
    "searchFrom": "write what it holds as `search`",
    "fromFile": "use `fromEnv`, and give the operator's pod the variable from a Secret",
}


def files_in(fields: tuple[str, ...], spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path in the manifest, hint). fields: those of the kind that name files."""
    for field in fields:
        outer, _, name = field.rpartition(".")
        inner = spec.get(outer) if outer else spec
        if isinstance(inner, Mapping) and inner.get(name) is not None:
            yield f"spec.{field}", _HINTS.get(field, _APPLY)
    for where, holder in _holders(spec):
        source, image = holder.get("source"), holder.get("image")
        if isinstance(source, Mapping) and source.get("path") is not None:
            yield f"{where}.source.path", _IN_GIT
        listed = image.get("pip") if isinstance(image, Mapping) else None
        for at, entry in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(entry, str) and _names_a_file(entry.strip()):
                yield f"{where}.image.pip[{at}]", "list the packages themselves"


def for_cluster(document: Document, namespace: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The manifests of a text that `load` accepts, and sentences on what a cluster would refuse.

    Metadata gets the namespace, where one is given and they name none. Files that they name are
    written into the spec where it has a place for what they hold.
    """
    made, notes = [], []
    for data in rendered_values([document]):
        kind = KINDS[data["kind"]]
        include(data, document)
        metadata = dict(data["metadata"])
        if namespace and kind.namespaced:
            metadata.setdefault("namespace", namespace)
        made.append({**data, "metadata": metadata})
        for where, hint in files_in(kind.files, data.get("spec") or {}):
            key = f"{kind.name.lower()}/{metadata['name']}"
            notes.append(f"{key}: {where} names a file, which a cluster does not have; {hint}")
    return made, notes


def _holders(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Whatever has an image and a source."""
    yield "spec", spec
    template, stages = spec.get("template"), spec.get("stages")
    if isinstance(template, Mapping):
        yield "spec.template", template
    for at, stage in enumerate(stages if isinstance(stages, list) else ()):
        if isinstance(stage, Mapping):
            yield f"spec.stages[{at}]", stage


def _names_a_file(entry: str) -> bool:
    """`-r FILE` and every other option, a path, or a URL of a file."""
    local = LOCAL.fullmatch(entry) is not None or "file:" in entry
    return local or entry.startswith(("-", ".", "/", "~"))
