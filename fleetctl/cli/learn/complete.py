"""`fleetctl __complete WORD...`: completes the last word. Called by the scripts beside completions/
at every press of the tab key, so it loads one verb's parser at most, and no model.

The arguments of a verb are read from its parser: the metavar of an argument names its values.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.command.verbs import EXIT_OK, VERBS
from fleetctl.cli.output.screen import Screen
from fleetctl.common.state_paths import find_state_dir
from fleetctl.specs.kinds.registry import KINDS, Kind, find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from argparse import Action

    from fleetctl.cli.command.flags import Parser

PHASES = (
    "Cancelled", "Deleting", "Failed", "Pending", "Queued", "Ready", "Refused", "Running",
    "Skipped", "Starting", "Stopped", "Succeeded", "Suspended",
)  # fmt: skip
NAMES_MAX = 500  # of objects; more are not readable
FILES = ":files"  # the shell completes files itself
FILE_METAVARS = ("FILE", "DIR", "PATH", "FROM", "TO")
VOLUME_METAVARS = ("FROM", "TO")


class CompletionContext(NamedTuple):
    """The positional words before the last one, and the namespace that is meant."""

    given: Sequence[str]
    namespace: str


def run(words: Sequence[str], screen: Screen) -> int:
    """Prints one candidate a line, its description after a tab. No line is a valid result."""
    for line in list_candidates(_join_flag_words(words)):
        screen.data(line)
    return EXIT_OK


def list_candidates(words: Sequence[str]) -> Iterator[str]:
    """Yields candidates for the last of the words; the others stand before it."""
    *before, last = words or [""]
    if not before or before[0] == "help":
        yield from _match_words(last, _list_verbs())
    elif before[0] in VERBS:
        named = None if before[-1].startswith("-") else find_kind(last.partition("/")[0])
        if "/" in last and named is not None and named.runs:
            # The common case, which needs no parser.
            yield from _complete_object(last, (named,), _find_namespace(before))
        else:
            yield from _of_verb(before[0], before[1:], last)


def _join_flag_words(words: Sequence[str]) -> list[str]:
    """Joins the words that bash cuts at `=` and `:`; `--output = js` was `--output=js`."""
    found: list[str] = []
    for word in words:
        if word == "=" and found and found[-1].startswith("--"):
            continue
        found.append(word)
    if words and words[-1] == "=":
        found.append("")
    return found


def _list_verbs() -> Iterator[tuple[str, str]]:
    yield from ((name, verb.summary) for name, verb in VERBS.items())
    yield "help", "show the help of a verb"


def _of_verb(
    verb: str,
    before: Sequence[str],
    last: str,
) -> Iterator[str]:
    parser: Parser = import_module(f"fleetctl.cli.{VERBS[verb].module}").parser(verb)
    if "--" in before:
        yield FILES
        return
    flags = {name: action for action in parser.arguments() for name in action.option_strings}
    within = CompletionContext((), _find_namespace(before))
    flag, has_value, value = last.partition("=")
    if last.startswith("--") and has_value and flag in flags:
        yield from (f"{flag}={line}" for line in _complete_value(flags[flag], value, within))
    elif before and (action := flags.get(before[-1])) is not None and _takes_value(action):
        yield from _complete_value(action, last, within)
    elif last.startswith("-"):
        yield from _match_words(last, ((name, one.help or "") for name, one in flags.items()))
    else:
        given = list(_find_positionals(before, flags))
        free = [one for one in parser.arguments() if not one.option_strings]
        if free:
            words = within._replace(given=given)
            yield from _complete_value(free[min(len(given), len(free) - 1)], last, words)


def _takes_value(action: Action) -> bool:
    return bool(action.option_strings) and action.nargs != 0


def _find_positionals(before: Sequence[str], flags: dict[str, Action]) -> Iterator[str]:
    """Yields the words that are neither flags nor their values."""
    skip = False
    for word in before:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in flags and _takes_value(flags[word])
        else:
            yield word


def _complete_value(
    action: Action,
    last: str,
    before: CompletionContext,
) -> Iterator[str]:
    """Yields the values of an argument."""
    given, within = before
    metavar = str(action.metavar or action.dest)
    if metavar in VOLUME_METAVARS or metavar.startswith("volume/"):
        yield from _complete_object(last, (KINDS["Volume"],), within)
    if metavar in FILE_METAVARS:
        yield FILES
    elif metavar == "GOAL":
        from fleetctl.views.goals import CONDITION, WORDS

        yield from _match_words(last, ((word, "") for word in (*WORDS, CONDITION)))
    elif metavar == "EXAMPLE":
        from fleetctl.cli.learn.init import list_examples

        yield from _match_words(last, ((name, "") for name in list_examples()))
    elif metavar == "FIELDS":
        yield from _complete_selector(last)
    elif metavar == "FIELD=VALUE" and given:
        yield from _complete_setting(last, given)
    elif metavar == "SHELL":
        from fleetctl.cli.learn.completion import SHELLS

        yield from _match_words(last, ((shell, "") for shell in SHELLS))
    elif metavar == "KIND[.FIELD]":
        yield from _complete_field(last)
    elif metavar == "KIND" and action.dest.startswith("kind"):  # not that of `get`
        yield from _match_words(last, ((one.name, "") for one in KINDS.values()))
    elif metavar == "KIND":
        yield from _kinds_and_names(last, before)
    elif metavar == "NS":
        yield from _match_words(last, ((name, "") for name in _list_namespaces()))
    elif metavar == "KIND/NAME":
        yield from _complete_object(last, tuple(KINDS.values()), within)
    elif metavar == "name" and given and (kind := find_kind(given[0])) is not None:
        yield from _match_words(last, ((name, "") for name in _list_names(kind, last, within)))
    elif "|" in metavar:
        yield from _match_words(last, ((word, "") for word in metavar.split("|")))


def _kinds_and_names(last: str, before: CompletionContext) -> Iterator[str]:
    """Yields `jobs`, `job/x`, `jobs x`, `all`, `tasks job/x`."""
    from fleetctl.views.kinds import ATTEMPTS, CHECKPOINTS, INTERPRETERS, METRICS, NAMESPACES, TASKS

    given, within = before
    kind = find_kind(given[0]) if given else None
    if kind is not None:
        yield from _match_words(last, ((name, "") for name in _list_names(kind, last, within)))
    elif "/" in last or given:
        yield from _complete_object(last, tuple(KINDS.values()), within)
    else:
        parts = (TASKS, ATTEMPTS, METRICS, CHECKPOINTS)
        others = [(it[0], f"{it[0]} of KIND/NAME") for it in parts]
        spaces = (NAMESPACES[0], "those in use")
        made = (INTERPRETERS[0], "those that programs made")
        kinds = ((one.plural, one.name) for one in KINDS.values())
        words = ((short, one.name) for one in KINDS.values() for short in one.short)
        shown = list(
            _match_words(last, (*kinds, *others, spaces, made, ("all", "objects of every kind")))
        )
        yield from shown or _match_words(last, words)


def _complete_object(
    last: str,
    kinds: Sequence[Kind],
    namespace: str,
) -> Iterator[str]:
    """Yields `job/` while the kind is being written, then `job/x`: in the words that were
    chosen."""
    word, slash, begun = last.partition("/")
    if slash:
        kind = find_kind(word)
        if kind in kinds and kind is not None:
            yield from (f"{word}/{name}" for name in _list_names(kind, begun, namespace))
        return
    for kind in kinds:
        words = (kind.name.lower(), *kind.short, kind.plural)
        known = next((one for one in words if one.startswith(word.lower())), "")
        if known:
            yield f"{known}/\t{kind.name}"


def _complete_field(last: str) -> Iterator[str]:
    """Yields `sweep.spec.search` for `sweep.spec.sea`."""
    from fleetctl.manifest.hints.fields import ANY_NAME, look_up, manifest_field

    word, *path = last.split(".")
    kind = find_kind(word)
    if not path or kind is None:
        yield from _match_words(last, ((one.name.lower(), "") for one in KINDS.values()))
        return
    found = look_up(manifest_field(kind.name), path[:-1])
    if found.depth == len(path) - 1:
        above = ".".join((word, *path[:-1]))
        below = (child for child in found.field.children() if child.name != ANY_NAME)
        yield from _match_words(last, ((f"{above}.{one.name}", one.description) for one in below))


def _complete_setting(last: str, given: Sequence[str]) -> Iterator[str]:
    """Yields `budget.maxCost=` for `budget.`, for `set job/x`."""
    from fleetctl.manifest.hints.fields import ANY_NAME, look_up, manifest_field

    kind = find_kind(given[0].partition("/")[0])
    if kind is None or "=" in last:
        return
    *above, begun = last.split(".")
    found = look_up(manifest_field(kind.name), ("spec", *above))
    if found.depth != len(above) + 1:
        return
    before = "".join(f"{name}." for name in above)
    for child in found.field.children():
        if child.name != ANY_NAME and child.name.startswith(begun):
            end = "." if child.children() else "="
            yield f"{before}{child.name}{end}\t{child.description.partition(chr(10))[0]}"


def _complete_selector(last: str) -> Iterator[str]:
    """Yields `status=` and its words, after a comma too."""
    from fleetctl.cli.output.select import SHORT

    before, comma, begun = last.rpartition(",")
    name, equals, value = begun.partition("=")
    if equals:
        words = PHASES if name in ("status", "phase", "state", "status.phase") else ()
        found = ((f"{before}{comma}{name}={word}", "") for word in words if word.startswith(value))
    else:
        found = ((f"{before}{comma}{word}=", path) for word, path in SHORT.items())
    yield from _match_words(last, found)


def _list_names(
    kind: Kind,
    begun: str,
    namespace: str,
) -> Sequence[str]:
    from fleetctl.stores.read.reader import Reader

    within = namespace if kind.namespaced else DEFAULT_NAMESPACE
    with Reader(find_state_dir()) as reader:
        return reader.names(kind.name, begun, limit=NAMES_MAX, namespace=within)


def _list_namespaces() -> Sequence[str]:
    from fleetctl.stores.read.reader import Reader

    with Reader(find_state_dir()) as reader:
        return list(dict.fromkeys(name for name, _, _ in reader.namespaces()))


def _find_namespace(before: Sequence[str]) -> str:
    """Returns the value of `-n` before the word, or that of the environment."""
    for at, word in enumerate(before):
        flag, _, value = word.partition("=")
        if flag in ("-n", "--namespace"):
            return value or "".join(before[at + 1 : at + 2])
    return os.environ.get("FLEETCTL_NAMESPACE") or DEFAULT_NAMESPACE


def _match_words(begun: str, known: Iterable[tuple[str, str]]) -> Iterator[str]:
    for word, meaning in known:
        if word.startswith(begun):
            line = meaning.partition("\n")[0].replace("%(default)s", "").strip()
            yield f"{word}\t{line}" if line else word
