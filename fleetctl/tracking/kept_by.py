"""The owner of an object: annotations from fleetctl/gitops for a Source and from the operator for a
custom resource. Light, for `get` and `describe` read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fleetctl.specs.values.hashing import canonical_json

# On an object of a Source: the Source, and the digest of the object as it made it.
KEPT_BY = "fleetctl.dev/kept-by"
# On an object from a custom resource of Kubernetes: the resource's uid, generation and digest.
MADE_FROM = "fleetctl.dev/custom-resource"
COMMIT_CHARS = 7
# The reason of a Source whose newest commit waits for consent.
HELD = "NeedsConsent"


NO_FIELDS: Mapping[str, str] = MappingProxyType({})


class KeptBy(NamedTuple):
    """The owner. source: its key. file: inside the repository, with the line. revision: the commit
    that changed the object last. digest: of the object as that commit made it. fields: a digest of
    each field by its path; empty in notes of earlier versions, and of objects with very many.
    """

    source: str
    file: str
    revision: str
    digest: str
    fields: Mapping[str, str] = NO_FIELDS

    def text(self) -> str:
        found = self._asdict()
        if not self.fields:
            del found["fields"]
        return canonical_json(found)


def read_owner(annotations: Mapping[str, str]) -> KeptBy | None:
    """Returns the owner; None without a Source."""
    text = annotations.get(KEPT_BY)
    if not text:
        return None
    found = json.loads(text)
    fields = found.get("fields", NO_FIELDS)
    return KeptBy(found["source"], found["file"], found["revision"], found["digest"], fields)


def name_left_owner(key: str) -> str:
    """Returns the owner of results whose object a Source has pruned: the next object with that name
    from a Source gets them, for a manifest that moves to another Source is removed before it
    arrives.
    """
    return f"left by {key}"


def find_maker(annotations: Mapping[str, str]) -> str:
    """Returns the owner that would make the object again, and run it again, were it deleted here
    alone; empty without one.
    """
    note = read_owner(annotations)
    if note is not None:
        return note.source
    if annotations.get(MADE_FROM):
        return "its custom resource"
    return ""


def shorten_commit(commit: str) -> str:
    return commit[:COMMIT_CHARS]
