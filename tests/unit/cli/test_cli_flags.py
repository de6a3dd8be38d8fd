"""The small languages inside flags: times, indexes, selectors, and answers to wrong words."""

from __future__ import annotations

import argparse
import shlex
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.cli.command.flags import (
    Parser,
    duration_s,
    join_kind_names,
    parse_count,
    parse_indexes,
)
from fleetctl.cli.command.verbs import VERBS
from fleetctl.common.errors import UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.views.selectors import matches_labels, parse_selector


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45), ("5m", 300), ("2h", 7200), ("7d", 604800), ("90", 90), ("0", 0), ("0s", 0),
        ("1.5h", 5400), ("0.5", 0.5), ("1h30m", 5400), ("1d2h3m4s", 93784),
    ],
)  # fmt: skip
def test_times_read_as_people_write_them(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "s", "5x", "-5s", "5 m", "1m1h", "5m5m", "5m5", "1.2.3", ".", "1e3", "inf", "nan", "٥s",
     "367d", "9" * 400],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration_s(text)


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_a_refusal(text: str) -> None:
    try:
        assert duration_s(text) >= 0
    except argparse.ArgumentTypeError as error:
        assert text in str(error)


def test_indexes_are_single_numbers_and_ranges() -> None:
    chosen = parse_indexes("3,7-9, 12")
    assert [index for index in range(20) if index in chosen] == [3, 7, 8, 9, 12]


def test_a_huge_range_of_indexes_costs_nothing() -> None:
    assert 99_999 in parse_indexes("0-2147483647")


@pytest.mark.parametrize("text", ["", "a", "3,", "-3", "3-", "9-7", "1-2-3", "3;4", "99999999999"])
def test_what_is_no_list_of_indexes_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_indexes(text)


def test_a_backward_range_is_turned_round_in_the_answer() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 7-9"):
        parse_indexes("9-7")


def test_a_count_is_a_whole_number_from_zero() -> None:
    assert parse_count("0") == 0
    with pytest.raises(argparse.ArgumentTypeError):
        parse_count("-1")


@pytest.mark.parametrize(
    ("text", "labels", "taken"),
    [
        ("team=rlm", {"team": "rlm"}, True), ("team==rlm", {"team": "rlm"}, True),
        ("team=rlm", {}, False), ("team!=rlm", {}, True), ("team!=rlm", {"team": "rlm"}, False),
        ("gpu", {"gpu": ""}, True), ("gpu", {}, False), ("!gpu", {}, True),
        ("! gpu", {"gpu": "x"}, False), ("team in (rlm, eval)", {"team": "eval"}, True),
        ("team in (rlm,eval)", {}, False), ("team notin (rlm,eval)", {}, True),
        ("team notin(rlm)", {"team": "rlm"}, False),
        ("a in (x,y), b=z,c", {"a": "y", "b": "z", "c": ""}, True),
        ("a in (x,y),b=z", {"a": "y", "b": "q"}, False),
    ],
)  # fmt: skip
def test_a_label_selector_means_what_kubectl_means(
    text: str, labels: dict[str, str], taken: bool
) -> None:
    assert matches_labels(labels, parse_selector(text)) is taken


@pytest.mark.parametrize(
    "text",
    ["", "=x", "team=", "a=b,", ",a", "a,,b", "!=x", "team in (a", "team in a", "in (a,b)", "a>1",
     "team in ()", "!", "!team=a", "a in (b) c"],
)  # fmt: skip
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_selector(text)


def _parser() -> Parser:
    parser = Parser("wait", "X\n\ns\n\nexamples:\n  e\n\nexit codes:\n  0 ok\n")
    parser.add_argument("object")
    parser.add_argument("--timeout", type=duration_s)
    return parser


def test_an_unknown_flag_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="unknown flag `--timeot`") as caught:
        _parser().parse(["job/x", "--timeot=5m"])
    assert caught.value.hint == "did you mean `--timeout`?"


def test_a_flag_is_never_guessed_from_its_beginning() -> None:
    with pytest.raises(UsageError):
        _parser().parse(["job/x", "--time", "5m"])


def test_a_bad_value_names_its_flag() -> None:
    with pytest.raises(UsageError, match="--timeout: `5x` is not a time"):
        _parser().parse(["job/x", "--timeout", "5x"])


def test_a_word_too_many_is_named() -> None:
    with pytest.raises(UsageError, match="unexpected argument `job/y`"):
        _parser().parse(["job/x", "job/y"])


def test_a_missing_word_is_named() -> None:
    with pytest.raises(UsageError, match="`object` is missing"):
        _parser().parse([])


def test_help_is_given_even_when_the_rest_is_wrong() -> None:
    assert _parser().parse(["--nonsense", "-h"]).help


def test_far_words_are_not_suggested() -> None:
    assert did_you_mean("xyzzy", ["apply", "get"]) == ""


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["job", "x"], ["job/x"]), (["job", "x", "y", "-f"], ["job/x", "job/y", "-f"]),
        (["job/x", "y"], ["job/x", "y"]), (["jobb", "x"], ["jobb", "x"]), (["job"], ["job"]),
        (["BatchJobs", "x"], ["BatchJobs/x"]), (["job", "job/x"], ["job", "job/x"]), ([], []),
    ],
)  # fmt: skip
def test_a_kind_and_names_are_objects(written: list[str], meant: list[str]) -> None:
    assert list(join_kind_names(written, many=True)) == meant


@pytest.mark.parametrize(
    "words",
    ["describe job x", "logs job x", "results job x", "delete job x", "wait job x", "events job x",
     "retry job x --all", "suspend job x", "resume job x", "scale job x --parallelism 2",
     "set job x budget.maxCost=3", "exec job x -- ls", "port-forward job x 8080:80"],
)  # fmt: skip
def test_every_verb_takes_a_kind_and_a_name_as_two_words(words: str) -> None:
    verb, *rest = words.split()
    args = import_module(f"fleetctl.cli.{VERBS[verb].module}").parser(verb).parse(rest)
    found = getattr(args, "object", None) or args.objects[0]
    assert found == "job/x"


@pytest.mark.parametrize(
    ("words", "object_", "command"),
    [
        ("job/x ls -l", "job/x", ["ls", "-l"]),
        ("job x ls", "job/x", ["ls"]),
        ("job/x --index 3 -it bash", "job/x", ["bash"]),
        ("-n team job/x ls -h", "job/x", ["ls", "-h"]),
        ("job/x -- --help", "job/x", ["--help"]),
        ("job/x -i -- sh -c 'a -- b'", "job/x", ["sh", "-c", "a -- b"]),
        ("job/x", "job/x", []),
    ],
)
def test_a_command_begins_after_the_object_or_after_two_dashes(
    words: str, object_: str, command: list[str]
) -> None:
    args = import_module("fleetctl.cli.access.exec").parser("exec").parse(shlex.split(words))
    assert (args.object, args.command) == (object_, command)
