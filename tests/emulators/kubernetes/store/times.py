"""Times as objects have them."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def now_text() -> str:
    """Whole seconds, as most times of Kubernetes are."""
    return text_of(time.time())


def text_of(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str) -> float:
    """Since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def age(text: str, now_s: float) -> str:
    """As kubectl shows how long ago something was."""
    seconds = int(max(now_s - seconds_of(text), 0))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"
