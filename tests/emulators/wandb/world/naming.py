"""Names and times as the service writes them."""

from __future__ import annotations

import base64
import random
import string
from datetime import UTC, datetime

_CHARACTERS = string.ascii_lowercase + string.digits


def global_id(kind: str, *parts: str) -> str:
    """`Sweep:v1:NAME:PROJECT:ENTITY` in base 64; clients may not look into it."""
    return base64.b64encode(":".join((kind, "v1", *parts)).encode()).decode()


def short_name(randomness: random.Random) -> str:
    return "".join(randomness.choices(_CHARACTERS, k=8))


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
