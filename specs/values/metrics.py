"""Where the metrics of a program come from that does not know us: `metrics` of a template. Pure.

What the values mean is in fleetctl/guest/metrics, which reads them beside the program.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fleetctl.specs.values.scalars import NonEmptyText, Spec

REGEX_CHARACTERS_MAX = 1000
NAME, VALUE, STEP = "name", "value", "step"
EXAMPLES = "`loss: (?P<loss>\\S+)` or `(?P<name>\\w+)=(?P<value>[-+.\\w]+)`"


def _finds_metrics(value: str) -> str:
    try:
        pattern = re.compile(value)
    except re.error as error:
        raise ValueError(f"it is not a regular expression of Python: {error}") from error
    except (RecursionError, OverflowError) as error:
        raise ValueError("it is nested too deep, or repeats too often") from error
    named = set(pattern.groupindex)
    if not named and pattern.groups < 2:
        raise ValueError(f"it names no metric; write {EXAMPLES}")
    if VALUE in named and NAME not in named and not named - {VALUE, STEP}:
        raise ValueError(f"its group `value` has no group `name` beside it; write {EXAMPLES}")
    if named and not named - {STEP}:
        raise ValueError(f"its group `step` has no metric beside it; write {EXAMPLES}")
    if pattern.match(""):
        raise ValueError(f"it matches the empty text, so every line; write {EXAMPLES}")
    return value


Regex = Annotated[
    NonEmptyText, Field(max_length=REGEX_CHARACTERS_MAX), AfterValidator(_finds_metrics)
]


class Metrics(Spec):
    """What a program prints or writes of metrics, beside those that it reports to fleetctl."""

    from_: Literal["stdout", "tensorboard", "jsonl"] = Field(
        alias="from",
        description="stdout: what it prints; tensorboard: event files; jsonl: JSON objects, one a"
        " line.",
    )
    regex: Regex | None = Field(
        default=None,
        description="For stdout: named groups, as `loss: (?P<loss>\\S+)`; default none.",
    )
    path: NonEmptyText | None = Field(
        default=None,
        description="For files: from where the task starts; may be a pattern; default none.",
    )

    @model_validator(mode="after")
    def _has_what_it_reads(self) -> Metrics:
        own, other = ("regex", "path") if self.from_ == "stdout" else ("path", "regex")
        if getattr(self, own) is None:
            raise ValueError(f"`from: {self.from_}` needs `{own}`, which says {_WHAT[own]}")
        if getattr(self, other) is not None:
            raise ValueError(f"`from: {self.from_}` has no use for `{other}`; remove it")
        return self


_WHAT = {"regex": "what a metric looks like in a line", "path": "which files to read"}
