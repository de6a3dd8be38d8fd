"""`fleetctl get namespaces`: those in use, and what is in them.

A namespace is there while an object is in it; nobody makes one first.
"""

from __future__ import annotations

import json
from argparse import Namespace

from fleetctl.cli.output.csv_text import write_csv
from fleetctl.cli.output.render import Screen
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
            said = f"nothing is in namespace `{safe(name)}`"
            raise NotFound(said, hint="fleetctl get namespaces")
    shown = {name: kinds for name, kinds in found.items() if not wanted or name in wanted}
    if args.output == "name":
        for name in shown:
            screen.data(safe(f"namespace/{name}"))
    elif args.output in ("json", "yaml"):
        items = [
            {"name": name, "objects": sum(kinds.values()), "kinds": kinds}
            for name, kinds in shown.items()
        ]
        screen.data(json.dumps(items, indent=2))  # which is YAML as well
    elif args.output == "csv":
        rows = ([name, sum(kinds.values()), _told(kinds)] for name, kinds in shown.items())
        write_csv([title.lower() for title in HEADER], rows, screen)
    elif not shown:
        screen.talk("no namespaces: there are no objects")
    else:
        screen.table(
            HEADER,
            [[safe(name), str(sum(it.values())), safe(_told(it))] for name, it in shown.items()],
        )
    return 0


def _told(kinds: dict[str, int]) -> str:
    """`2 batchjobs, 1 volume`."""
    return ", ".join(
        plural(many, kind_named(kind).plural.removesuffix("s")) for kind, many in kinds.items()
    )
