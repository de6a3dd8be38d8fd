"""`fleetctl get artifacts`: lists the outputs that are kept of tasks, as rows of a screen."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, count_noun, escape_line, format_age, format_timestamp
from fleetctl.providers.rundir.kept_outputs import KeptFile
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View
from fleetctl.views.run_files import Artifact, artifact_document, escape_path, list_artifacts
from fleetctl.views.store_reading import StoreReading, must_find

TASKS_COUNTED_MAX = 1_000  # whose packs `describe` reads
HEADER = ("INDEX", "ATTEMPT", "SIZE", "AGE", "PATH")


def write_artifacts(
    found: Iterator[Artifact],
    seen: View,
    output: str,
    screen: Screen,
) -> bool:
    """Returns False for a table without a row."""
    now_s = SystemClock().now_s()
    written = OutputRows(
        table=lambda: (HEADER, (_build_cells(it, now_s) for it in found)),
        documents=lambda: map(artifact_document, found),
        plain=lambda: (
            ("index", "attempt", "path", "bytes", "sha256", "modified"),
            (_build_plain(it) for it in found),
        ),
        names=lambda: (escape_line(f"{seen.key}:{it.index}/{it.file.path}") for it in found),
    )
    # JSON is YAML as well.
    return write_rows(written, "json" if output == "yaml" else output, screen)


def say_none(seen: View, screen: Screen) -> None:
    """Prints that nothing is kept, and what would keep files."""
    key = escape_line(seen.key)
    if as_listed(seen):
        gone = ": no file matched, or they are past retention" if seen.over else " yet"
        screen.talk(f"no outputs of {key} are kept{gone}")
        return
    screen.talk(f"{key} keeps no outputs")
    screen.hint("`template.outputs: [out/**]` keeps the files that its tasks write there")


def as_listed(seen: View) -> list[object]:
    """Returns the patterns of its template."""
    template = seen.spec().get("template")
    listed = template.get("outputs") if isinstance(template, dict) else None
    if isinstance(listed, list):
        return listed
    return []


def output_line(seen: View, reading: StoreReading) -> str:
    """Returns `4 files of 2 tasks, 586.0 KiB: fleetctl get artifacts job/x`; "" for an object whose
    template keeps none. For many tasks it names the command alone.
    """
    if not as_listed(seen):
        return ""
    command = f"fleetctl get artifacts {escape_line(seen.key)}"
    if seen.settled > TASKS_COUNTED_MAX:
        return command
    found = list(list_artifacts(find_state_dir(), seen, reading))
    if not found:
        return "none is kept yet"
    tasks = count_noun(len({it.index for it in found}), seen.kind.unit)
    size = byte_size(sum(it.file.size for it in found))
    return f"{count_noun(len(found), 'file')} of {tasks}, {size}: {command}"


def _build_cells(one: Artifact, now_s: float) -> Sequence[str]:
    return (
        str(one.index),
        str(one.run.attempt),
        byte_size(one.file.size),
        format_age(now_s - one.file.modified_at_s),
        escape_line(one.file.path),
    )


def _build_plain(one: Artifact) -> list[object]:
    return [one.index, one.run.attempt, escape_path(one.file.path), *_list_facts(one.file)]


def _list_facts(file: KeptFile) -> tuple[object, ...]:
    return file.size, file.sha256, format_timestamp(file.modified_at_s)


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
