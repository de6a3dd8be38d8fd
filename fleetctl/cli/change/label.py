"""`fleetctl label` and `fleetctl annotate`: set labels and annotations of stored objects, without
their files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from fleetctl.cli.change.set import store_change
from fleetctl.cli.command.flags import Parser, add_labels, add_override
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.choose import kinds_before_labels, target_seen, with_labels
from fleetctl.common.errors import Conflict, NotFound, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import and_more, escape_line
from fleetctl.views.kinds import Target, parse_target
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading, must_find_all, open_reading

_NOUNS = {"label": "labels", "annotate": "annotations"}
_EXAMPLES = {
    "label": """\
  fleetctl label job/chunks team=rlm stage=test
  fleetctl label job/chunks stage- --overwrite
  fleetctl label jobs -l team=rlm stage=prod --overwrite""",
    "annotate": """\
  fleetctl annotate job/chunks note='ask Ada before deleting'
  fleetctl annotate sweep/lr note-
  fleetctl annotate jobs --all example.com/owner=ada --overwrite""",
}
_PAGE = """\
KIND/NAME [KIND/NAME ...] | KIND|all -l LABELS|--all  KEY=VALUE|KEY- ...

Add {noun} to stored objects; `KEY-` removes one. Another value is replaced only with
--overwrite. Runs go on. The next apply of a file restores the values in the file, and
leaves alone what the file never had.

examples:
{examples}

exit codes:
  0 done or unchanged, 2 wrong usage or value, 4 no such object, 5 conflict
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, _PAGE.format(noun=_NOUNS[verb], examples=_EXAMPLES[verb]))
    made.set_defaults(verb=verb)
    made.add_argument("objects", nargs="+", metavar="KIND/NAME", help="objects and new values")
    add_labels(made, "of the kind that is named, or of `all`, those with these labels")
    made.add_argument("--all", action="store_true", help="every object of the kind, or of `all`")
    made.add_argument("--overwrite", action="store_true", help="also what has another value")
    add_override(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    noun = _NOUNS[args.verb]
    objects, changes = _split_words(args.objects)
    if not objects or not changes:
        raise UsageError(
            "say what to change, and how", hint=f"fleetctl {args.verb} job/NAME team=rlm"
        )
    with open_reading(find_state_dir()) as reading:
        targets = _select_targets(args, objects, reading)
        views = must_find_all(targets, reading)
    if not args.overwrite:
        for seen in views:
            _refuse_overwriting(seen, noun, changes)
    for seen in views:
        request: dict[str, object] = {"verb": "set", "key": seen.key, noun: changes}
        if args.override:
            request["override"] = True
        store_change(request, screen)
    return 0


def _split_words(words: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """Splits the words: objects come first; `a=b` sets, `a-` removes. Raises UsageError."""
    changes: dict[str, str | None] = {}
    objects: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not (word.endswith("-") and (changes or objects)):
            if changes:
                raise UsageError(f"`{escape_line(word)}` is neither KEY=VALUE nor KEY-")
            objects.append(word)
            continue
        key = key if equals else word.removesuffix("-")
        if key in changes:
            raise UsageError(f"`{escape_line(key)}` is given twice")
        changes[key] = value if equals else None
    return objects, changes


def _select_targets(
    args: Namespace,
    objects: Sequence[str],
    reading: StoreReading,
) -> list[Target]:
    if not args.selector and not args.all:
        return list(dict.fromkeys(parse_target(text, args.namespace) for text in objects))
    kinds = kinds_before_labels(objects, verb=args.verb)
    found = with_labels(kinds, args.selector, args.namespace, reading)
    if not found:
        raise NotFound("there is no such object")
    return [target_seen(seen) for seen in found]


def _refuse_overwriting(
    seen: View,
    noun: str,
    changes: Mapping[str, str | None],
) -> None:
    before = seen.resource.labels if noun == "labels" else seen.resource.annotations
    others = [
        f"{key}={before[key]}"
        for key, value in changes.items()
        if value is not None and before.get(key, value) != value
    ]
    if others:
        raise Conflict(
            f"{escape_line(seen.key)} has {escape_line(and_more(others, most=3))} already",
            hint="add --overwrite to change it",
        )
