"""`kind: Overlay`: the manifests that it is made of, and its differences from them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.document.envelope import kind_hint
from fleetctl.manifest.files.documents import Document, file_of, is_address, read_documents
from fleetctl.manifest.findings import list_findings, suggest_name
from fleetctl.manifest.hints.synonyms import join_names
from fleetctl.manifest.positions import ManifestOrigin
from fleetctl.manifest.problems import value_text
from fleetctl.manifest.rendering.declared_variables import DeclaredVariable
from fleetctl.manifest.rendering.merging import MergeOrigins, StrategicMerge, paths_in
from fleetctl.manifest.yaml.reader import YamlDocument
from fleetctl.specs.kinds.registry import API_VERSION, kind_called
from fleetctl.specs.rendering import Overlay

KIND = "Overlay"
_PARTS = ("apiVersion", "kind", "metadata", "spec")
PATCHES = "patches"


@dataclass(slots=True)
class LoadedOverlay:
    """An overlay that its model accepted. patches: those that name a target. scope: variables that
    its own file may refer to.
    """

    overlay: Overlay
    written: ManifestOrigin
    patches: list[OverlayPatch]
    findings: list[Finding]
    scope: dict[str, DeclaredVariable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OverlayPatch:
    """A part of a manifest. path: its path in the overlay's document."""

    data: dict[str, Any]
    path: Path

    @property
    def kind(self) -> str:
        return str(self.data["kind"])

    @property
    def name(self) -> str:
        return str(self.data["metadata"]["name"])

    def meets(self, other: dict[str, Any]) -> bool:
        """Returns True if the patch is for this manifest."""
        there = other.get("metadata")
        here = self.data["metadata"]
        if other.get("kind") != self.kind or not isinstance(there, dict):
            return False
        named = ("name", "namespace") if "namespace" in here else ("name",)
        return all(there.get(key) == here[key] for key in named)


def overlay_of(root: YamlDocument, written: ManifestOrigin) -> LoadedOverlay | list[Finding]:
    """Returns the overlay, or the findings of its model."""
    try:
        overlay = Overlay.model_validate(root.value, by_alias=True, by_name=False)
    except ValidationError as error:
        return list(list_findings(error, Overlay, root.value, ()))
    found: list[Finding] = []
    patches = list(_read_patches(root.value.get(PATCHES) or (), found))
    return LoadedOverlay(overlay, written, patches, found)


def _read_patches(given: Iterable[dict[str, Any]], found: list[Finding]) -> Iterator[OverlayPatch]:
    for number, data in enumerate(given):
        path: Path = (PATCHES, number)
        wrong = list(_check_patch(data, path))
        found += wrong
        if not wrong:
            yield OverlayPatch(data, path)


def _check_patch(data: dict[str, Any], path: Path) -> Iterator[Finding]:
    """Finds a patch whose kind and name identify no object, and fields that no manifest has."""
    for key in data:
        if key not in _PARTS:
            at = (*path, key)
            yield Finding(at, " is an unknown field", suggest_name(key, list(_PARTS)), at_key=True)
    kind = data.get("kind")
    metadata = data.get("metadata")
    if kind_called(kind) is None:
        at = (*path, "kind")
        what = " is missing" if "kind" not in data else f" is {value_text(kind)}"
        hint = kind_hint(kind) if isinstance(kind, str) else ""
        message = f"{what}; it must be the kind of an object"
        yield Finding(at if "kind" in data else path, message, hint, about=at)
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        message = " is missing; it names the object that this is a part of"
        at = (*path, "metadata") if isinstance(metadata, dict) else path
        yield Finding(at, message, about=(*path, "metadata", "name"))
    if data.get("apiVersion", API_VERSION) != API_VERSION:
        at = (*path, "apiVersion")
        yield Finding(at, f" is {value_text(data['apiVersion'])}; it must be `{API_VERSION}`")


def list_bases(overlay: Overlay, document: Document) -> list[str]:
    """Lists absolute paths of files or directories."""
    return [os.path.normpath(os.path.join(document.dir, it)) for it in overlay.base]


def base_documents(laid: LoadedOverlay, found: list[Finding]) -> Iterator[Document]:
    """Yields the texts of its base, under the names that a user beside the overlay gives them."""
    document = laid.written.document
    beside = os.path.dirname(document.path)  # keeps what was written
    for number, (base, whole) in enumerate(
        zip(laid.overlay.base, list_bases(laid.overlay, document), strict=True)
    ):
        here: Path = ("base", number) if len(laid.overlay.base) > 1 else ("base",)
        if is_address(base):
            message = f" is {value_text(base)}; a base is a path relative to its overlay"
            found.append(Finding(here, message, "download it, or apply it by itself"))
            continue
        shown = os.path.normpath(os.path.join(beside, base))
        there = read_documents([whole])
        if len(there) == 1 and there[0].refused and there[0].path == whole:
            message = f" is {value_text(base)}; {there[0].refused}"
            found.append(Finding(here, message, there[0].hint))
            continue
        for it in there:
            yield it._replace(path=shown + it.path[len(whole) :])


def covers_document(bases_: Iterable[str], document: Document) -> bool:
    """Returns True if a document is part of the given files and directories."""
    whole = file_of(document)
    return any(it in (whole, document.dir) for it in bases_)


def lay_patch(
    patch: OverlayPatch,
    laid: LoadedOverlay,
    value: dict[str, Any],
    written: ManifestOrigin,
    told: ManifestOrigin,
) -> tuple[ManifestOrigin, list[Finding]]:
    """Lays a patch, filled already, over a manifest, which is changed. Returns the new origin of
    the manifest, and findings by the overlay's paths. told: the overlay with the notes of the
    patch.
    """
    data = {
        key: it for key, it in deepcopy(patch.data).items() if key not in ("apiVersion", "kind")
    }
    _rebase_paths(data, laid.written.document.dir, written.document.dir)
    data["metadata"] = {
        key: it for key, it in data["metadata"].items() if key not in ("name", "namespace")
    }
    parts = parts_of(written)
    merge = StrategicMerge(
        patch=told,
        parts=parts,
        found=[],
    )
    merge.mapping(value, data, (), patch.path)
    return replace(written, parts=parts), merge.found


def parts_of(written: ManifestOrigin) -> MergeOrigins:
    """Returns the origins that are known already, to be extended."""
    if isinstance(written.parts, MergeOrigins):
        return written.parts
    return MergeOrigins(written)


def _rebase_paths(
    data: dict[str, Any],
    here: str,
    there: str,
) -> None:
    """Files that a patch names lie beside the overlay, not beside its base."""
    for holder, key in paths_in(data):
        path = holder[key]
        if here != there and path and not FilePath(path).is_absolute() and path[0] != "~":
            holder[key] = os.path.relpath(os.path.normpath(os.path.join(here, path)), there)


def lay_all(
    laid: LoadedOverlay,
    value: dict[str, Any],
    written: ManifestOrigin,
) -> ManifestOrigin:
    """Applies the fields of an overlay that are for every object."""
    overlay = laid.overlay
    parts = parts_of(written)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return written
    kind = kind_called(value.get("kind"))
    if overlay.namespace is not None and kind is not None and kind.namespaced:
        metadata["namespace"] = overlay.namespace
        parts.put(("metadata", "namespace"), (laid.written, ("namespace",)))
    labels = metadata.setdefault("labels", {}) if overlay.labels else None
    if isinstance(labels, dict):
        for key, text in overlay.labels.items():
            labels[key] = text
            parts.put(("metadata", "labels", key), (laid.written, ("labels", key)))
    return replace(written, parts=parts)


def describe_unmatched(patch: OverlayPatch, values: Iterable[dict[str, Any]]) -> Finding:
    """Describes a patch that matches no manifest."""
    there = [
        (str(it.get("kind")), str(it["metadata"].get("name")))
        for it in values
        if isinstance(it.get("metadata"), dict)
    ]
    names = [name for kind, name in there if kind == patch.kind]
    hint = suggest_name(patch.name, names) if names else ""
    if not names and there:
        hint = "the base has " + join_names(f"{kind.lower()}/{name}" for kind, name in there[:5])
    at = (*patch.path, "metadata", "name")
    message = f" is {value_text(patch.name)}; the base has no {patch.kind} of this name"
    return Finding(at, message, hint)
