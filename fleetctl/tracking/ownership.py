"""Which Source keeps an object, and whether somebody changed it by hand since.

Written by fleetctl/gitops with each object that it stores; read by the engine, by applies and by
screens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.tracking.annotations import KEPT_BY, NOTES

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource

# Apply sets of Sources are called so; a person's own cannot be.
SET_PREFIX = "source."
SET_CHARS_MAX = 63  # of a label's value
DIGEST_CHARS = 16
COMMIT_CHARS = 7


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


def set_name(name: str, namespace: str) -> str:
    """The apply set of a Source. No name has a dot in it, so that no two Sources share one."""
    whole = SET_PREFIX + (name if namespace == DEFAULT_NAMESPACE else f"{namespace}.{name}")
    if len(whole) <= SET_CHARS_MAX:
        return whole
    return SET_PREFIX + "." + sha256(whole.encode()).hexdigest()[:32]


def digest_of(resource: Resource) -> str:
    """Of all that a manifest says of it."""
    written = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    text = canonical_json([resource.spec, resource.labels, written])
    return sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def drifted(resource: Resource, note: KeptBy) -> bool:
    return digest_of(resource) != note.digest


def short(commit: str) -> str:
    return commit[:COMMIT_CHARS]
