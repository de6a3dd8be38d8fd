"""The screens of README and docs: the commands in `console run` blocks, and what they print.

`python -m tests.docs.screens` runs those of each page in order in a fresh home and records what
they print. The test runs them as well and compares, but for what differs from run to run: times,
ids, widths.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.docs.fleet import ROOT, Answer, Fleet
from tests.emulators.modal.running import ModalEmulator

README = ROOT / "README.md"
# Pages for people who have no account anywhere.
WITHOUT_ACCOUNT = (README, ROOT / "docs" / "tutorial" / "first-steps.md")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

_RUN_BLOCK = re.compile(r"^```console run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Ends in order with the text that stands for what was found.
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d [A-Z]{3,4}\b"), "MOMENT"),
    (re.compile(r"\bfl-[a-z2-7]{26}\b"), "RUN"),
    (re.compile(r"\b(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?s\b|\b\d+[mhd]\b"), "SPAN"),
    (re.compile(r"\bpid \d+"), "pid N"),
    # An account that answers late leaves it to the dated table.
    (re.compile(r"\(prices: [^)]*\)"), "(prices: SOURCES)"),
    (re.compile(r"namespaces(\+landlock)?|\bprocess( \(.*\))?$"), "TIER"),
    (re.compile(r"\s+"), " "),
)


def variables_for(page: Path, emulator: ModalEmulator) -> Mapping[str, str]:
    """Returns what the screens of a page find in the environment: the account of an emulated Modal,
    or none at all, whatever the one who runs this has.
    """
    if page not in WITHOUT_ACCOUNT:
        return emulator.env
    tokens = {"MODAL_TOKEN_ID": "", "MODAL_TOKEN_SECRET": ""}
    return {**tokens, "MODAL_CONFIG_PATH": str(ROOT / "no-such-file")}


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of a page and the lines under it."""

    command: str
    screen: str


def shown(text: str) -> list[Shown]:
    """Every command of every `console run` block, in order."""
    return [
        Shown(command, screen)
        for block in _RUN_BLOCK.findall(text)
        for command, screen in _commands(block)
    ]


def played() -> list[Path]:
    """The pages that show screens."""
    return [page for page in PAGES if shown(page.read_text("utf-8"))]


def blocks(text: str, info: str) -> list[str]:
    """The content of every fenced block with that info string."""
    return [content for found, content in _BLOCK.findall(text) if found == info]


def screen_of(answer: Answer) -> str:
    """What a person is left with: stdout, errors and hints, and an exit code that is not 0."""
    talk = [line for line in answer.talk.splitlines() if line.startswith(("error:", "hint:", " "))]
    code = [f"[exit {answer.code}]"] if answer.code else []
    return "".join(f"{line.rstrip()}\n" for line in [*answer.out.splitlines(), *talk, *code])


def comparable(screen: str) -> list[str]:
    """The lines of a screen, with what differs from run to run replaced by a word."""
    lines = []
    for line in screen.splitlines():
        for pattern, word in _VARYING:
            line = pattern.sub(word, line.strip())
        lines.append(line)
    return lines


def _commands(block: str) -> Iterator[tuple[str, str]]:
    command, screen = "", ""
    for line in block.splitlines(keepends=True):
        if not line.startswith("$ "):
            screen += line
            continue
        if command:
            yield command, screen
        command, screen = line.removeprefix("$ ").rstrip(), ""
    yield command, screen


def _record(block: str, fleet: Fleet) -> str:
    parts = [f"$ {command}\n{screen_of(fleet.shell(command))}" for command, _ in _commands(block)]
    return f"```console run\n{''.join(parts)}```"


def main() -> None:
    with ModalEmulator() as emulator:
        for page in played():
            with tempfile.TemporaryDirectory() as place:
                fleet = Fleet(Path(place) / "home", variables_for(page, emulator))
                text = page.read_text("utf-8")
                recorded = _RUN_BLOCK.sub(partial(_recorded, fleet), text)
                fleet.close()
            page.write_text(recorded, "utf-8")


def _recorded(fleet: Fleet, found: re.Match[str]) -> str:
    return _record(found[1], fleet)


if __name__ == "__main__":
    main()
