"""`fleetctl get -w`: a table that is redrawn on a terminal, and a line a change anywhere else."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from fleetctl.cli.output.render import Screen
from fleetctl.cli.show.lists.objects import Wanted, cells, named, pick, select
from fleetctl.common.clock import SystemClock
from fleetctl.views.objects import View, document
from fleetctl.views.reading import Reading
from fleetctl.views.selectors import matches


def watch(wanted: Wanted, args: Namespace, reading: Reading, screen: Screen) -> int:
    """Until every named object is gone; without names, until interrupted."""
    select(wanted, args.selector, reading)  # a name that is not there is an error, once
    if screen.out_is_terminal and args.output in ("table", "wide"):
        return _redrawn(wanted, args, reading, screen)
    return _lines(wanted, args, reading, screen)


def _redrawn(wanted: Wanted, args: Namespace, reading: Reading, screen: Screen) -> int:
    """The whole list each time: ages go on, and rows move when `--sort-by` says so."""
    from fleetctl.cli.output.redraw import Redrawn

    with Redrawn(screen) as shown:
        while True:
            found = _now(wanted, args, reading)
            shown.show(screen.table_lines(*cells(found, wanted, wide=args.output == "wide")))
            if wanted.targets and not found:
                return 0
            reading.wait_for_change()


def _lines(wanted: Wanted, args: Namespace, reading: Reading, screen: Screen) -> int:
    """A first list, then whatever changed."""
    if args.sort_by:
        screen.warn("`--sort-by` sorts the first list; changes come as they happen")
    show = _change_printer(wanted, args.output, screen)
    found = _now(wanted, args, reading)
    show(found)
    args.sort_by = ""
    while not wanted.targets or found:
        versions = {view.resource.uid: view.resource.version for view in found}
        reading.wait_for_change()
        found = _now(wanted, args, reading)
        show([v for v in found if versions.get(v.resource.uid) != v.resource.version])
    return 0


def _now(wanted: Wanted, args: Namespace, reading: Reading) -> list[View]:
    found = [
        view
        for view in wanted.views(reading)
        if matches(view.resource.labels, args.selector) and _named(view, wanted)
    ]
    return pick(found, args)


def _named(view: View, wanted: Wanted) -> bool:
    return not wanted.targets or any(one.key == view.key for one in wanted.targets)


def _change_printer(wanted: Wanted, output: str, screen: Screen) -> Callable[[list[View]], None]:
    """A function that prints some objects: table rows under one header, or one document a line."""
    from fleetctl.cli.output.templates import OBJECT_CSV, is_templated, writer

    widths: list[int] = []
    write = (
        writer(output, OBJECT_CSV, screen, headers=wanted.headers) if is_templated(output) else None
    )

    def show(found: list[View]) -> None:
        nonlocal widths
        now_s = SystemClock().now_s()
        if write is not None:
            for view in found:
                write([document(view, now_s)], one=True)
        elif output in ("json", "yaml"):
            from fleetctl.cli.output.documents import write_stream

            write_stream([document(view, now_s) for view in found], output, screen)
        elif output == "name":
            for view in found:
                screen.data(named(view))
        elif found or not widths:
            header, rows = cells(found, wanted, wide=output == "wide", whole=True)
            widths = screen.table(header, rows, widths=widths)
        screen.flush()

    return show
