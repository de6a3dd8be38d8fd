"""Renders charts as the bytes of a file; the writer of a format is loaded for that format alone."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.common.text import escape_line
from fleetctl.views.objects import View
from fleetctl.views.plotting.charts import Chart

SUFFIXES = (".png", ".svg", ".html")


def render_chart_file(
    suffix: str,
    charts: Sequence[Chart],
    views: Sequence[View],
) -> bytes:
    """Returns the file. suffix: one of SUFFIXES; views: objects of the charts, for the title."""
    heading = ", ".join(escape_line(seen.key) for seen in views)
    if suffix == ".png":
        from fleetctl.views.plotting.writers.png import render_png

        return render_png(charts, heading)
    if suffix == ".svg":
        from fleetctl.views.plotting.writers.svg import svg_file

        return svg_file(charts, heading).encode()
    from fleetctl.views.plotting.writers.svg import html_page

    parts = [f"{escape_line(seen.phase)}, {seen.done} {seen.kind.unit}s done" for seen in views]
    summary = "; ".join(dict.fromkeys(parts))
    return html_page(charts, heading, summary).encode()
