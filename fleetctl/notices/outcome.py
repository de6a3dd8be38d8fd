"""What came of telling a sink once. `problem` is for people, and never holds a secret address."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """problem: empty = the sink took it; remark: but for this. gone: it takes no more, ever."""

    problem: str = ""
    retry_after_s: float = 0.0
    gone: bool = False
    remark: str = ""


TAKEN = Outcome()
