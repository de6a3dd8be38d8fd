"""Drawings on terminals of fixed widths, compared with files: Braille, and plain ASCII.

After a wanted change: `FLEETCTL_GOLDEN=write pytest tests/golden/plots`, then look at them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.common.text import cell_width
from fleetctl.views.plotting.charts import KINDS, build_charts
from fleetctl.views.plotting.curves import metric_chart
from fleetctl.views.plotting.writers.terminal import draw_charts, make_style
from tests.golden.plots.plot_studies import curves, support_vectors

HERE = Path(__file__).parent
CHARTS = {
    "sweep": build_charts(support_vectors(), KINDS),
    "few": build_charts(support_vectors(3), KINDS),
    "curves": [metric_chart("loss", curves(("task 0", "task 1", "task 2")), "")],
}


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("look_name", ["braille", "ascii"])
@pytest.mark.parametrize("name", CHARTS)
def test_drawings_are_as_recorded(name: str, look_name: str, columns: int) -> None:
    lines = draw_charts(
        CHARTS[name], make_style(columns, fine=look_name == "braille", colour=False)
    )
    assert all(cell_width(line) <= columns for line in lines)
    assert look_name == "braille" or "".join(lines).isascii()
    record = HERE / f"{name}-{look_name}-{columns}.txt"
    drawn = "\n".join(lines) + "\n"
    if os.environ.get("FLEETCTL_GOLDEN") == "write":
        record.write_text(drawn, encoding="utf-8")
    assert drawn == record.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CHARTS)
def test_colours_change_nothing_but_colours(name: str) -> None:
    import re

    coloured = "\n".join(draw_charts(CHARTS[name], make_style(100, fine=True, colour=True)))
    plain = "\n".join(draw_charts(CHARTS[name], make_style(100, fine=True, colour=False)))
    assert "\x1b[" in coloured and re.sub(r"\x1b\[[0-9;]*m", "", coloured).replace(
        " ", ""
    ) == plain.replace(" ", "")
