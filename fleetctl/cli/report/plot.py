"""`fleetctl plot`: draws a sweep, and the metrics of any object's tasks over steps."""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser, one_of, parse_indexes
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun
from fleetctl.tracking.written_files import note_written
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.views.plotting.charts import Chart

KINDS = ("best", "parallel", "importance", "front", "rungs", "system")
SYSTEM = KINDS[-1]  # of any object that runs work
ALL = "all"
AXES = ("step", "time")
FILES = (".png", ".svg", ".html")
PIPE_COLUMNS = 80
# A title, an axis of two lines, a legend and a note or two about each drawing.
LINES_AROUND = 7
REDRAW_S = 0.5  # reading 10,000 trials at every change would be all that this core does


PAGE = """\
KIND/NAME ... [--kind best|parallel|importance|front|rungs|system|all]
    [--metric NAME] [-x step|time] [-o FILE] [-w]

Draw a sweep: the best score so far, parallel coordinates, parameter importance,
the front of several metrics, what `early_terminate` looked at and whom it stopped;
or what the tasks of any object report(), over its steps or the time since its
first attempt began. A restarted task is one curve, with marks. Several objects are
drawn in one. In a .html, drag along axes of a sweep to choose trials. `system` is
what runs use of their machines: GPUs, CPU and memory, sampled each 15 s.
In a pipe, without colour and with LANG=C the drawing is plain ASCII.

examples:
  fleetctl plot sweep/lr
  fleetctl plot sweep/lr -w --kind best
  fleetctl plot sweep/lr -o lr.html
  fleetctl plot trainingrun/sft --metric loss -o loss.png
  fleetctl plot tr/a tr/b --metric loss -x time
  fleetctl plot tr/a --kind system

exit codes:
  0 ok, 2 wrong usage, 3 refused (png without matplotlib), 4 no such object or metric
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("objects", nargs="+", metavar="KIND/NAME", help="objects to draw")
    made.add_argument(
        "--kind",
        type=one_of(*KINDS, ALL),
        default=ALL,
        metavar="|".join((*KINDS, ALL)),
        help="which pictures of a sweep, or those of machines (default %(default)s)",
    )
    made.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="of reports; may be given more than once (default: the first few that were reported)",
    )
    made.add_argument(
        "-x",
        dest="over",
        type=one_of(*AXES),
        default=AXES[0],
        metavar="|".join(AXES),
        help="what metrics are drawn over (default %(default)s)",
    )
    made.add_argument(
        "--index",
        type=parse_indexes,
        default=None,
        metavar="LIST",
        help="of these tasks alone: 3,7-9",
    )
    made.add_argument(
        "-o",
        "--output",
        type=_parse_file,
        default=None,
        metavar="FILE",
        help="a .png, .svg or .html",
    )
    made.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="redraw when something changes, as many pictures as there is room for",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = [parse_target(it, args.namespace) for it in dict.fromkeys(args.objects)]
    if len(wanted) > 1 and args.kind not in (ALL, SYSTEM):
        raise UsageError(
            f"`--kind {args.kind}` draws one sweep", hint="leave out `--kind` to compare metrics"
        )
    if args.watch and (args.output or not screen.out_is_terminal):
        raise UsageError(
            "`-w` redraws on a terminal", hint="leave out `-w`, or `-o` and what reads stdout"
        )
    with open_reading(find_state_dir()) as reading:
        views = [must_find(it, reading) for it in wanted]
        for seen in views:
            if not seen.kind.runs:
                raise UsageError(f"a {seen.kind.name} runs nothing, so there is nothing to plot")
            if args.kind not in (ALL, SYSTEM) and not seen.kind.searches:
                raise UsageError(
                    f"`--kind {args.kind}` is about the trials of a sweep, not a {seen.kind.name}",
                    hint=f"fleetctl plot {args.objects[0]} --metric NAME",
                )
        if args.output:
            _write_file(args, views, reading, screen)
        elif args.watch:
            _redraw_charts(args, views, reading, screen)
        else:
            for line in _draw_lines(args, views, reading, screen):
                screen.data(line)
        for seen in views:
            if (old := seen.count("outdated")) and not seen.over:
                left = count_noun(old, f"outdated {seen.kind.unit}")
                screen.talk(f"{left} left out: of another program, image or source; to run again")
    return 0


def _parse_file(text: str) -> Path:
    import argparse

    path = Path(text)
    if path.suffix.lower() not in FILES:
        raise argparse.ArgumentTypeError(f"`{text}` says no format; end it in .png, .svg or .html")
    return path


def needs_ascii(
    environ: Mapping[str, str],
    encoding: str,
    *,
    colour: bool,
) -> bool:
    """Returns true for ASCII: there is no colour, or the locale is known not to be UTF-8."""
    locale = next((environ[k] for k in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(k)), encoding)
    utf8 = "utf" in locale.lower() and "utf" in encoding.lower()
    return not (colour and utf8)


def _draw_lines(
    args: Namespace,
    views: list[View],
    reading: StoreReading,
    screen: Screen,
) -> list[str]:
    from fleetctl.views.plotting.writers.terminal import (
        ROWS,
        ROWS_MIN,
        draw_charts,
        make_style,
    )

    charts = _gather_charts(args, views, reading)
    columns = PIPE_COLUMNS
    rows = ROWS
    if screen.out_is_terminal or os.environ.get("COLUMNS", "").isdigit():
        size = shutil.get_terminal_size((PIPE_COLUMNS, 0))
        columns = size.columns
        if args.watch:
            charts = charts[: max(1, size.lines // (ROWS_MIN + LINES_AROUND))]
            rows = size.lines // len(charts) - LINES_AROUND
    ascii_only = needs_ascii(os.environ, screen.out.encoding or "", colour=screen.out_colour)
    return draw_charts(
        charts, make_style(columns, rows, fine=not ascii_only, colour=screen.out_colour)
    )


def _gather_charts(
    args: Namespace,
    views: list[View],
    reading: StoreReading,
) -> list[Chart]:
    from fleetctl.views.plotting.gather import ChartRequest, gather_charts

    kinds = () if args.kind == ALL else (args.kind,)
    return gather_charts(
        views, ChartRequest(kinds, tuple(args.metric), args.index, args.over), reading
    )


def _redraw_charts(
    args: Namespace,
    views: list[View],
    reading: StoreReading,
    screen: Screen,
) -> None:
    """Redraws until all objects are gone or at their end; its last picture stays."""
    from fleetctl.cli.output.live import RedrawnLines
    from fleetctl.common.clock import Deadline

    with RedrawnLines(screen) as shown:
        while True:
            shown.show(_draw_lines(args, views, reading, screen))
            if all(seen.over for seen in views):
                return
            Deadline(None).sleep(REDRAW_S)
            reading.wait_for_change()
            now = [reading.by_uid(seen.resource.uid) for seen in views]
            views = [seen for seen in now if seen is not None]
            if not views:
                return


def _write_file(
    args: Namespace,
    views: list[View],
    reading: StoreReading,
    screen: Screen,
) -> None:
    """Writes the whole file or, when an error occurs, leaves the old one."""
    path: Path = args.output
    from fleetctl.views.plotting.writers.chart_files import render_chart_file

    data = render_chart_file(path.suffix.lower(), _gather_charts(args, views, reading), views)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        why = (error.strerror or "").lower()
        raise Refused(f"`{path}` cannot be written: {why}", hint="name another file") from error
    note_written([path])
    screen.talk(f"wrote {path}")
