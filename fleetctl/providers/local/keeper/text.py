"""JSON text at little cost: one encoder for all, and lines of known shape written out.

`json.dumps` with options makes an encoder and functions at each call.
"""

from __future__ import annotations

import json
from typing import Any

# As the standard library's own C function; numbers of floats as `repr` writes them.
quote = json.encoder.encode_basestring_ascii

_canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
)
_compact = json.JSONEncoder(separators=(",", ":"))


def canonical(value: Any) -> str:
    """Raises ValueError for what JSON cannot hold."""
    return _canonical.encode(value)


def compact(value: Any) -> str:
    return _compact.encode(value)
