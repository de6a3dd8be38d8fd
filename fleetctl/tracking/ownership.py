"""The objects of a Source: the apply set that they are in, and the digest that shows a change by
hand. The note on each object is in kept_by.py.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.tracking.annotations import NOTES
from fleetctl.tracking.by_hand import as_filed, field_note

if TYPE_CHECKING:
    from fleetctl.controllers.model import Resource
    from fleetctl.tracking.kept_by import KeptBy

# The prefix of Sources' apply sets; a user's own cannot have it.
SET_PREFIX = "source."
SET_CHARS_MAX = 63  # of a label's value
DIGEST_CHARS = 16


def set_name(name: str, namespace: str) -> str:
    """Returns the apply set of a Source. Names have no dot, so that no two Sources share one."""
    whole = SET_PREFIX + (name if namespace == DEFAULT_NAMESPACE else f"{namespace}.{name}")
    if len(whole) <= SET_CHARS_MAX:
        return whole
    return SET_PREFIX + "." + sha256(whole.encode()).hexdigest()[:32]


def digest_of(resource: Resource) -> str:
    """Returns a digest of all fields in the manifest; fields that it never had and a user set do
    not count."""
    if field_note(resource.annotations).hand:
        filed = as_filed(resource)
        spec, labels, written = (filed[part] for part in ("spec", "labels", "annotations"))
        spec = json.dumps(spec, separators=(",", ":"), allow_nan=False)
    else:
        spec = resource.spec
        labels = resource.labels
        written = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    text = canonical_json([spec, labels, written])
    return sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def has_drifted(resource: Resource, note: KeptBy) -> bool:
    return digest_of(resource) != note.digest
