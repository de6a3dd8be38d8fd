"""`fleetctl get checkpoints tr/NAME`: the complete ones that its attempts were seen to write."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import age, byte_size, safe, timestamp
from fleetctl.stores.read.reader import CheckpointRow
from fleetctl.views.kinds import target
from fleetctl.views.reading import Reading, must_find

HEADER = ("STEP", "STAGE", "ATTEMPT", "AGE", "SIZE", "TOOK", "PATH")


def get_checkpoints(args: Namespace, reading: Reading, screen: Screen) -> int:
    what, *objects = args.words
    if len(objects) != 1:
        raise UsageError(f"`get {what}` takes one object", hint=f"fleetctl get {what} tr/NAME")
    if args.watch or args.selector or args.fields or args.sort_by or "=" in args.output:
        raise UsageError(
            "checkpoints are listed as they are; they have no labels and no status",
            hint="fleetctl get checkpoints tr/NAME [-o table|name|json|csv]",
        )
    seen = must_find(target(objects[0], args.namespace), reading)
    found = list(reading.checkpoints(seen))
    now_s = SystemClock().now_s()
    written = Rows(
        table=lambda: (HEADER, (_cells(one, now_s) for one in found)),
        documents=lambda: (_document(one) for one in found),
        plain=lambda: (
            [title.lower() for title in HEADER],
            (list(map(str, _document(one).values())) for one in found),
        ),
        names=lambda: (safe(one.path) for one in found),
    )
    # JSON is YAML as well.
    if not write_rows(written, "json" if args.output == "yaml" else args.output, screen):
        screen.talk(f"no checkpoint of {safe(seen.key)} was seen yet")
    return 0


def _cells(one: CheckpointRow, now_s: float) -> list[str]:
    return [
        str(one.step), str(one.index), str(one.attempt), age(now_s - one.at_s),
        byte_size(one.size), f"{one.took_s:.0f}s", safe(one.path),
    ]  # fmt: skip


def _document(one: CheckpointRow) -> Mapping[str, object]:
    """In the order of the header."""
    return {
        "step": one.step, "stage": one.index, "attempt": one.attempt, "at": timestamp(one.at_s),
        "bytes": one.size, "tookSeconds": one.took_s, "path": one.path,
    }  # fmt: skip
