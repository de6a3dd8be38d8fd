"""`fleetctl get -w`: redraws a table on a terminal, and prints a line a change anywhere else."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from fleetctl.cli.output.screen import Screen
from fleetctl.cli.show.lists.objects import (
    ListRequest,
    build_table,
    filter_objects,
    format_name,
    select_objects,
)
from fleetctl.common.clock import SystemClock
from fleetctl.views.objects import View, build_document
from fleetctl.views.selectors import matches_labels
from fleetctl.views.store_reading import StoreReading


def watch_objects(
    wanted: ListRequest,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Runs until every named object is gone; without names, until interrupted."""
    select_objects(wanted, args.selector, reading)  # a name that is not there is an error, once
    if screen.out_is_terminal and args.output in ("table", "wide"):
        return _redraw_objects(wanted, args, reading, screen)
    return _print_changes(wanted, args, reading, screen)


def _redraw_objects(
    wanted: ListRequest,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Draws the whole list each time: ages go on, and rows move with `--sort-by`."""
    from fleetctl.cli.output.live import RedrawnLines

    with RedrawnLines(screen) as shown:
        while True:
            found = _read_objects(wanted, args, reading)
            shown.show(screen.table_lines(*build_table(found, wanted, wide=args.output == "wide")))
            if wanted.targets and not found:
                return 0
            reading.wait_for_change()


def _print_changes(
    wanted: ListRequest,
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Prints a first list, then every change."""
    if args.sort_by:
        screen.warn("`--sort-by` sorts the first list; changes come as they happen")
    show = _change_printer(wanted, args.output, screen)
    found = _read_objects(wanted, args, reading)
    show(found)
    args.sort_by = ""
    while not wanted.targets or found:
        versions = {view.resource.uid: view.resource.version for view in found}
        reading.wait_for_change()
        found = _read_objects(wanted, args, reading)
        show([v for v in found if versions.get(v.resource.uid) != v.resource.version])
    return 0


def _read_objects(
    wanted: ListRequest,
    args: Namespace,
    reading: StoreReading,
) -> list[View]:
    found = [
        view
        for view in wanted.views(reading)
        if matches_labels(view.resource.labels, args.selector) and _is_named(view, wanted)
    ]
    return filter_objects(found, args)


def _is_named(view: View, wanted: ListRequest) -> bool:
    return not wanted.targets or any(one.key == view.key for one in wanted.targets)


def _change_printer(
    wanted: ListRequest,
    output: str,
    screen: Screen,
) -> Callable[[list[View]], None]:
    """Returns a function that prints some objects: table rows under one header, or one document a
    line."""
    from fleetctl.cli.output.documents import OBJECT_CSV, is_templated, make_writer

    widths: list[int] = []
    write = (
        make_writer(output, OBJECT_CSV, screen, headers=wanted.headers)
        if is_templated(output)
        else None
    )

    def show(found: list[View]) -> None:
        nonlocal widths
        now_s = SystemClock().now_s()
        if write is not None:
            for view in found:
                write([build_document(view, now_s)], one=True)
        elif output in ("json", "yaml"):
            from fleetctl.cli.output.documents import write_stream

            write_stream([build_document(view, now_s) for view in found], output, screen)
        elif output == "name":
            for view in found:
                screen.data(format_name(view))
        elif found or not widths:
            header, rows = build_table(found, wanted, wide=output == "wide", whole=True)
            widths = screen.table(header, rows, widths=widths)
        screen.flush()

    return show
