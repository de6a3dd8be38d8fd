"""Command line arguments: one parser class, and the small languages inside flags."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn

from fleetctl.errors import UsageError
from specs.namespaces import DEFAULT_NAMESPACE

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A year: longer is a slip of the pen, and larger numbers overflow select().
DURATION_S_MAX = 366 * 86400.0
INDEX_MAX = 2**31 - 1
KIND_NAME = "KIND/NAME"  # the metavar of an object
_COMMA = re.compile(r",(?![^()]*\))")  # not one between brackets
_SET = re.compile(r"(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_SUCH_AS = {
    "jsonpath": "such as jsonpath={.metadata.name}",
    "custom-columns": "such as custom-columns=NAME:.metadata.name",
}


# Verbs that name objects or list them. What is asked with SQL, and what is of the whole store or
# machine, spans all namespaces.
NAMESPACED = frozenset(
    (
        "apply", "plan", "diff", "validate", "get", "describe", "logs", "results", "exec",
        "port-forward", "ls", "cp", "rm", "wait", "events", "delete", "suspend", "resume", "retry",
        "rerun", "set", "scale", "label", "annotate", "edit", "plot", "cost", "top",
    )
)  # fmt: skip
NAMESPACE_VARIABLE = "FLEETCTL_NAMESPACE"


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError instead of leaving, and knows no abbreviations."""

    def __init__(
        self, *, verb: str, usage: str, summary: str, examples: Sequence[str], codes: str
    ) -> None:
        epilog = "examples:\n" + "\n".join(f"  {line}" for line in examples)
        super().__init__(
            prog=f"fleetctl {verb}",
            usage=f"fleetctl {verb} {usage}",
            description=summary,
            epilog=f"{epilog}\n\nexit codes:\n  {codes}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.verb = verb
        if verb in NAMESPACED:
            self.add_argument(
                "-n",
                "--namespace",
                type=namespace,
                metavar="NS",
                help="where the objects are (default: $FLEETCTL_NAMESPACE, or `default`)",
            )
        self.add_argument("-h", "--help", action="store_true", help="show this text")
        self.add_argument(
            "--no-color", action="store_true", help="no colour (NO_COLOR does the same)"
        )

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The arguments; with `-h` anywhere only `args.help` is set and nothing is checked."""
        if any(it.nargs in ("*", "+") and not it.option_strings for it in self._actions):
            argv = self._gathered(argv)
        for action in self._actions:
            if action.metavar == KIND_NAME and not action.option_strings:
                argv = joined(argv, many=action.nargs in ("*", "+"))
        before = argv[: argv.index("--")] if "--" in argv else argv
        if "-h" in before or "--help" in before:
            return argparse.Namespace(help=True, no_color="--no-color" in before)
        args, unknown = self.parse_known_args(argv)
        if unknown:
            self._refuse(unknown[0])
        if self.verb in NAMESPACED:
            args.bound = args.namespace is not None
            args.namespace = args.namespace or own_namespace()
        return args

    def _gathered(self, argv: Sequence[str]) -> list[str]:
        """The words that are no flags together and last: they may stand before, between and behind
        flags.
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
        # A word behind a flag that needs none would be taken for its value.
        return [*words, *flags, *rest]

    def arguments(self) -> Sequence[argparse.Action]:
        """Flags and positional arguments, in the order in which they were added."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        raise UsageError(
            _in_our_words(message), hint=f"`fleetctl {self.verb} --help` shows what can be said"
        )

    def _refuse(self, word: str) -> NoReturn:
        flag = word.split("=")[0]
        if not flag.startswith("-"):
            raise UsageError(
                f"unexpected argument `{word}` of `fleetctl {self.verb}`",
                hint=f"`fleetctl {self.verb} --help` shows what can be said",
            )
        known = [name for action in self._actions for name in action.option_strings]
        raise UsageError(
            f"`fleetctl {self.verb}` knows no flag `{flag}`",
            hint=did_you_mean(flag, known) or f"`fleetctl {self.verb} --help` lists its flags",
        )


def joined(argv: Sequence[str], *, many: bool) -> Sequence[str]:
    """`job x y --flag` as `job/x job/y --flag`, because kubectl has both ways of writing it.

    Without `many` only `x` is a name.
    """
    from specs.kinds import find_kind

    kind = argv[0] if argv else ""
    if not kind or "/" in kind or find_kind(kind) is None:
        return argv
    names: list[str] = []
    for word in argv[1:]:
        if word.startswith("-") or set("/=:") & set(word) or (names and not many):
            break
        names.append(word)
    return [*(f"{kind}/{name}" for name in names), *argv[1 + len(names) :]] if names else argv


def _in_our_words(message: str) -> str:
    """argparse's own messages, with backticks around what it quotes."""
    start, _, missing = message.partition("arguments are required: ")
    if start == "the following ":
        return f"`{missing}` is missing"
    return message.replace("argument ", "", 1).replace("'", "`")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean \\`x\\`?`, or nothing when no known word is near."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def duration_s(text: str) -> float:
    """`45s 5m 2h 7d`, combinations such as `1h30m`, or plain seconds. Raises ArgumentTypeError."""
    total, number, last_unit = 0.0, "", DURATION_S_MAX
    for char in text:
        if char.isascii() and (char.isdigit() or char == "."):
            number += char
            continue
        unit = _UNITS_S.get(char)
        if unit is None or not _is_number(number) or unit >= last_unit:
            raise _bad_duration(text)
        total, number, last_unit = total + float(number) * unit, "", unit
    if number:
        if total or not _is_number(number):
            raise _bad_duration(text)
        total = float(number)
    elif last_unit == DURATION_S_MAX:
        raise _bad_duration(text)
    if total > DURATION_S_MAX:
        raise argparse.ArgumentTypeError(f"`{text}` is longer than a year")
    return total


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and any(c.isdigit() for c in text)


def _bad_duration(text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(
        f"`{text}` is not a time; write it as 45s, 5m, 2h, 7d or a number of seconds"
    )


class Indexes:
    """A set of task indexes as ranges, so that `0-99999` costs nothing."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: tuple[tuple[int, int], ...]) -> None:
        self.ranges = ranges

    def __contains__(self, index: int) -> bool:
        return any(low <= index <= high for low, high in self.ranges)


def indexes(text: str) -> Indexes:
    """`3,7-9`. Raises ArgumentTypeError."""
    ranges = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not _is_index(low) or (dash and not _is_index(high)):
            raise argparse.ArgumentTypeError(
                f"`{text}` is not a list of indexes; write it as 3,7-9"
            )
        first, last = int(low), int(high if dash else low)
        if last < first:
            raise argparse.ArgumentTypeError(
                f"`{part.strip()}` runs backwards; write {last}-{first}"
            )
        ranges.append((first, last))
    return Indexes(tuple(ranges))


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INDEX_MAX


def count(text: str) -> int:
    """A whole number from 0. Raises ArgumentTypeError."""
    if not _is_index(text):
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 0")
    return int(text)


def money(text: str) -> float:
    """`25`, `25.50` or `25USD`, in USD. Raises ArgumentTypeError."""
    number = text.removesuffix("USD").removeprefix("$").strip()
    whole, _, part = number.partition(".")
    if not (whole + part).isdigit() or not (whole + part).isascii() or len(number) > 12:
        raise argparse.ArgumentTypeError(f"`{text}` is no amount; write it as 25 or 25USD")
    return float(number)


class Term(NamedTuple):
    """One part of a label selector."""

    key: str
    op: str  # "in", "notin", "exists" or "absent"; `=` and `!=` are sets of one
    values: tuple[str, ...] = ()


def selector(text: str) -> tuple[Term, ...]:
    """`team=rlm,stage!=test,gpu,!old,tier in (a,b)`: all must hold. Raises ArgumentTypeError."""
    terms = tuple(_term(part.strip()) for part in _COMMA.split(text))
    if not all(is_label(word) for term in terms for word in (term.key, *term.values)):
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a label selector; write it as team=rlm,stage!=test,tier in (a,b)"
        )
    return terms


def is_label(text: str) -> bool:
    """Whether a label can be called so."""
    return bool(text) and all(char.isalnum() or char in "-_./" for char in text)


def label_keys(text: str) -> list[str]:
    """`team,stage`, names of labels. Raises ArgumentTypeError."""
    keys = [part.strip() for part in text.split(",")]
    if not all(map(is_label, keys)):
        raise argparse.ArgumentTypeError(f"`{text}` does not name labels; write them as team,stage")
    return keys


def _term(part: str) -> Term:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found["values"].split(","))
        return Term(found["key"], found["op"], values)
    for written, op in (("!=", "notin"), ("==", "in"), ("=", "in")):
        key, found_one, value = part.partition(written)
        if found_one:
            return Term(key.strip(), op, (value.strip(),))
    return Term(part[1:].strip(), "absent") if part.startswith("!") else Term(part, "exists")


def add_picking(parser: Parser) -> None:
    """`--field-selector` and `--sort-by`, which every list takes."""
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


def namespace(text: str) -> str:
    """The name of one. Raises ArgumentTypeError."""
    if not is_namespace(text):
        raise argparse.ArgumentTypeError(
            f"`{text}` cannot name a namespace; write at most 63 lower case letters, digits and `-`"
        )
    return text


def is_namespace(text: str) -> bool:
    plain = all(char.islower() or char.isdigit() or char == "-" for char in text)
    return 0 < len(text) <= 63 and text.isascii() and plain and text.strip("-") == text


def said_namespace(args: argparse.Namespace) -> dict[str, object]:
    """What a request tells of it: nothing where it is `default` without a word."""
    if args.bound:
        return {"namespace": args.namespace, "namespaceBinds": True}
    return {"namespace": args.namespace} if args.namespace != DEFAULT_NAMESPACE else {}


def add_all_namespaces(parser: Parser) -> None:
    parser.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        dest="everywhere",
        help="of every namespace, and say which",
    )


def own_namespace() -> str:
    """What holds where no `-n` is said. Raises UsageError."""
    found = os.environ.get(NAMESPACE_VARIABLE) or DEFAULT_NAMESPACE
    if not is_namespace(found):
        raise UsageError(
            f"${NAMESPACE_VARIABLE} is `{found[:63]}`, which cannot name a namespace",
            hint="write at most 63 lower case letters, digits and `-`",
        )
    return found


def one_of(*words: str) -> Callable[[str], str]:
    """An argparse type that takes one of `words` and says which is nearest."""

    def check(text: str) -> str:
        if text in words:
            return text
        near = did_you_mean(text, words)
        raise argparse.ArgumentTypeError(
            f"`{text}` is not one of {', '.join(words)}" + (f"; {near}" if near else "")
        )

    return check


def rollout(text: str) -> str:
    """Also as peers write it: `finish-running`. Raises ArgumentTypeError."""
    known = {"replace": "Replace", "finishrunning": "FinishRunning"}
    return known.get(text.lower().replace("-", "")) or one_of(*known.values())(text)


def add_output(parser: Parser, *formats: str) -> None:
    """A format that ends in `=` takes a text of its own, as in `jsonpath={.metadata.name}`."""
    parser.add_argument(
        "-o",
        "--output",
        dest="output",
        type=_format(*formats),
        default=formats[0],
        metavar="|".join(formats),
        help="how to write it (default %(default)s)",
    )


def add_allow_missing(parser: Parser) -> None:
    parser.add_argument(
        "--allow-missing", action="store_true",
        help="only warn of what may come later: credentials, secrets, functions, GPUs here",
    )  # fmt: skip


def _format(*formats: str) -> Callable[[str], str]:
    whole = one_of(*formats)

    def check(text: str) -> str:
        word, equals, rest = text.partition("=")
        if equals and f"{word}=" in formats and rest:
            return text
        if f"{word}=" in formats:
            raise argparse.ArgumentTypeError(f"`{word}=` needs what to write; {_SUCH_AS[word]}")
        return whole(text)

    return check


def add_recursive(parser: Parser) -> None:
    parser.add_argument(
        "-R", "--recursive", action="store_true", help="of directories also those below"
    )


def add_timeout(parser: Parser, *, default_s: float | None, meaning: str) -> None:
    parser.add_argument(
        "--timeout", type=duration_s, default=default_s, metavar="TIME", help=meaning
    )
