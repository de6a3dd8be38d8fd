"""Whose sandboxes bill, for the checks of money. Kept in the scene."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of an object that may be gone: its boxes bill all the same."""

    labels: dict[str, str]
    worst_s: float
