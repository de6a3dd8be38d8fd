"""Names of runs: a pure function of object, unit and attempt, so that a lost reply can be looked
up."""

from __future__ import annotations

from base64 import b32encode
from hashlib import blake2b

RUN_NAME_LENGTH = 29  # `fl-` and 26 characters: 130 bits, valid as a DNS-1123 label everywhere


def run_name(
    store_id: str,
    uid: str,
    index: int,
    attempt: int,
) -> str:
    """Returns the name of an attempt, the same after every restart."""
    digest = blake2b(f"{store_id}/{uid}/{index}/{attempt}".encode(), digest_size=17).digest()
    return "fl-" + b32encode(digest).decode().lower()[:26]
