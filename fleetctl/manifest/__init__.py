"""From the text that a person wrote to checked resources. Called by cli and engine; knows no store.

`read_documents` turns paths into texts, `load` turns texts into manifests or raises all that is
wrong with them at once. Names are loaded when used: who only hands texts on needs no model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document, read_documents
    from fleetctl.manifest.loader import Manifest, load
    from fleetctl.manifest.problems import ManifestErrors, Problem

__all__ = ["Document", "Manifest", "ManifestErrors", "Problem", "load", "read_documents"]

_HOMES = {
    "Document": "files.documents",
    "read_documents": "files.documents",
    "Manifest": "loader",
    "load": "loader",
    "ManifestErrors": "problems",
    "Problem": "problems",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"fleetctl.manifest.{_HOMES[name]}"), name)
