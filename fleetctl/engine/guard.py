"""A value for "nothing is known of the outcome": a call that hung, broke, or was never answered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """why: a sentence for people."""

    why: str
