"""Manifests for a cluster: finds the fields that name a file, which does not exist beside a custom
resource, and the keys that kubectl changed, and makes the manifests of `fleetctl convert --to
kubernetes`.

Called by the operator before an apply, and by `convert`. For the operator this is a security
boundary: otherwise every user who may create a custom resource could read files of the operator's
container, with its token and keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.manifest.checks.clusters import TRUTHS
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.files.includes import include_files
from fleetctl.manifest.rendering.render import rendered_values
from fleetctl.specs.kinds.registry import KINDS, kind_called
from fleetctl.specs.values.packages import LOCAL

_IN_GIT = "use `source.git`"
_APPLY = "`fleetctl apply` on a machine that has the file makes a manifest without it"
_HINTS = {
    "tasks.fromFile": "write its rows as `tasks.items`",
    "tasks.fromFiles": "copy the files to a Volume, and write their paths as `tasks.items`",
    "tasks.files": "copy the files to a Volume, and write their paths as `tasks.items`",
    "searchFrom": "write what it holds as `search`",
    "fromFile": "use `fromEnv`, and give the operator's pod the variable from a Secret",
}


def files_in(fields: tuple[str, ...], spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (path in the manifest, hint), also of the object that a schedule makes. fields: fields
    of the kind that name files.
    """
    for field in fields:
        outer, _, name = field.rpartition(".")
        inner = spec.get(outer) if outer else spec
        if isinstance(inner, Mapping) and inner.get(name) is not None:
            yield f"spec.{field}", _HINTS.get(field, _APPLY)
    for where, holder in _list_holders(spec):
        source = holder.get("source")
        image = holder.get("image")
        if isinstance(source, Mapping) and source.get("path") is not None:
            yield f"{where}.source.path", _IN_GIT
        listed = image.get("pip") if isinstance(image, Mapping) else None
        for at, entry in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(entry, str) and _names_a_file(entry.strip()):
                yield f"{where}.image.pip[{at}]", "list the packages themselves"
    made = spec.get("template")
    kind = kind_called(made.get("kind")) if isinstance(made, Mapping) else None
    if kind is not None and isinstance(made, Mapping) and isinstance(made.get("spec"), Mapping):
        for place, hint in files_in(kind.files, made["spec"]):
            yield f"spec.template.{place}", hint


def truth_keys_in(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yields the paths of keys `true` and `false`: no field has such a name, so the author wrote a
    key such as `y` or `on`, and kubectl, which reads YAML 1.1, sent another one.
    """
    waiting: list[tuple[str, Any]] = [("spec", spec)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, Mapping):
            yield from (f"{at}.{key}" for key in value if str(key).lower() in TRUTHS)
            waiting += [(f"{at}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{at}[{number}]", inner) for number, inner in enumerate(value)]


def for_cluster(document: Document, namespace: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the manifests of a text that `load` accepts, and sentences on fields that a cluster
    would refuse.

    Metadata gets the namespace, if one is given and they have no namespace. Files that they name
    are written into the spec if it has a field for their content.
    """
    made = []
    notes = []
    for data in rendered_values([document]):
        kind = KINDS[data["kind"]]
        include_files(data, document)
        metadata = dict(data["metadata"])
        if namespace and kind.namespaced:
            metadata.setdefault("namespace", namespace)
        made.append({**data, "metadata": metadata})
        for where, hint in files_in(kind.files, data.get("spec") or {}):
            key = f"{kind.name.lower()}/{metadata['name']}"
            notes.append(f"{key}: {where} names a file, which a cluster does not have; {hint}")
    return made, notes


def _list_holders(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the parts that have an image and a source."""
    yield "spec", spec
    template = spec.get("template")
    if isinstance(template, Mapping):
        yield "spec.template", template
    for key in ("stages", "groups"):
        parts = spec.get(key)
        for at, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, Mapping):
                yield f"spec.{key}[{at}]", part


def _names_a_file(entry: str) -> bool:
    """Returns True for `-r FILE` and every other option, a path, or a URL of a file."""
    local = LOCAL.fullmatch(entry) is not None or "file:" in entry
    return local or entry.startswith(("-", ".", "/", "~"))
