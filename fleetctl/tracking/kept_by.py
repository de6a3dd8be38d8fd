"""Which Source keeps an object: a note on it, written by fleetctl/gitops. Light, for `get` and
`describe` read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from fleetctl.specs.values.hashing import canonical_json

# Of what a Source keeps: which one, and what it made of it.
KEPT_BY = "fleetctl.dev/kept-by"
COMMIT_CHARS = 7
# The reason of a Source whose newest commit waits for a person.
HELD = "NeedsConsent"


class KeptBy(NamedTuple):
    """source: its key. file: inside the repository, with the line. revision: the commit that
    changed the object last. digest: of the object as that commit made it.
    """

    source: str
    file: str
    revision: str
    digest: str

    def text(self) -> str:
        return canonical_json(self._asdict())


def kept_by(annotations: Mapping[str, str]) -> KeptBy | None:
    """None of what no Source keeps."""
    text = annotations.get(KEPT_BY)
    if not text:
        return None
    found = json.loads(text)
    return KeptBy(found["source"], found["file"], found["revision"], found["digest"])


def short(commit: str) -> str:
    return commit[:COMMIT_CHARS]
