"""`fleetctl get checkpoints tr/NAME`: the complete ones that its attempts were seen to write."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.text import age, byte_size, safe, timestamp
from fleetctl.stores.read.rows import CheckpointRow
from fleetctl.views.kinds import target
from fleetctl.views.objects import View, mapping, parsed
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
    stages = _stages(seen, reading) if found else {}
    now_s = SystemClock().now_s()
    written = Rows(
        table=lambda: (HEADER, (_cells(one, stages, now_s) for one in found)),
        documents=lambda: (_document(one, stages) for one in found),
        plain=lambda: (
            list(_document(found[0], stages)) if found else [],
            (list(map(str, _document(one, stages).values())) for one in found),
        ),
        names=lambda: (safe(one.path) for one in found),
    )
    # JSON is YAML as well.
    if not write_rows(written, "json" if args.output == "yaml" else args.output, screen):
        screen.talk(f"no checkpoint of {safe(seen.key)} was seen yet")
        if path := mapping(seen.spec().get("checkpoint")).get("path"):
            screen.hint(f"it looks for complete ones in {safe(str(path))} itself")
    return 0


def _stages(seen: View, reading: Reading) -> Mapping[int, str]:
    """The names of those that have begun, by their index."""
    unit = seen.kind.unit
    return {it.run.index: str(parsed(it.run.params).get(unit)) for it in reading.tasks(seen)}


def _cells(one: CheckpointRow, stages: Mapping[int, str], now_s: float) -> list[str]:
    return [
        str(one.step), safe(stages[one.index]), str(one.attempt), age(now_s - one.at_s),
        byte_size(one.size), f"{one.took_s:.0f}s", safe(one.path),
    ]  # fmt: skip


def _document(one: CheckpointRow, stages: Mapping[int, str]) -> Mapping[str, object]:
    """index: of the stage, as in every other list."""
    return {
        "step": one.step, "index": one.index, "stage": stages[one.index], "attempt": one.attempt,
        "at": timestamp(one.at_s), "bytes": one.size, "tookSeconds": one.took_s, "path": one.path,
    }  # fmt: skip
