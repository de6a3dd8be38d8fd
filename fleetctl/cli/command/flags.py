"""Command line arguments: one parser class, and the small languages inside flags: times, indexes,
counts, money, namespaces, formats.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from fleetctl.cli.command.verbs import FLAGS_ELSEWHERE, VERBS
from fleetctl.common.errors import UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.specs.values.quantities import INDEX_MAX
from fleetctl.views.selectors import parse_selector

KIND_NAME = "KIND/NAME"  # the metavar of an object


NAMESPACE_VARIABLE = "FLEETCTL_NAMESPACE"

DAY_S = 86400.0
_DAYS_AGO = {"today": 0, "yesterday": 1}
_DATE = re.compile(r"\d{4}-\d")  # a duration has no dash
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


# A year: longer is a slip of the pen, and larger numbers overflow select().
DURATION_S_MAX = 366 * 86400.0


_SUCH_AS = {
    "jsonpath": "such as jsonpath={.metadata.name}",
    "custom-columns": "such as custom-columns=NAME:.metadata.name",
}


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError instead of leaving, and knows no abbreviations."""

    def __init__(self, verb: str, page: str) -> None:
        """page: the text of `--help` around the list of arguments: the verb's usage, an empty line,
        its description, and from a line `examples:` on the text below that list.
        """
        usage, _, rest = page.partition("\n\n")
        summary, _, examples = rest.partition("\n\nexamples:\n")
        super().__init__(
            prog=f"fleetctl {verb}",
            usage=f"fleetctl {verb} {usage}",
            description=summary,
            epilog=f"examples:\n{examples.rstrip()}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.verb = verb
        if VERBS[verb].namespaced:
            self.add_argument(
                "-n",
                "--namespace",
                type=parse_namespace,
                metavar="NS",
                help="where the objects are (default: $FLEETCTL_NAMESPACE, or `default`)",
            )
        self.add_argument("-h", "--help", action="store_true", help="show this text")
        self.add_argument(
            "--no-color", action="store_true", help="no colour (NO_COLOR does the same)"
        )

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Returns the arguments; with `-h` anywhere only `args.help` is set and no argument is
        checked."""
        if any(it.nargs in ("*", "+") and not it.option_strings for it in self._actions):
            argv = self._gather_words(argv)
        for action in self._actions:
            if action.metavar == KIND_NAME and not action.option_strings:
                argv = join_kind_names(argv, many=action.nargs in ("*", "+"))
        before = argv[: argv.index("--")] if "--" in argv else argv
        if "-h" in before or "--help" in before:
            return argparse.Namespace(help=True, no_color="--no-color" in before)
        args, unknown = self.parse_known_args(argv)
        if unknown:
            self._refuse(unknown[0])
        if VERBS[self.verb].namespaced:
            args.bound = args.namespace is not None
            args.namespace = args.namespace or read_namespace()
        return args

    def _gather_words(self, argv: Sequence[str]) -> list[str]:
        """Moves the words that are not flags together and last: they may stand before, between and
        behind flags.
        """
        values = {name for it in self._actions if it.nargs != 0 for name in it.option_strings}
        optional = {name for it in self._actions if it.nargs == "?" for name in it.option_strings}
        flags: list[str] = []
        words: list[str] = []
        rest = list(argv)
        while rest and rest[0] != "--":
            word = rest.pop(0)
            if word == "-" or not word.startswith("-"):
                words.append(word)
                continue
            flags.append(word)
            takes = word in values and word not in optional
            if takes and rest and rest[0] != "--":
                flags.append(rest.pop(0))
        # A word behind a flag without a value would be read as its value.
        return [*words, *flags, *rest]

    def arguments(self) -> Sequence[argparse.Action]:
        """Returns flags and positional arguments, in the order in which they were added."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        way = f"`fleetctl {self.verb} --help` lists its arguments"
        name, _, wrong = message.removeprefix("argument ").partition(": ")
        action = next((it for it in self._actions if name in it.option_strings), None)
        if action is not None and wrong.startswith("expected "):
            value = action.metavar or (next(iter(action.choices)) if action.choices else "VALUE")
            raise UsageError(f"`{name}` takes a value, and none is there", hint=f"{name} {value}")
        raise UsageError(_rewrite_message(message), hint=way)

    def _refuse(self, word: str) -> NoReturn:
        flag = word.split("=")[0]
        if not flag.startswith("-"):
            raise UsageError(
                f"unexpected argument `{word}` of `fleetctl {self.verb}`",
                hint=f"`fleetctl {self.verb} --help` lists its arguments",
            )
        known = [name for action in self._actions for name in action.option_strings]
        near = FLAGS_ELSEWHERE.get(flag, "").format(verb=self.verb) or did_you_mean(flag, known)
        raise UsageError(
            f"unknown flag `{flag}` of `fleetctl {self.verb}`",
            hint=near or f"`fleetctl {self.verb} --help` lists its flags",
        )


def join_kind_names(argv: Sequence[str], *, many: bool) -> Sequence[str]:
    """Returns `job x y --flag` as `job/x job/y --flag`, because kubectl has both ways of writing
    it.

    Without `many` only `x` is a name.
    """
    from fleetctl.specs.kinds.registry import find_kind

    kind = argv[0] if argv else ""
    if not kind or "/" in kind or find_kind(kind) is None:
        return argv
    names: list[str] = []
    for word in argv[1:]:
        if word.startswith("-") or set("/=:") & set(word) or (names and not many):
            break
        names.append(word)
    if names:
        return [*(f"{kind}/{name}" for name in names), *argv[1 + len(names) :]]
    return argv


def _rewrite_message(message: str) -> str:
    """Returns argparse's own messages, with backticks around the quoted words."""
    start, _, missing = message.partition("arguments are required: ")
    if start == "the following ":
        return f"`{missing}` is missing"
    return message.replace("argument ", "", 1).replace("'", "`")


def add_picking(parser: Parser) -> None:
    """Adds `--field-selector` and `--sort-by`, which every list takes."""
    parser.add_argument(
        "--field-selector",
        dest="fields",
        default="",
        metavar="FIELDS",
        help="such as status=Failed,metadata.name!=x",
    )
    parser.add_argument(
        "--sort-by",
        dest="sort_by",
        default="",
        metavar="PATH",
        help="least first, such as .status.cost.actual",
    )


def request_namespace(args: argparse.Namespace) -> dict[str, object]:
    """Returns the namespace's field of a request: empty for the implied `default`."""
    if args.bound:
        return {"namespace": args.namespace, "namespaceBinds": True}
    if args.namespace != DEFAULT_NAMESPACE:
        return {"namespace": args.namespace}
    return {}


def add_manifests(parser: Parser, *, required: bool = True) -> None:
    """Adds `-f` and `-R`."""
    parser.add_argument(
        "-f", "--filename", action="append", default=[], required=required, metavar="FILE",
        dest="files",
        help="a manifest, a directory of them, an https:// address, or - for stdin; repeatable",
    )  # fmt: skip
    add_recursive(parser)


def add_labels(parser: Parser, what: str) -> None:
    """Adds `-l`, terms of labels. what: such as `of all objects, or of a kind, with such
    labels`."""
    parser.add_argument(
        "-l", "--selector", type=parse_selector, default=(), metavar="LABELS", help=what
    )  # fmt: skip


def add_all_namespaces(parser: Parser) -> None:
    parser.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        dest="everywhere",
        help="of every namespace, and say which",
    )


def read_namespace() -> str:
    """Returns the namespace that holds without `-n`. Raises UsageError."""
    found = os.environ.get(NAMESPACE_VARIABLE) or DEFAULT_NAMESPACE
    if not is_namespace(found):
        raise UsageError(
            f"${NAMESPACE_VARIABLE} is `{found[:63]}`, which cannot name a namespace",
            hint="write at most 63 lower case letters, digits and `-`",
        )
    return found


def add_output(parser: Parser, *formats: str) -> None:
    """Adds `-o`. A format that ends in `=` takes a text of its own, as in
    `jsonpath={.metadata.name}`."""
    parser.add_argument(
        "-o",
        "--output",
        dest="output",
        type=_make_format_parser(*formats),
        default=formats[0],
        metavar="|".join(formats),
        help="how to write it (default %(default)s)",
    )


def add_override(parser: Parser) -> None:
    parser.add_argument(
        "--override", action="store_true", help="also what a Source keeps, which may change it back"
    )


def add_allow_missing(parser: Parser) -> None:
    parser.add_argument(
        "--allow-missing", action="store_true",
        help="only warn of what may come later: credentials, secrets, functions, GPUs here",
    )  # fmt: skip


def add_policies(parser: Parser) -> None:
    parser.add_argument(
        "--policy", action="append", default=[], dest="policies", metavar="FILE",
        help="policies that must be met, too: a file, or a directory with all below; repeatable",
    )  # fmt: skip


def add_set(parser: Parser) -> None:
    """Adds `--set` and `--values`, also for fields."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="give a variable its value, or a field of each object that does work:"
        " template.resources.gpu=A100:4",
    )  # fmt: skip
    _add_values(parser)


def add_variables(parser: Parser) -> None:
    """Adds the same for variables alone, where files only name the objects."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="with -f: give a variable its value",
    )  # fmt: skip
    _add_values(parser)


def _add_values(parser: Parser) -> None:
    parser.add_argument(
        "--values", action="append", default=[], metavar="FILE",
        help="values of variables: a mapping; repeatable, the last wins, and --set over all",
    )  # fmt: skip


def add_recursive(parser: Parser) -> None:
    parser.add_argument(
        "-R", "--recursive", action="store_true", help="of directories also those below"
    )


def add_timeout(
    parser: Parser,
    *,
    default_s: float | None,
    meaning: str,
) -> None:
    parser.add_argument(
        "--timeout", type=duration_s, default=default_s, metavar="TIME", help=meaning
    )


def duration_s(text: str) -> float:
    """`45s 5m 2h 7d`, combinations such as `1h30m`, or plain seconds. Raises ArgumentTypeError."""
    total = 0.0
    number = ""
    last_unit = DURATION_S_MAX
    for char in text:
        if char.isascii() and (char.isdigit() or char == "."):
            number += char
            continue
        unit = _UNITS_S.get(char)
        if unit is None or not _is_number(number) or unit >= last_unit:
            raise _bad_duration(text)
        total = total + float(number) * unit
        number = ""
        last_unit = unit
    if number:
        if total or not _is_number(number):
            raise _bad_duration(text)
        total = float(number)
    elif last_unit == DURATION_S_MAX:
        raise _bad_duration(text)
    if total > DURATION_S_MAX:
        raise argparse.ArgumentTypeError(f"`{text}` is longer than a year")
    return total


def parse_moment(text: str) -> Callable[[float], float]:
    """Reads a `--since`: a time ago, as for `duration_s`, or a day or a time, in UTC where it names
    no zone. Returns a function from `now` to that moment, in seconds since the epoch. Raises
    ArgumentTypeError.
    """
    if text in _DAYS_AGO:
        return lambda now_s: now_s // DAY_S * DAY_S - _DAYS_AGO[text] * DAY_S
    if not _DATE.match(text):
        ago_s = duration_s(text)
        return lambda now_s: now_s - ago_s
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a time ({error}); write it as 2026-11-01, 2026-11-01T18:30 or 2h"
        ) from None
    at_s = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    return lambda _: at_s


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and any(c.isdigit() for c in text)


def _bad_duration(text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(
        f"`{text}` is not a time; write it as 45s, 5m, 2h, 7d or a number of seconds"
    )


def parse_pattern(text: str) -> re.Pattern[str]:
    """Reads a regular expression. Raises ArgumentTypeError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"`{text}` is not a regular expression: {error}") from None


class TaskIndexes:
    """A set of task indexes as ranges, so that `0-99999` takes no memory."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: tuple[tuple[int, int], ...]) -> None:
        self.ranges = ranges

    def __contains__(self, index: int) -> bool:
        return any(low <= index <= high for low, high in self.ranges)


def parse_indexes(text: str) -> TaskIndexes:
    """Reads `3,7-9`. Raises ArgumentTypeError."""
    ranges = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not _is_index(low) or (dash and not _is_index(high)):
            raise argparse.ArgumentTypeError(
                f"`{text}` is not a list of indexes; write it as 3,7-9"
                + (f", or `--stage {text}`" if text[:1].isalpha() and text.isascii() else "")
            )
        first = int(low)
        last = int(high if dash else low)
        if last < first:
            raise argparse.ArgumentTypeError(
                f"`{part.strip()}` runs backwards; write {last}-{first}"
            )
        ranges.append((first, last))
    return TaskIndexes(tuple(ranges))


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INDEX_MAX


def parse_count(text: str) -> int:
    """Reads a whole number from 0. Raises ArgumentTypeError."""
    if not _is_index(text):
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 0")
    return int(text)


def parse_money(text: str) -> float:
    """Reads `25`, `25.50` or `25USD`, in USD. Raises ArgumentTypeError."""
    number = text.removesuffix("USD").removeprefix("$").strip()
    whole, _, part = number.partition(".")
    if not (whole + part).isdigit() or not (whole + part).isascii() or len(number) > 12:
        raise argparse.ArgumentTypeError(f"`{text}` is not an amount; write it as 25 or 25USD")
    return float(number)


def parse_namespace(text: str) -> str:
    """Reads the name of a namespace. Raises ArgumentTypeError."""
    if not is_namespace(text):
        raise argparse.ArgumentTypeError(
            f"`{text}` cannot name a namespace; write at most 63 lower case letters, digits and `-`"
        )
    return text


def is_namespace(text: str) -> bool:
    plain = all(char.islower() or char.isdigit() or char == "-" for char in text)
    return 0 < len(text) <= 63 and text.isascii() and plain and text.strip("-") == text


def one_of(*words: str) -> Callable[[str], str]:
    """Returns an argparse type that takes one of `words` and names the nearest in its error."""

    def check(text: str) -> str:
        if text in words:
            return text
        near = did_you_mean(text, words)
        raise argparse.ArgumentTypeError(
            f"`{text}` is not one of {', '.join(words)}" + (f"; {near}" if near else "")
        )

    return check


def parse_rollout(text: str) -> str:
    """Reads a rollout, also as peers write it: `finish-running`. Raises ArgumentTypeError."""
    known = {"replace": "Replace", "finishrunning": "FinishRunning"}
    return known.get(text.lower().replace("-", "")) or one_of(*known.values())(text)


def _make_format_parser(*formats: str) -> Callable[[str], str]:
    whole = one_of(*formats)

    def check(text: str) -> str:
        word, equals, rest = text.partition("=")
        if equals and f"{word}=" in formats and rest:
            return text
        if f"{word}=" in formats:
            raise argparse.ArgumentTypeError(f"`{word}=` needs what to write; {_SUCH_AS[word]}")
        return whole(text)

    return check
