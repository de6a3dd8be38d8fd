"""Who keeps an object: notes on it, of fleetctl/gitops for a Source and of the operator for a
custom resource. Light, for `get` and `describe` read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from fleetctl.specs.values.hashing import canonical_json

# Of what a Source keeps: which one, and what it made of it.
KEPT_BY = "fleetctl.dev/kept-by"
# Of what was made from a custom resource of Kubernetes: its uid, generation and digest.
MADE_FROM = "fleetctl.dev/custom-resource"
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


def left_by(key: str) -> str:
    """The owner of results whose object a Source has pruned: of the next one that a Source makes
    under that name, for a manifest that moves to another Source goes before it comes.
    """
    return f"left by {key}"


def made_again_by(annotations: Mapping[str, str]) -> str:
    """Who would make the object again, and have it run again, were it deleted here alone; empty
    where nobody would.
    """
    note = kept_by(annotations)
    if note is not None:
        return note.source
    return "its custom resource" if annotations.get(MADE_FROM) else ""


def short(commit: str) -> str:
    return commit[:COMMIT_CHARS]
