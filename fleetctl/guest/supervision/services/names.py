"""Names the log of a service beside that of its run, or of its node."""

from __future__ import annotations


def service_name(run: str, service: str) -> str:
    """Differs from a part of a run's own log, which has a number there, and from a node's, with
    `n` and a number.
    """
    return f"{run}.s-{service}"
