"""The one place that prints: alignment, colour, the two streams, and errors of several lines."""

from __future__ import annotations

import io

import pytest

from fleetctl.cli.output.screen import GROUP_ROWS, Screen, system_screen
from fleetctl.manifest.problems import ManifestErrors, ManifestProblem


def screen(*, terminal: bool = False, colour: bool = True) -> Screen:
    return Screen(
        io.StringIO(), io.StringIO(), colour=colour, out_is_terminal=terminal,
        talk_is_terminal=terminal,
    )  # fmt: skip


def out(made: Screen) -> str:
    assert isinstance(made.out, io.StringIO)
    return made.out.getvalue()


def talk(made: Screen) -> str:
    assert isinstance(made.talk_stream, io.StringIO)
    return made.talk_stream.getvalue()


def test_columns_are_aligned_and_lines_have_no_trailing_space() -> None:
    made = screen()
    made.table(("NAME", "STATUS", "WHY"), [["a", "Running", ""], ["longer-name", "Failed", "x"]])
    assert out(made) == (
        "NAME         STATUS   WHY\na            Running\nlonger-name  Failed   x\n"
    )


def test_wide_characters_do_not_break_the_columns() -> None:
    made = screen()
    made.table(("A", "B"), [["数据", "1"], ["abcd", "2"]])
    assert out(made) == "A     B\n数据  1\nabcd  2\n"


def test_rows_under_an_earlier_table_keep_its_columns_and_have_no_header() -> None:
    made = screen()
    widths = made.table(("NAME", "N"), [["abcdef", "1"]])
    made.table(("NAME", "N"), [["x", "2"]], widths=widths)
    assert out(made) == "NAME    N\nabcdef  1\nx       2\n"


def test_no_rows_print_nothing_not_even_a_header() -> None:
    made = screen()
    assert made.table(("NAME",), []) == []
    assert out(made) == ""


def test_many_rows_have_one_header() -> None:
    made = screen()
    made.table(("N",), ([str(n)] for n in range(2 * GROUP_ROWS + 1)))
    lines = out(made).splitlines()
    assert lines.count("N") == 1
    assert lines[1:] == [str(n) for n in range(2 * GROUP_ROWS + 1)]


def test_of_an_event_the_type_is_coloured_and_not_a_reason_that_is_called_as_a_state() -> None:
    shown = screen(terminal=True)
    rows = [("1m", "Warning", "Pending", "no room"), ("1m", "Normal", "Failed", "x")]
    shown.table(("AGE", "TYPE", "REASON", "MESSAGE"), rows)
    assert "\x1b[33mWarning\x1b[0m" in out(shown)
    assert out(shown).count("\x1b[") == 2


def test_colour_is_for_terminals_and_changes_no_letter() -> None:
    plain, coloured = screen(), screen(terminal=True)
    for made in (plain, coloured):
        made.table(("NAME", "STATUS", "AGE"), [["Failed", "Failed", "1d"], ["b", "Pending", "2d"]])
    assert "\x1b" not in out(plain)
    assert "\x1b[31mFailed\x1b[0m" in out(coloured)
    stripped = out(coloured)
    for code in ("\x1b[31m", "\x1b[33m", "\x1b[0m"):
        stripped = stripped.replace(code, "")
    assert stripped == out(plain)


@pytest.mark.parametrize(
    ("environ", "no_color"),
    [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({}, True)],
)
def test_colour_can_be_turned_off(environ: dict[str, str], no_color: bool) -> None:
    assert not system_screen(environ, no_color=no_color).talk_colour


def test_data_goes_to_stdout_and_everything_else_to_stderr() -> None:
    made = screen()
    made.data("data")
    made.talk("talk")
    made.hint("do this")
    made.warn("careful")
    assert out(made) == "data\n"
    assert talk(made) == "talk\nhint: do this\nwarning: careful\n"


def test_an_error_may_bring_several_findings_with_their_own_hints() -> None:
    made = screen()
    first = ManifestProblem("a", 1, 2, "bad", "did you mean `x`?")
    made.report(ManifestErrors([first, ManifestProblem("b", 3, 4, "no", "see --help")]))
    assert talk(made) == (
        "error: a:1:2: bad\nhint: did you mean `x`?\nerror: b:3:4: no\nhint: see --help\n"
    )


def test_an_error_cannot_drive_the_terminal() -> None:
    made = screen(terminal=True, colour=False)
    made.error("name `\x1b]0;owned\x07`", hint="\x9b2J")
    assert "\x1b" not in talk(made) and "\x9b" not in talk(made)
    assert "\\x1b]0;owned\\x07" in talk(made)


def test_lines_after_an_error_that_belong_to_it_stay_as_they_are() -> None:
    made = screen()
    made.error("it failed; its log ends with:\n  Traceback: boom")
    assert talk(made) == "error: it failed; its log ends with:\n  Traceback: boom\n"


def test_a_redrawn_line_is_gone_before_the_next_line_comes() -> None:
    made = screen(terminal=True)
    made.redraw("3/6")
    made.talk("done")
    assert talk(made) == "\r\x1b[2K3/6\r\x1b[2Kdone\n"


def test_bytes_and_text_keep_their_order_on_one_stream() -> None:
    raw = io.BytesIO()
    made = Screen(io.TextIOWrapper(raw, write_through=False), io.StringIO())
    made.data("one")
    made.raw(b"two \xff\n")
    made.data("three")
    made.flush()
    assert raw.getvalue() == b"one\ntwo \xff\nthree\n"


def test_colour_can_be_forced_into_a_pipe_and_no_color_wins() -> None:
    assert system_screen({"FORCE_COLOR": "1"}).out_colour
    assert system_screen({"CLICOLOR_FORCE": "1", "TERM": "dumb"}).talk_colour
    assert not system_screen({"FORCE_COLOR": "0"}).out_colour
    assert not system_screen({"FORCE_COLOR": "1", "NO_COLOR": "1"}).out_colour
    assert not system_screen({"FORCE_COLOR": "1"}, no_color=True).out_colour


def test_of_events_the_warnings_are_coloured_and_not_a_word_of_status() -> None:
    made = screen(terminal=True)
    made.table((), [["9s", "Normal", "Pending", "x"], ["9s", "Warning", "Pending", "x"]])
    assert out(made) == ("9s  Normal   Pending  x\n9s  \x1b[33mWarning\x1b[0m  Pending  x\n")


def test_lines_of_a_diff_have_colour_where_there_is_some() -> None:
    lines = ["+new", "-old", " same", "@@ -1 +1 @@"]
    assert [screen().colour_sign(line) for line in lines] == lines
    painted = [screen(terminal=True).colour_sign(line) for line in lines]
    assert painted == [
        "\x1b[32m+new\x1b[0m", "\x1b[31m-old\x1b[0m", " same", "\x1b[36m@@ -1 +1 @@\x1b[0m",
    ]  # fmt: skip
