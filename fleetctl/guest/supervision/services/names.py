"""How the log of a service is called beside that of its run, or of its node."""

from __future__ import annotations


def service_name(run: str, service: str) -> str:
    """No part of a run's own log, which has a number there, and no node, which has `n` and one."""
    return f"{run}.s-{service}"
