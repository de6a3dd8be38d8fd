"""What the guest without Python hands on as it was: metrics and results that the host judges.

Called by journal.py alone. Pure: the same bytes always make the same metrics, with the same `seq`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from controllers.model import Metric
from fleetctl.guest.record import numbers
from fleetctl.guest.results import judge, parse_result
from fleetctl.guest.text import parse


def raw_metrics(event: Mapping[str, Any]) -> list[Metric]:
    """The metrics in some lines of a task's $FLEETCTL_METRICS; a line that is none is passed over.

    `seq` grows with the offset of a line: a line is longer than its values are many.
    """
    offset, at_s = int(event["offset"]), float(event["at"])
    found = []
    for line in _bytes(event).splitlines(keepends=True):
        found += _line(line, offset, at_s)
        offset += len(line)
    return found


def raw_result(event: Mapping[str, Any]) -> tuple[str, str]:
    """(the result as canonical JSON, "") or ("", what is wrong with it)."""
    value, problem = parse_result(_bytes(event))
    return judge(value) if not problem else ("", problem)


def _line(line: bytes, offset: int, at_s: float) -> list[Metric]:
    try:
        values = parse(line.decode())
        step = values.pop("step", offset)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return []
    if not isinstance(step, int):
        return []
    return [
        Metric(seq=offset + place, step=step, name=name, value=value, at_s=at_s)
        for place, (name, value) in enumerate(numbers(values).items())
    ]


def _bytes(event: Mapping[str, Any]) -> bytes:
    """Raises KeyError or ValueError."""
    if "b64" in event:
        return base64.b64decode(event["b64"], validate=True)
    return bytes.fromhex(event["hex"])
