"""`fleetctl diff`: how what is stored differs from what the files say, object by object."""

from __future__ import annotations

import difflib
import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fleetctl.cli.apply.request import documents_meant
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_set,
    said_namespace,
)
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.views.kinds import target

if TYPE_CHECKING:
    from fleetctl.apply.change import Change
    from fleetctl.controllers.model import Resource

SAME, DIFFERS, ERROR = 0, 1, 2
CONTEXT_LINES = 3


PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R] [--prune --applyset NAME] | source/NAME

Show how what is stored differs from what these files say, or the newest commit of a
Source: a unified diff of spec, labels and annotations for each object. Needs no
controller and changes nothing.

examples:
  fleetctl diff -f sweep.yaml
  fleetctl diff -f jobs/ --prune --applyset nightly
  fleetctl diff -f sweep.yaml && echo nothing to apply
  fleetctl diff source/fleet

exit codes:
  0 no difference, 1 differences, 2 or more an error (as kubectl's)
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("source", nargs="?", metavar="source/NAME", help="instead of files")
    add_manifests(made, required=False)
    add_set(made)
    made.add_argument("--applyset", default="", metavar="NAME", help="as apply has it")
    made.add_argument(
        "--prune", action="store_true", help="also what apply would delete from the set"
    )
    made.add_argument("--max-prune", default="100%", metavar="N|P%", help="as apply has it")
    add_allow_missing(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    try:
        lines, refused = _lines(args, screen)
    except FleetctlError as error:
        screen.error(str(error), hint=error.hint)
        return max(ERROR, error.exit_code)
    for line in lines:
        screen.data(screen.marked(line))
    if refused is not None:
        screen.error(str(refused))
        return ERROR
    return DIFFERS if lines else SAME


def _lines(args: Namespace, screen: Screen) -> tuple[list[str], FleetctlError | None]:
    """The differences, and why an apply of them would be refused."""
    if bool(args.source) == bool(args.files):
        hint = "`fleetctl diff -f FILE`, or `fleetctl diff source/NAME`"
        raise UsageError("`fleetctl diff` takes either -f FILE or one Source", hint=hint)
    if args.source:
        return _of_source(args, screen), None
    from fleetctl.cli.apply.predictions import looked_at
    from fleetctl.cli.apply.propose import proposed
    from fleetctl.manifest.problems import ManifestErrors
    from fleetctl.stores.read.read_only import open_readonly

    documents = documents_meant(args, screen)
    order: dict[str, object] = {
        "applyset": args.applyset,
        "prune": args.prune,
        "maxPrune": args.max_prune,
    }
    order |= {"allowMissing": args.allow_missing, **said_namespace(args)}
    state_dir = home()
    with open_readonly(state_dir) as stored:
        found = proposed(state_dir, stored, documents, order)
        providers = found.accounts.backends
        wrong, doubts = looked_at(stored, found.manifests, found.changes, providers, order)
    for warning in (*found.warnings, *doubts):
        screen.warn(safe(warning))
    lines = [line for change in found.changes for line in difference(change)]
    return lines, ManifestErrors(wrong) if wrong else None


def _of_source(args: Namespace, screen: Screen) -> list[str]:
    from fleetctl.cli.apply.of_source import changes_of
    from fleetctl.stores.read.read_only import open_readonly

    state_dir = home()
    with open_readonly(state_dir) as stored:
        changes, warnings = changes_of(state_dir, stored, target(args.source, args.namespace))
    for warning in warnings:
        screen.warn(safe(warning))
    return [line for change in changes for line in difference(change)]


def difference(change: Change) -> Iterator[str]:
    """A unified diff with file names as kubectl gives them; nothing where nothing differs."""
    if change.outcome == "unchanged":
        return
    from fleetctl.tracking.by_hand import field_note, shown

    gone = change.after.deleted_at_s is not None
    name = safe(f"{change.after.kind.lower()}.{change.after.namespace}.{change.after.name}")
    before = _text(change.before) if change.before is not None else []
    after = [] if gone else _text(change.after)
    made = difflib.unified_diff(
        before, after, f"live/{name}", f"file/{name}", lineterm="", n=CONTEXT_LINES
    )
    line_of_live = 0
    for moved in change.fields:
        if moved.difference and change.before is not None:
            yield f"# {name}: {moved.path} {safe(moved.difference)}"
    if change.before is not None and (hand := field_note(change.after.annotations).hand):
        yield f"# {name}: {safe(shown(hand))} set by hand stays"
    for line in made:
        if line.startswith("@@"):
            line_of_live = int(line[4:].partition(",")[0].partition(" ")[0])
            yield f"{line} {_section(before or after, line_of_live)}".rstrip()
        else:
            yield safe(line)


def _text(resource: Resource) -> list[str]:
    """The canonical YAML of what a person may change. Secrets are references here, never values."""
    from fleetctl.manifest.yaml.emit import to_yaml
    from fleetctl.tracking.annotations import NOTES

    shown: dict[str, object] = {}
    if resource.labels:
        shown["labels"] = dict(sorted(resource.labels.items()))
    fields = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    if fields:
        shown["annotations"] = dict(sorted(fields.items()))
    shown["spec"] = _as_written(json.loads(resource.spec))
    return to_yaml(shown).splitlines()


def _as_written(value: Any) -> Any:
    """Whole seconds without `.0`, which nobody writes."""
    if isinstance(value, dict):
        return {key: _as_written(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_written(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _section(lines: Sequence[str], number: int) -> str:
    """The key of the outermost block that the hunk begins in, as git names a function there."""
    for line in reversed(lines[: max(number, 1)]):
        if line[:1].strip() and line.endswith(":"):
            return line.removesuffix(":")
    return ""
