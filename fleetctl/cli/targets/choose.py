"""Chooses the objects of a verb that takes names, or `-l LABELS` among all or those of a kind.

Called by logs, wait, delete and label. Reads the store alone.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fleetctl.cli.command.flags import Parser, add_labels, add_recursive, add_variables
from fleetctl.common.errors import NotFound, UsageError
from fleetctl.specs.kinds.registry import Kind
from fleetctl.views.kinds import Target, kinds_of, parse_target, target_of
from fleetctl.views.objects import DELETING, View
from fleetctl.views.selectors import LabelTerm
from fleetctl.views.store_reading import StoreReading, must_find_all

_LABELS_HINT = "`fleetctl get all --show-labels` lists them"


def add_labels_and_files(made: Parser, verb: str) -> None:
    add_labels(made, "of all objects, or of a kind, with such labels")
    made.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", dest="files",
        help=f"{verb} the objects that these manifests name",
    )  # fmt: skip
    add_recursive(made)
    add_variables(made)


def choose_targets(
    args: Namespace,
    reading: StoreReading,
    *,
    working: bool,
) -> list[Target]:
    """Returns the objects that the words, the labels or the files name; with working, of labels and
    files those that do work. Raises UsageError and NotFound.
    """
    verb = args.verb
    if sum(map(bool, (args.selector or args.objects, args.files))) != 1:
        raise UsageError(
            f"`fleetctl {verb}` takes either objects or -f FILE", hint=f"fleetctl {verb} job/NAME"
        )
    if args.selector:
        kinds = kinds_before_labels(args.objects, verb=verb)
        views = with_labels(kinds, args.selector, args.namespace, reading)
        found = [target_seen(seen) for seen in views if seen.kind.runs or not working]
        if not found:
            raise NotFound("no object has such labels", hint=_LABELS_HINT)
        return found
    if not args.files:
        return list(dict.fromkeys(parse_target(text, args.namespace) for text in args.objects))
    from fleetctl.cli.targets.manifests import named_objects

    named = named_objects(args)
    found = [one for one in named if one.kind.runs or not working]
    if not found:
        raise UsageError(f"nothing that these files name ends, so one cannot {verb} for its end")
    return found


def working_objects(
    args: Namespace,
    reading: StoreReading,
    *,
    verb: str,
) -> list[View]:
    """Returns objects that do work: the named ones, or those with the labels. Raises NotFound for
    an empty result."""
    if not args.selector:
        if not args.objects:
            raise UsageError("`KIND/NAME` is missing", hint=f"fleetctl {verb} job/NAME")
        targets = [parse_target(text, args.namespace) for text in args.objects]
        return must_find_all(list(dict.fromkeys(targets)), reading)
    kinds = kinds_before_labels(args.objects, verb=verb)
    found = [
        seen
        for seen in with_labels(kinds, args.selector, args.namespace, reading)
        if seen.kind.runs
    ]
    if not found:
        raise NotFound(
            "no object that does work has such labels",
            hint=_LABELS_HINT,
        )
    return found


def kinds_before_labels(words: Sequence[str], *, verb: str) -> list[Kind]:
    """Returns the kinds of `jobs -l team=rlm`; empty for `all`, and for `-l` alone. Raises
    UsageError for a name."""
    if len(words) > 1 or (words and "/" in words[0]):
        raise UsageError(
            "`-l` selects among the objects of a kind, or of all",
            hint=f"fleetctl {verb} jobs -l team=rlm",
        )
    if not words or words[0].lower() == "all":
        return []
    return kinds_of(words[0])


def with_labels(
    kinds: Sequence[Kind],
    terms: Sequence[LabelTerm],
    namespace: str,
    reading: StoreReading,
) -> list[View]:
    """Returns the living ones, oldest first; without terms all of the kinds, without kinds of
    all."""
    from fleetctl.views.selectors import matches_labels

    found = reading.views(kinds[0] if len(kinds) == 1 else None, namespace=namespace)
    return [
        seen
        for seen in found
        if (not kinds or seen.kind in kinds)
        and seen.phase != DELETING
        and matches_labels(seen.resource.labels, terms)
    ]


def target_seen(seen: View) -> Target:
    return target_of(seen.kind, seen.resource.name, seen.resource.namespace)
