"""From the text that a person wrote to checked resources. Called by cli.

`read_documents` turns paths into texts, `load` turns texts into manifests or raises all that is
wrong with them at once. Knows no store and no provider.
"""

from fleetctl.manifest.documents import Document, read_documents
from fleetctl.manifest.loader import Manifest, load
from fleetctl.manifest.problems import ManifestErrors, Problem

__all__ = ["Document", "Manifest", "ManifestErrors", "Problem", "load", "read_documents"]
