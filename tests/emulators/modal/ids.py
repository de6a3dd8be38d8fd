"""Ids in the shapes that the SDK tells things apart by."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from functools import lru_cache
from typing import Any

_BASE62 = string.digits + string.ascii_letters
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
JWT_LIFETIME_S = 3600.0
TOKENS_KEPT_MAX = 4096
_random = random.Random()


def base62_id(prefix: str) -> str:
    """`ap-`, `im-`, `st-` ... and a V1 sandbox: exactly 22 letters and digits."""
    return prefix + "-" + "".join(_random.choices(_BASE62, k=22))


def v2_sandbox_id() -> str:
    """26 letters, as a ULID has; only the length matters to the SDK."""
    return "sb-" + "".join(_random.choices(_CROCKFORD, k=26))


def task_id(*, v2: bool) -> str:
    """A task of a V2 sandbox ends in `V`; the SDK asks another RPC for its router then."""
    return base62_id("ta")[:-1] + ("V" if v2 else "0")


def jwt(subject: str, lifetime_s: float = JWT_LIFETIME_S) -> str:
    """Three parts with an expiry. Nobody checks the signature, so there is none."""
    claims = {"sub": subject, "exp": int(time.time() + lifetime_s)}
    parts = [{"alg": "none", "typ": "JWT"}, claims]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*coded, b"emulated"]).decode()


def jwt_subject(token: str) -> str | None:
    """Whom the token is for; None when it is none of ours or has expired."""
    claims = _claims(token)
    return claims["sub"] if claims.get("exp", 0) > time.time() else None


@lru_cache(TOKENS_KEPT_MAX)
def _claims(token: str) -> dict[str, Any]:
    """What it says; {} for what is no token of ours. Each comes with many calls."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}
