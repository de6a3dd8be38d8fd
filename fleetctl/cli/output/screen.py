"""The only module that prints. stdout has data, stderr messages.

Every verb gets a Screen and hands it text; the Screen knows whether a user or a program reads. It
escapes no text by itself: text from users goes through text.safe on its way here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, TextIO

from fleetctl.common.text import cell_width, escape_line, escape_lines, pad_cells

if TYPE_CHECKING:
    from fleetctl.common.errors import FleetctlError

GAP = "  "
# So that 100,000 rows need no memory and start to show at once; a later group may be wider.
GROUP_ROWS = 1000
_COLOURS = {
    "Normal": "",  # for an event, whose reason is not a status
    "Warning": "33",
    "Succeeded": "32",
    "Cached": "32",
    "Ready": "32",
    "Running": "36",
    "Starting": "36",
    "Pending": "33",
    "Queued": "33",
    "Suspended": "33",
    "Skipped": "33",
    "Stopping": "33",
    "Deleting": "33",
    "Failed": "31",
    "Refused": "31",
}
_SIGNS = {"+": "32", "-": "31", "x": "31", "~": "33", "@": "36"}


class Screen:
    """A command's two streams."""

    def __init__(
        self,
        out: TextIO,
        talk: TextIO,
        *,
        colour: bool = False,
        out_is_terminal: bool = False,
        talk_is_terminal: bool = False,
        forced: bool = False,
    ) -> None:
        """forced: colour also without a terminal, on the user's request."""
        self.out = out
        self.talk_stream = talk
        self.out_is_terminal = out_is_terminal
        self.talk_is_terminal = talk_is_terminal
        self.out_colour = forced or (colour and out_is_terminal)
        self.talk_colour = forced or (colour and talk_is_terminal)
        self._drawn_on: TextIO | None = None  # the stream that ends in a line to be drawn over
        self.part_of: object = None  # whose line without an end stands last in the output
        self._text_waits = False

    def data(self, text: str) -> None:
        """Prints one line, or several, of data."""
        self.close_line()
        self.piece(text + "\n")

    def piece(self, text: str) -> None:
        """Prints a part of a long document; the caller writes its own line ends."""
        self._end_part()
        self.out.write(text)
        self._text_waits = True

    def raw(self, data: bytes) -> None:
        """Writes bytes as they are, to a program that reads us."""
        self._end_part()
        self._write(data)

    def part(
        self,
        owner: object,
        data: bytes,
        *,
        prefix: bytes,
        ends: bool = False,
    ) -> None:
        """Writes the next bytes of a line of `owner`, to a program that reads us; the prefix stands
        before them where its line is not the last one of the output.
        """
        if self.part_of is not owner:
            self._end_part()
            data = prefix + data
        self._write(data)
        self.part_of = None if ends else owner

    def _end_part(self) -> None:
        if self.part_of is not None:
            self.part_of = None
            self._write(b"\n")

    def _write(self, data: bytes) -> None:
        buffer = getattr(self.out, "buffer", None)
        if buffer is None:
            self.out.write(data.decode("utf-8", "replace"))
            return
        if self._text_waits:
            self.out.flush()  # the text layer keeps what was written before these bytes
            self._text_waits = False
        buffer.write(data)

    def flush(self) -> None:
        self.out.flush()
        self._print_talk("")

    def talk(self, text: str) -> None:
        self.close_line()
        self._print_talk(text + "\n")

    def ask(self, question: str) -> None:
        """Prints a question on stderr; the answer is typed on the same line."""
        self.close_line()
        self._print_talk(question)

    def _print_talk(self, text: str) -> None:
        """Prints on stderr. A failure to print changes no result: the data is on stdout."""
        self.out.flush()  # so that the two streams keep their order on one terminal
        try:
            self.talk_stream.write(text)
            self.talk_stream.flush()
        except OSError:
            silence_stream(self.talk_stream)

    def hint(self, text: str) -> None:
        self.talk(f"{self._paint('hint:', '36')} {text}")

    def warn(self, text: str) -> None:
        self.talk(f"{self._paint('warning:', '33')} {text}")

    def report(self, error: FleetctlError) -> None:
        """Prints an error with its hint, or each of its findings with its own."""
        if error.problems:
            from fleetctl.manifest.problems import list_shown

            shown = list_shown(error.problems)
            for it in shown:
                self.error(str(it), hint=it.hint)
            if error.hint not in ("", shown[-1].hint):
                self.hint(escape_line(error.hint))
        else:
            self.error(str(error), hint=error.hint)

    def error(self, message: str, *, hint: str = "") -> None:
        """Prints an error. Lines of `message` that begin with `error: ` are errors, too.

        The only method that escapes by itself: errors come from everywhere.
        """
        for number, line in enumerate(escape_lines(message)):
            if number == 0 or line.startswith("error: "):
                self.talk(f"{self._paint('error:', '1;31')} {line.removeprefix('error: ')}")
            elif line:
                self.talk(line)
        for number, line in enumerate(escape_lines(hint) if hint else ()):
            (self.talk if number else self.hint)(line)

    def redraw(self, text: str) -> None:
        """Prints one line of progress that the next one replaces; for terminals only."""
        self._draw(self.talk_stream, text)

    def redraw_output(self, text: str) -> None:
        """Redraws a line of data, which has no end yet."""
        if self._drawn_on is not self.out:
            self.close_line()
        self._draw(self.out, text)

    def _draw(self, stream: TextIO, text: str) -> None:
        stream.write(f"\r\x1b[2K{text}")
        stream.flush()
        self._drawn_on = stream

    def close_line(self) -> None:
        """Ends a redrawn line, so that the next text starts on its own."""
        if self._drawn_on is not None:
            self._drawn_on.write("\r\x1b[2K")
            self._drawn_on.flush()
            self._drawn_on = None

    @property
    def draws_output(self) -> bool:
        """Returns true where a line of the output that has no end yet is on the terminal."""
        return self._drawn_on is self.out

    def status(self, word: str) -> str:
        """Returns a status word, coloured where colour is on. For the last step before printing."""
        code = _COLOURS.get(word)
        if code and self.out_colour:
            return f"\x1b[{code}m{word}\x1b[0m"
        return word

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        widths: Sequence[int] = (),
    ) -> list[int]:
        """Prints aligned columns in groups of GROUP_ROWS; returns the widths, empty when there was
        no row.

        With the widths of an earlier table the rows follow under it, without a header. Cells are
        safe text already.
        """
        used = list(widths)
        rest = iter(rows)
        while group := list(islice(rest, GROUP_ROWS)):
            lines = [header, *group] if header and not used else group
            used = _column_widths(lines, used)
            self.data("\n".join(self._aligned(lines, used)))
        return used

    def table_lines(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        """Returns the lines of such a table, for callers that print them in a way of their own."""
        lines = [header, *rows] if header else rows
        return self._aligned(lines, _column_widths(lines, ()))

    def _aligned(self, lines: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
        layout = GAP.join([*(f"%-{cells}s" for cells in widths[:-1]), "%s"])
        return [self._colour_status(_format_columns(line, widths, layout), line) for line in lines]

    def _colour_status(self, line: str, cells: Sequence[str]) -> str:
        """Returns the line with its first status word coloured; the padding stays as it is."""
        if not self.out_colour:
            return line
        for cell in cells[1:]:
            if cell in _COLOURS:
                painted = self.status(cell)
                if painted != cell:
                    return line.replace(f" {cell}", f" {painted}", 1)
                return line
        return line

    def colour_sign(self, line: str, *, sign: str = "") -> str:
        """Colours a line of a diff or a plan by its (first) sign: `+` exists afterwards, `-` does
        not."""
        code = _SIGNS.get(sign or line[:1]) if self.out_colour else None
        if code:
            return f"\x1b[{code}m{line}\x1b[0m"
        return line

    def _paint(self, text: str, code: str) -> str:
        if self.talk_colour:
            return f"\x1b[{code}m{text}\x1b[0m"
        return text


def _column_widths(lines: Sequence[Sequence[str]], floor: Sequence[int]) -> list[int]:
    used = []
    for i, column in enumerate(zip_longest(*lines, fillvalue="")):
        # Most columns are ASCII, and for 10,000 rows one call beats 10,000.
        cells = len if "".join(column).isascii() else cell_width
        used.append(max(floor[i] if i < len(floor) else 0, max(map(cells, column))))
    return [*used, *floor[len(used) :]]


def _format_columns(
    cells: Sequence[str],
    widths: Sequence[int],
    layout: str,
) -> str:
    """Returns a line's cells under their titles. layout: the same widths, for `%`, which counts
    characters.
    """
    if len(cells) == len(widths) and "".join(cells).isascii():
        return (layout % tuple(cells)).rstrip()
    last = len(cells) - 1
    return GAP.join(
        cell if i == last else pad_cells(cell, widths[i]) for i, cell in enumerate(cells)
    ).rstrip()


def system_screen(environ: Mapping[str, str], *, no_color: bool = False) -> Screen:
    """Returns the Screen of this process. NO_COLOR, TERM=dumb and --no-color turn colour off;
    FORCE_COLOR and CLICOLOR_FORCE turn it on for a pipe, too.
    """
    # A stream that was closed before we began (`>&-`) is None; output to it is dropped.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A name that this terminal cannot encode must not end the command.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    off = bool(environ.get("NO_COLOR") or no_color)
    forces = (environ.get(name, "") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    forced = not off and any(value not in ("", "0", "false") for value in forces)
    colour = not (off or environ.get("TERM") == "dumb")
    return Screen(
        sys.stdout,
        sys.stderr,
        colour=colour,
        out_is_terminal=sys.stdout.isatty(),
        talk_is_terminal=sys.stderr.isatty(),
        forced=forced,
    )


def open_closed_streams() -> None:
    """Gives each of the three streams that the caller closed the null device.

    Else the next file that is opened, such as a database, would get its number and be written to.
    Without a buffer (PYTHONUNBUFFERED) Python forgets the rest of a partial write, as to a disk
    that fills up: there stdout gets one.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
    if getattr(getattr(sys.stdout, "buffer", None), "raw", None) is None:
        with suppress(OSError):  # a stream without a number, in a test, needs no buffer
            number = sys.stdout.fileno()
            encoding = sys.stdout.encoding
            sys.stdout = os.fdopen(number, "w", encoding=encoding, closefd=False)


def silence_stdout() -> None:
    """Drops the interpreter's last flush after a broken pipe, instead of an error message."""
    silence_stream(sys.stdout)


def silence_stream(stream: TextIO) -> None:
    """Drops all text that is written to the stream from now on."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)
