"""What comes from outside drives no terminal: names, labels, messages, logs, results, parameters
and words with ANSI, C1, OSC-8, OSC-52 and bidirectional marks, through every verb that shows them,
on a real terminal, byte by byte. Logs to a program stay as they were written.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.cli.cli_world import build
from tests.servers.forked_program import make_program_directory
from tests.unit.cli.ending import end

# What we ourselves may send: colours, the clearing of a line, and line ends.
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|2K)|\r|\n")
BIDI = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c"
WORD = "\x1b]0;owned\x07\x9b2J\u202e\x1b]8;;http://x\x07y\x1b]52;c;eA==\x07"
ON_SCREEN = (
    ["get", "all"], ["get", "jobs", "-o", "wide"], ["get", "job/hostile", "-o", "json"],
    ["get", "job/hostile", "-o", "yaml"], ["get", "job/hostile", "-o", "csv"],
    ["get", "job/hostile", "-o", "jsonpath={.status.message}"],
    ["get", "job/hostile", "-o", "custom-columns=X:.status.message"],
    ["get", "tasks", "job/hostile", "-o", "wide"], ["get", "attempts", "job/hostile"],
    ["get", "tasks", "job/hostile", "-o", "json"], ["get", "tasks", "job/hostile", "-o", "csv"],
    ["describe", "job/hostile"], ["logs", "job/hostile"], ["logs", "job/hostile", "--no-prefix"],
    ["events"], ["events", "job/hostile"], ["results", "job/hostile"],
    ["results", "job/hostile", "-o", "json"], ["results", "job/hostile", "-o", "csv"],
    ["query", "select * from tasks"], ["query", "select * from results", "-o", "csv"],
    ["query", "select * from events", "-o", "json"], ["top", "jobs"], ["top", "providers"],
    ["cost"], ["cost", "--by", "label=team"], ["wait", "job/hostile", "--timeout", "1s"],
    # Words and file names of a person, said back.
    [WORD], ["get", WORD], ["get", f"job/{WORD}"], ["describe", f"job/{WORD}"], ["explain", WORD],
    ["apply", "-f", WORD], ["validate", "-f", WORD], ["validate", "-f", "names"],
    ["get", "jobs", "-o", WORD], ["get", "jobs", "-l", WORD], ["get", "jobs", "--sort-by", WORD],
    ["get", "jobs", "--field-selector", WORD], ["get", "jobs", "-o", f"jsonpath={WORD}"],
    ["get", "jobs", WORD], ["get", "jobs", f"--{WORD}"], ["query", WORD], ["cp", WORD, "vol/x:/"],
    ["convert", WORD], ["convert", "--from", WORD, "x"], ["init", f"names/{WORD}.yaml/x"],
    ["logs", "job/hostile", "--index", WORD], ["help", WORD], ["set", "job/x", WORD],
    ["bundle", f"none/{WORD}"], ["plan", "-f", WORD], ["diff", "-f", WORD], ["apply", WORD],
    ["schema", WORD], ["completion", WORD], ["ls", f"vol/{WORD}:/"], ["rm", f"vol/{WORD}:/x"],
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("hostile") / "home"
    build(place)
    names = place.parent / "names"
    names.mkdir()
    (names / f"{WORD.replace('/', '')}.yaml").write_text("kind: [\n")
    yield place
    end(place)


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "FLEETCTL_HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}


def seen(words: list[str], home: Path) -> str:
    """What reaches a terminal, of both streams."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [str(make_program_directory() / "fleetctl"), *words],
        env=environment(home), cwd=home.parent, stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=theirs,
    ):  # fmt: skip
        os.close(theirs)
        data = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux says that nobody writes any more
                break
            if not piece:
                break
            data += piece
    os.close(ours)
    return data.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("words", ON_SCREEN, ids=lambda it: ascii(" ".join(it))[1:60])
def test_nothing_from_outside_drives_a_terminal(words: list[str], home: Path) -> None:
    text = seen(words, home)
    assert text
    rest = OURS.sub("", text)
    bad = {c for c in rest if (not c.isprintable() and c not in "\t\u00a0") or c in BIDI}
    assert bad == set(), f"{text!a}"
    assert "has a bug" not in text


def test_logs_to_a_program_are_as_the_task_wrote_them(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl.cli.main", "logs", "job/hostile", "--no-prefix"],
        env=environment(home), capture_output=True, check=True,
    )  # fmt: skip
    assert b"\x1b[2J\x1b[1;1Hfake prompt" in done.stdout
