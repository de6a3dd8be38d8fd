"""Writes the files that manifests name into the manifests, for a server has none of them.
Called before an apply or a plan over a server; loads the models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from fleetctl.common.errors import UsageError
from fleetctl.manifest.cluster import for_cluster
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.problems import ManifestErrors

NOWHERE = "/"


def with_files_inside(documents: Sequence[Document]) -> list[Document]:
    """Returns the documents without names of files. Raises UsageError where a file cannot be
    written into a manifest; a text that is no manifest goes as it is, for the server to
    explain."""
    made = []
    for document in documents:
        if document.role or document.refused:
            if document.refused:
                raise UsageError(f"{document.path}: {document.refused}", hint=document.hint)
            made.append(document)
            continue
        try:
            manifests, notes = for_cluster(document, "")
        except ManifestErrors:
            made.append(document._replace(dir=NOWHERE))
            continue
        if notes:
            raise UsageError(
                notes[0].replace("which a cluster does not have", "which the server does not have"),
                hint="`source.git` and Volumes reach a server",
            )
        text = "\n---\n".join(json.dumps(it) for it in manifests)
        made.append(document._replace(text=text, dir=NOWHERE))
    return made
