"""Canonical JSON and the short hashes that show if two pieces of work are the same.

Standard library only. Hashes go into stored rows: a change of their form makes everything look
changed. The hashed fields of a template are listed in specs/content.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

HASH_HEX_DIGITS = 16


def canonical_json(value: object) -> str:
    """One text for equal values: sorted keys, no spaces, ASCII. ValueError for NaN and infinity."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )


def params_hash(params: Mapping[str, object]) -> str:
    """Returns 16 hex digits over a unit's parameters, whatever the order of their names."""
    return short_hash(params)


def short_hash(value: object) -> str:
    """Returns 16 hex digits over the canonical JSON of a value."""
    return sha256(canonical_json(value).encode()).hexdigest()[:HASH_HEX_DIGITS]
