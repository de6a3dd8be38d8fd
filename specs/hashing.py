"""Canonical JSON and the short hashes that tell whether two pieces of work are the same.

Standard library only. Hashes go into stored rows: a change of their form makes everything look
changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specs.common import Placement
    from specs.template import Template

HASH_HEX_DIGITS = 16

# How long an attempt may take changes neither the sandbox nor the work.
_NOT_HASHED = {"timeout_seconds", "termination_grace_period_seconds"}


def canonical_json(value: object) -> str:
    """One text for equal values: sorted keys, no spaces, ASCII. ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def template_hash(template: Template, placement: Placement) -> str:
    """16 hex digits over what affects the sandbox and the work of a run."""
    wish = {
        "template": template.model_dump(mode="json", exclude=_NOT_HASHED, exclude_defaults=True),
        "providers": [candidate.provider for candidate in placement.candidates],
    }
    return _hash(wish)


def combined_hash(own: str, template: Template) -> str:
    """16 hex digits over a template's own hash and all that its Function added to it."""
    whole = template.model_dump(mode="json", exclude=_NOT_HASHED, exclude_defaults=True)
    return _hash({"own": own, "template": whole})


def params_hash(params: Mapping[str, object]) -> str:
    """16 hex digits over the parameters of one unit, whatever the order of their names."""
    return _hash(params)


def _hash(value: object) -> str:
    return sha256(canonical_json(value).encode()).hexdigest()[:HASH_HEX_DIGITS]
