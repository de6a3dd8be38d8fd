"""`fleetctl get artifacts job/NAME`: lists the outputs that are kept of each task."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.output.artifacts import say_none, write_artifacts
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.views.kinds import parse_target
from fleetctl.views.run_outputs import list_artifacts
from fleetctl.views.store_reading import StoreReading, must_find


def get_artifacts(
    args: Namespace,
    reading: StoreReading,
    screen: Screen,
) -> int:
    what, *objects = args.words
    if len(objects) != 1:
        raise UsageError(f"`get {what}` takes one object", hint=f"fleetctl get {what} job/NAME")
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "artifacts are listed as they are; they have no labels and no status",
            hint="fleetctl get artifacts job/NAME [-o table|name|json|csv]",
        )
    seen = must_find(parse_target(objects[0], args.namespace), reading)
    if not seen.kind.runs:
        raise UsageError(f"a {seen.kind.name} has no tasks, so it keeps no artifacts")
    found = list_artifacts(find_state_dir(), seen, reading)
    if not write_artifacts(found, seen, args.output, screen):
        say_none(seen, screen)
    return 0
