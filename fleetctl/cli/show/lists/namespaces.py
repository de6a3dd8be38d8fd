"""`fleetctl get namespaces`: those in use, and what is in them.

A namespace is there while an object is in it; nobody makes one first.
"""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import plural, safe
from fleetctl.views.kinds import kind_named
from fleetctl.views.reading import Reading

HEADER = ("NAME", "OBJECTS", "KINDS")


def get_namespaces(args: Namespace, reading: Reading, screen: Screen) -> int:
    """Raises NotFound for a named one that is empty."""
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "namespaces are listed as they are; they have no labels and no status",
            hint="fleetctl get namespaces [NAME ...] [-o table|name|json|csv]",
        )
    found = reading.namespaces()
    wanted = args.words[1:]
    for name in wanted:
        if name not in found:
            message = f"nothing is in namespace `{safe(name)}`"
            raise NotFound(message, hint="fleetctl get namespaces")
    shown = {name: kinds for name, kinds in found.items() if not wanted or name in wanted}
    counted = [(name, sum(kinds.values()), kinds) for name, kinds in shown.items()]
    written = Rows(
        table=lambda: (HEADER, ([safe(a), str(n), safe(_told(kinds))] for a, n, kinds in counted)),
        documents=lambda: ({"name": a, "objects": n, "kinds": kinds} for a, n, kinds in counted),
        plain=lambda: (
            [title.lower() for title in HEADER],
            ([a, n, _told(kinds)] for a, n, kinds in counted),
        ),
        names=lambda: (safe(f"namespace/{name}") for name in shown),
    )
    # JSON is YAML as well.
    if not write_rows(written, "json" if args.output == "yaml" else args.output, screen):
        screen.talk("no namespaces: there are no objects")
    return 0


def _told(kinds: dict[str, int]) -> str:
    """`2 batchjobs, 1 volume`."""
    return ", ".join(
        plural(many, kind_named(kind).plural.removesuffix("s")) for kind, many in kinds.items()
    )
