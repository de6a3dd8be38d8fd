"""The charts in the output of code: marked lines that chart_runner.py printed in the box."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).with_name("chart_runner.py").read_text()
_CHART = re.compile("\x1edaytona-chart:(.*)\n")


def split_charts(output: str) -> tuple[str, list[dict[str, Any]]]:
    """The output without the charts, and the charts."""
    charts = [json.loads(found) for found in _CHART.findall(output)]
    return _CHART.sub("", output), charts
