"""`fleetctl label` and `fleetctl annotate`: words on stored objects, without their files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from fleetctl.cli.change.set import store
from fleetctl.cli.command.flags import Parser, add_labels, add_override
from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.choose import kinds_before_labels, target_seen, with_labels
from fleetctl.common.errors import Conflict, NotFound, UsageError
from fleetctl.common.home import home
from fleetctl.common.text import and_more, safe
from fleetctl.views.kinds import Target, target
from fleetctl.views.objects import View
from fleetctl.views.reading import Reading, must_find_all, open_reading

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

Add {noun} to stored objects; `KEY-` takes one away. What has another value stays
as it is without --overwrite. Runs go on. The next apply of a file brings back what
the file says, and leaves alone what it never had.

examples:
{examples}

exit codes:
  0 done or unchanged, 2 wrong usage or value, 4 no such object, 5 conflict
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, _PAGE.format(noun=_NOUNS[verb], examples=_EXAMPLES[verb]))
    made.set_defaults(verb=verb)
    made.add_argument("objects", nargs="+", metavar="KIND/NAME", help="what to change, and how")
    add_labels(made, "of the kind that is named, or of `all`, those with these labels")
    made.add_argument("--all", action="store_true", help="every object of the kind, or of `all`")
    made.add_argument("--overwrite", action="store_true", help="also what has another value")
    add_override(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    noun = _NOUNS[args.verb]
    objects, changes = _parted(args.objects)
    if not objects or not changes:
        raise UsageError(
            "say what to change, and how", hint=f"fleetctl {args.verb} job/NAME team=rlm"
        )
    with open_reading(home()) as reading:
        targets = _meant(args, objects, reading)
        views = must_find_all(targets, reading)
    if not args.overwrite:
        for seen in views:
            _refuse_overwriting(seen, noun, changes)
    for seen in views:
        request: dict[str, object] = {"verb": "set", "key": seen.key, noun: changes}
        if args.override:
            request["override"] = True
        store(request, screen)
    return 0


def _parted(words: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """Objects stand first; `a=b` sets, `a-` takes away. Raises UsageError."""
    changes: dict[str, str | None] = {}
    objects: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not (word.endswith("-") and (changes or objects)):
            if changes:
                raise UsageError(f"`{safe(word)}` is neither KEY=VALUE nor KEY-")
            objects.append(word)
            continue
        key = key if equals else word.removesuffix("-")
        if key in changes:
            raise UsageError(f"`{safe(key)}` is said twice")
        changes[key] = value if equals else None
    return objects, changes


def _meant(args: Namespace, objects: Sequence[str], reading: Reading) -> list[Target]:
    if not args.selector and not args.all:
        return list(dict.fromkeys(target(text, args.namespace) for text in objects))
    kinds = kinds_before_labels(objects, verb=args.verb)
    found = with_labels(kinds, args.selector, args.namespace, reading)
    if not found:
        raise NotFound("there is no such object")
    return [target_seen(seen) for seen in found]


def _refuse_overwriting(seen: View, noun: str, changes: Mapping[str, str | None]) -> None:
    before = seen.resource.labels if noun == "labels" else seen.resource.annotations
    others = [
        f"{key}={before[key]}"
        for key, value in changes.items()
        if value is not None and before.get(key, value) != value
    ]
    if others:
        raise Conflict(
            f"{safe(seen.key)} has {safe(and_more(others, most=3))} already",
            hint="add --overwrite to change it",
        )
