"""`fleetctl get namespaces`: lists namespaces in use, and counts their objects.

A namespace exists while an object is in it; there is no verb to create one.
"""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.output.output_rows import OutputRows, write_listed
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import count_noun, escape_line
from fleetctl.views.kinds import kind_named
from fleetctl.views.store_reading import StoreReading

HEADER = ("NAME", "OBJECTS", "KINDS")


def get_namespaces(
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    """Prints the list. Raises NotFound for a named one that is empty."""
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "namespaces are listed as they are; they have no labels and no status",
            hint="fleetctl get namespaces [NAME ...] [-o table|name|json|csv]",
        )
    found = reading.namespaces()
    wanted = args.words[1:]
    for name in wanted:
        if name not in found:
            message = f"nothing is in namespace `{escape_line(name)}`"
            raise NotFound(message, hint="fleetctl get namespaces")
    shown = {name: kinds for name, kinds in found.items() if not wanted or name in wanted}
    counted = [(name, sum(kinds.values()), kinds) for name, kinds in shown.items()]
    written = OutputRows(
        table=lambda: (
            HEADER,
            (
                [escape_line(a), str(n), escape_line(_format_counts(kinds))]
                for a, n, kinds in counted
            ),
        ),
        documents=lambda: ({"name": a, "objects": n, "kinds": kinds} for a, n, kinds in counted),
        plain=lambda: (
            [title.lower() for title in HEADER],
            ([a, n, _format_counts(kinds)] for a, n, kinds in counted),
        ),
        names=lambda: (escape_line(f"namespace/{name}") for name in shown),
    )
    if not write_listed(written, args, screen):
        screen.talk("no namespaces: there are no objects")
    return 0


def _format_counts(kinds: dict[str, int]) -> str:
    """Returns `2 batchjobs, 1 volume`."""
    return ", ".join(
        count_noun(many, kind_named(kind).plural.removesuffix("s")) for kind, many in kinds.items()
    )
