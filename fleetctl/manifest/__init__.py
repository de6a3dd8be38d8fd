"""Turns the text of manifests into checked resources. Called by cli and engine; knows no store.

`read_documents` turns paths into texts, `load_manifests` turns texts into manifests or raises all
that is wrong with them at once. Names are loaded when used: a caller that only hands texts on needs
no model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document, read_documents
    from fleetctl.manifest.loader import LoadErrors, Manifest, load_manifests
    from fleetctl.manifest.problems import ManifestErrors, ManifestProblem

__all__ = [
    "Document",
    "LoadErrors",
    "Manifest",
    "ManifestErrors",
    "ManifestProblem",
    "load_manifests",
    "read_documents",
]

_HOMES = {
    "Document": "files.documents",
    "read_documents": "files.documents",
    "Manifest": "loader",
    "load_manifests": "loader",
    "LoadErrors": "loader",
    "ManifestErrors": "problems",
    "ManifestProblem": "problems",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"fleetctl.manifest.{_HOMES[name]}"), name)
