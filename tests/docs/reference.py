"""The generated pages of docs/reference: fields of each kind, verbs, reasons.

`python -m tests.docs.reference` writes them (`make reference`); a test holds them against the code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.command.verbs import EXIT_CODES, VERBS
from fleetctl.controllers.vocabulary import reasons
from fleetctl.controllers.vocabulary.status_keys import sentences
from fleetctl.manifest.hints.fields import Field, manifest_field
from fleetctl.manifest.schemas import DOCUMENTS
from tests.docs.fleet import ROOT
from tests.record.page import render_page
from tests.record.parts import parts
from tests.record.results import PAGE, load_record

HOME = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `make reference`; edit the code, not this page. -->"
DEPTH_MAX = 5


def pages() -> dict[Path, str]:
    """The text of every generated page."""
    found = {HOME / "fields" / f"{kind.lower()}.md": _fields(kind) for kind in DOCUMENTS}
    found[HOME / "verbs.md"] = _verbs()
    found[HOME / "reasons.md"] = _reasons()
    found[HOME / "status.md"] = _status()
    found[PAGE] = render_page(load_record(), parts(lives=0))
    return found


def _fields(kind: str) -> str:
    top = manifest_field(kind)
    lines = [f"# Fields of `{kind}`", "", NOTE, "", top.description, ""]
    lines += ["| field | type | default | what it is |", "| --- | --- | --- | --- |"]
    lines += _rows(top, ())
    return "\n".join(lines) + "\n"


def _rows(field: Field, path: tuple[str, ...]) -> Iterator[str]:
    for child in field.children():
        if child.name in ("status", "apiVersion", "kind") and not path:
            continue
        here = (*path, child.name)
        message = " ".join((child.description, *(f"({_code(it)})" for it in child.allowed))).strip()
        default = f"`{child.default}`" if child.default else "required" if child.required else ""
        kind = f"`{child.type.replace(' | ', ' or ')}`"
        cells = (f"`{'.'.join(here)}`", kind, default, message)
        yield f"| {' | '.join(' '.join(it.replace('|', '&#124;').split()) for it in cells)} |"
        if len(here) < DEPTH_MAX:
            yield from _rows(child, here)


def _code(said: str) -> str:
    """A pattern is no Markdown."""
    return re.sub(r"matching (\S+)", r"matching `\1`", said)


def _verbs() -> str:
    codes = " ".join(EXIT_CODES.split())
    with patch.dict(os.environ, COLUMNS="100"):
        sections = [line for name in VERBS for line in _verb(name)]
    lines = ["# Verbs", "", NOTE, "", f"Exit codes: {codes}.", ""]
    return "\n".join([*lines, *sections]).rstrip() + "\n"


def _verb(name: str) -> Iterator[str]:
    verb = VERBS[name]
    made: Parser = import_module(f"fleetctl.cli.{verb.module}").parser(name)
    yield from (f"## {name}", "", f"{verb.summary[0].upper()}{verb.summary[1:]}.", "", "```text")
    yield from (line.rstrip() for line in made.format_help().strip().splitlines())
    yield from ("```", "")


def _reasons() -> str:
    lines = ["# Reasons", "", NOTE, "", "`fleetctl explain REASON` tells the same.", ""]
    for title, table in (
        ("Why an object stands as it does", reasons.OF_OBJECTS),
        ("Why a start waits", reasons.OF_WAITS),
        ("How an attempt ended", reasons.OF_ATTEMPTS),
        ("What else is told as an event", reasons.OF_EVENTS),
    ):
        lines += [f"## {title}", "", "| reason | means |", "| --- | --- |"]
        lines += [f"| `{word}` | {said} |" for word, said in sorted(table.items())]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _status() -> str:
    lines = ["# Keys of `status`", "", NOTE, ""]
    lines += ["Any key may be missing; a time is written as RFC 3339 says.", ""]
    lines += ["| key | what it says |", "| --- | --- |"]
    lines += [f"| `{key}` | {said} |" for key, said in sentences().items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
