"""What the guest without Python hands on as it was: metrics and results that the host judges.

Called by journal.py alone. Pure: the same bytes always make the same metrics, with the same `seq`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from fleetctl.controllers.model import Metric
from fleetctl.guest.journal.metriclines import read_line
from fleetctl.guest.journal.results import judge, parse_result


def raw_metrics(event: Mapping[str, Any]) -> tuple[list[Metric], list[str]]:
    """(the metrics in some lines of a task's $FLEETCTL_METRICS, what is wrong with other lines).

    `seq` grows with the offset of a line: a line is longer than its values are many.
    """
    offset, at_s = int(event["offset"]), float(event["at"])
    number = int(event.get("line", 0))
    found, wrong = [], []
    step = number - 1
    for line in _bytes(event).removesuffix(b"\n").split(b"\n"):
        line_step, values, problem = read_line(line, number, max(number, step + 1))
        step = line_step if values else step
        wrong += [problem] if problem else []
        found += [
            Metric(seq=offset + place, step=line_step, name=name, value=value, at_s=at_s)
            for place, (name, value) in enumerate(values.items())
        ]
        offset, number = offset + len(line) + 1, number + 1
    return found, wrong


def raw_result(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """(the result as canonical JSON, "", what was changed in it) or ("", what is wrong, "")."""
    value, problem = parse_result(_bytes(event))
    return judge(value) if not problem else ("", problem, "")


def _bytes(event: Mapping[str, Any]) -> bytes:
    """Raises KeyError or ValueError."""
    if "b64" in event:
        return base64.b64decode(event["b64"], validate=True)
    return bytes.fromhex(event["hex"])
