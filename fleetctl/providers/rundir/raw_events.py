"""Judges the metrics and results that a guest without Python hands on unread.

Called by run_journal.py alone. Pure: the same bytes always make the same metrics, with the same
`seq`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from fleetctl.controllers.model import Metric
from fleetctl.guest.journal.metriclines import read_line
from fleetctl.guest.journal.results import judge, parse_result


def raw_metrics(event: Mapping[str, Any]) -> tuple[list[Metric], list[str]]:
    """Returns (the metrics in some lines of a task's $FLEETCTL_METRICS, the problems of other
    lines).

    `seq` grows with the offset of a line, since a line has more bytes than values.
    """
    offset = int(event["offset"])
    at_s = float(event["at"])
    number = int(event.get("line", 0))
    found = []
    wrong = []
    step = number - 1
    for line in _decode_bytes(event).removesuffix(b"\n").split(b"\n"):
        line_step, values, problem = read_line(line, number, max(number, step + 1))
        step = line_step if values else step
        wrong += [problem] if problem else []
        found += [
            Metric(
                seq=offset + place,
                step=line_step,
                name=name,
                value=value,
                at_s=at_s,
            )
            for place, (name, value) in enumerate(values.items())
        ]
        offset = offset + len(line) + 1
        number = number + 1
    return found, wrong


def raw_result(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns (the result as canonical JSON, "", changes made to it) or ("", the problem, "")."""
    value, problem = parse_result(_decode_bytes(event))
    if not problem:
        return judge(value)
    return ("", problem, "")


def _decode_bytes(event: Mapping[str, Any]) -> bytes:
    """Raises KeyError or ValueError."""
    if "b64" in event:
        return base64.b64decode(event["b64"], validate=True)
    return bytes.fromhex(event["hex"])
