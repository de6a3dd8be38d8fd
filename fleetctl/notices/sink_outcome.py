"""The result of a delivery to a sink. `problem` is for users, and never holds a secret address."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SinkOutcome:
    """problem: empty = the sink took it; remark: a defect of an accepted one. gone: it will never
    accept another.
    """

    problem: str = ""
    retry_after_s: float = 0.0
    gone: bool = False
    remark: str = ""


TAKEN = SinkOutcome()
