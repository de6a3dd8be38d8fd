"""Every verb explains itself: a line, three examples that can be typed, its exit codes, a word on
each argument. Walks all verbs, so a new one is held to the same.
"""

from __future__ import annotations

import io
import re
import shlex
from importlib import import_module

import pytest

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.command.verbs import GROUPS, VERBS
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.specs.kinds.registry import KINDS

SUMMARY_CHARS_MAX = 80
EXAMPLES_MIN = 3
KNOWN_CODES = {"0", "1", "2", "3", "4", "5", "124", "130"}


def parser_of(verb: str) -> Parser:
    made: Parser = import_module(f"fleetctl.cli.{VERBS[verb].module}").parser(verb)
    return made


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def examples_of(verb: str) -> list[str]:
    said = parser_of(verb).epilog or ""
    return [line.strip() for line in said.partition("\n\n")[0].splitlines()[1:]]


def commands_in(line: str) -> list[list[str]]:
    """The words after `fleetctl` of each such command of a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    redirected = False
    for word in lexer:
        if set(word) <= set("|&;<>()"):
            redirected = word in (">", ">>", "<")
            if not redirected:
                commands.append([])
        elif redirected:
            redirected = False
        else:
            commands[-1].append(word)
    return [one[one.index("fleetctl") + 1 :] for one in commands if "fleetctl" in one]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_a_summary_of_one_line(verb: str) -> None:
    summary = VERBS[verb].summary
    assert "\n" not in summary and 10 < len(summary) <= SUMMARY_CHARS_MAX
    assert not summary.endswith(".") and summary[0].islower()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_three_examples_and_each_can_be_typed(verb: str) -> None:
    examples = examples_of(verb)
    assert len(examples) >= EXAMPLES_MIN
    assert len(set(examples)) == len(examples)
    own = 0
    for example in examples:
        for words in commands_in(example):
            assert words[0] in VERBS, example
            parser_of(words[0]).parse(words[1:])  # raises UsageError for what cannot be said
            own += words[0] == verb
    assert own >= EXAMPLES_MIN


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_tells_its_exit_codes(verb: str) -> None:
    _, _, codes = (parser_of(verb).epilog or "").partition("exit codes:\n")
    assert codes.strip()
    told = set(re.findall(r"(?:^|[,;] |,\n *)(\d+)(?= )", codes.strip()))
    assert told <= KNOWN_CODES
    assert "0" in told, codes


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_of_a_verb_says_what_it_is(verb: str) -> None:
    for argument in parser_of(verb).arguments():
        name = "/".join(argument.option_strings) or argument.dest
        assert argument.help and argument.help.strip(), f"{verb} {name}"
        assert not argument.help.endswith("."), f"{verb} {name}"


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_is_what_its_flag_prints(verb: str) -> None:
    code, page, said = fleetctl("help", verb)
    assert (code, said) == (0, "")
    assert fleetctl(verb, "--help") == fleetctl(verb, "-h") == (0, page, "")
    assert page.startswith(f"usage: fleetctl {verb}")


def test_help_of_nothing_that_is_there_is_wrong_usage() -> None:
    code, page, said = fleetctl("help", "aply")
    assert (code, page) == (2, "") and "did you mean `apply`?" in said


def test_the_list_of_verbs_is_complete_and_hides_what_scripts_ask() -> None:
    _, page, _ = fleetctl("--help")
    assert [verb for verb in VERBS if f"\n  {verb} " not in page] == []
    assert "__complete" not in page


def test_each_verb_is_under_one_heading() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(VERBS)


def test_all_kinds_are_named() -> None:
    out = io.StringIO()
    run_guarded(["--help"], Screen(out, io.StringIO()))
    listed = out.getvalue().partition("kinds:\n")[2].partition("\n\n")[0]
    for kind in KINDS.values():
        assert kind.plural in listed
        assert not kind.short or f"({kind.short[0]})" in listed
