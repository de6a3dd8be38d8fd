"""Charts as one self-contained HTML file: no network, no font, no library. Pure.

It can be read without a mouse (arrow keys go from trial to trial, best first), without colours
(every trial is in a table), and follows the light or dark of the system.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fleetctl.views.plotting.charts import BarChart, Chart, EmptyChart, ParallelChart
from fleetctl.views.plotting.writers.svg import WIDE, draw_shapes, measure_height

HERE = Path(__file__).parent
# The browser itself enforces it on the page: it loads no resource, and sends no data.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
HOW = "point at a trial, or use the arrow keys in a drawing; Escape releases it"


def html_page(
    charts: Sequence[Chart],
    heading: str,
    summary: str,
) -> str:
    trials = any('data-trial="' in draw_shapes(chart) for chart in charts)
    message = f'<output id="told" aria-live="polite">{HOW}</output>' if trials else ""
    drawings = "\n".join(_render_figure(chart) for chart in charts)
    body = f"{message}\n{drawings}{_render_table(charts)}"
    return wrap_page(heading, summary, body, script=_read_file("page.js"))


def wrap_page(
    heading: str,
    summary: str,
    body: str,
    *,
    script: str = "",
) -> str:
    """Returns a whole page. body: HTML; heading and summary: texts."""
    style = _read_file("chart.css") + _read_file("page.css")
    code = f"<script>\n{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(heading)}</h1>\n<p>{escape(summary)}</p>\n{body}"
        f"\n</main>\n{code}</body>\n</html>\n"
    )


def _render_figure(chart: Chart) -> str:
    title = escape(chart.title)
    if isinstance(chart, EmptyChart):
        return f"<h2>{title}</h2>\n<p>{escape(chart.why)}</p>"
    heading = title
    if isinstance(chart, BarChart):
        heading += ": " + ", ".join(
            f"{bar.name} {'unknown' if bar.share is None else f'{bar.share:.0%}'}"
            for bar in chart.bars
        )
    return (
        f'<h2>{title}</h2>\n<figure tabindex="0" aria-label="{escape(heading)}">\n'
        f'<svg viewBox="0 0 {WIDE:g} {measure_height(chart):g}" '
        f'aria-hidden="true">\n{draw_shapes(chart)}\n'
        f"</svg>\n<figcaption>{escape(chart.note)}</figcaption>\n</figure>"
    )


def _render_table(charts: Sequence[Chart]) -> str:
    """Returns every trial that is drawn, best first."""
    rows = next((chart.rows for chart in charts if isinstance(chart, ParallelChart)), ())
    if not rows:
        return ""
    lines = "\n".join(
        f'<tr data-trial="{row.trial}"><td>{at}</td><td>{escape(row.label)}</td></tr>'
        for at, row in enumerate(rows, 1)
    )
    return (
        f"\n<details><summary>All {len(rows)} trials, best first</summary>\n"
        f'<div class="scroll" tabindex="0"><table><tr><th>rank</th><th>trial</th></tr>\n{lines}\n'
        "</table></div></details>"
    )


def _read_file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
