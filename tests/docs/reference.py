"""The generated pages of docs/reference: fields of each kind, verbs, reasons.

`python -m tests.docs.reference` writes them (`make reference`); a test holds them against the code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.command.verbs import EXIT_CODES, VERBS
from fleetctl.controllers import reasons
from fleetctl.controllers.status_keys import describe_keys
from fleetctl.manifest.hints.fields import SchemaField, manifest_field
from fleetctl.manifest.schemas import DOCUMENTS
from fleetctl.specs.kinds.registry import KINDS
from tests.docs import python_client, server_api
from tests.docs.fleet import ROOT
from tests.record.page import load_rows, render_page
from tests.record.parts import parts
from tests.record.results import PAGE, load_record

HOME = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `make reference`; edit the code, not this page. -->"
DEPTH_MAX = 5
_HEADER = ("| field | type | default | meaning |", "| --- | --- | --- | --- |")


@cache
def pages() -> dict[Path, str]:
    """The text of every generated page."""
    found = {HOME / "fields" / f"{kind.lower()}.md": _fields(kind) for kind in DOCUMENTS}
    found[HOME / "verbs.md"] = _verbs()
    found[HOME / "reasons.md"] = _reasons()
    found[HOME / "status.md"] = _status()
    found[PAGE] = render_page(load_record(), parts(), load_rows())
    found[server_api.PAGE] = server_api.render_page()
    found[python_client.PAGE] = python_client.render_page()
    found[python_client.TWIN] = python_client.render_twin()
    found[python_client.MANIFESTS] = python_client.render_manifests()
    found[HOME / "kinds.md"] = render_kinds((HOME / "kinds.md").read_text("utf-8"))
    return found


def render_kinds(page: str) -> str:
    """The page with its table of kinds as their rows have them; the prose below is written."""
    head = ("| kind | short | its units | what it is |", "| --- | --- | --- | --- |")
    rows = []
    for kind in KINDS.values():
        short = ", ".join(f"`{it}`" for it in kind.short)
        units = f"{kind.unit}s" if kind.unit else ""
        text = f"[{kind.summary}](../{kind.page})" if kind.page else kind.summary
        rows.append(
            f"| [`{kind.name}`](fields/{kind.name.lower()}.md) | {short} | {units} | {text} |"
        )
    start = page.index(head[0])
    end = page.index("\n\n", start)
    return page[:start] + "\n".join([*head, *rows]) + page[end:]


def _fields(kind: str) -> str:
    """The fields to the second level in one table, then a section for each that has more."""
    top = manifest_field(kind)
    tops = [it for it in top.children() if it.name not in ("status", "apiVersion", "kind")]
    lines = [f"# Fields of `{kind}`", "", NOTE, "", top.description, "", *_HEADER]
    for field in tops:
        lines += (_row(field, (field.name,)), *_rows(field, (field.name,), depth_max=2))
    for field in tops:
        for child in field.children():
            path = (field.name, child.name)
            if rows := list(_rows(child, path, depth_max=DEPTH_MAX)):
                lines += ["", f"## `{'.'.join(path)}`", "", *_HEADER, *rows]
    return "\n".join(lines) + "\n"


def _rows(field: SchemaField, path: tuple[str, ...], *, depth_max: int) -> Iterator[str]:
    for child in field.children():
        here = (*path, child.name)
        yield _row(child, here)
        if len(here) < depth_max:
            yield from _rows(child, here, depth_max=depth_max)


def _row(field: SchemaField, path: tuple[str, ...]) -> str:
    """A row of a table, which links reach by the path of its field."""
    name = ".".join(path)
    message = " ".join((field.description, *(f"({_code(it)})" for it in field.allowed))).strip()
    default = f"`{field.default}`" if field.default else "required" if field.required else ""
    kind = f"`{field.type.replace(' | ', ' or ')}`"
    cells = (f'<a id="{name}"></a>`{name}`', kind, default, message)
    return f"| {' | '.join(' '.join(it.replace('|', '&#124;').split()) for it in cells)} |"


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
    lines = ["# Reasons", "", NOTE, "", "`fleetctl explain REASON` shows the same.", ""]
    for title, table in (
        ("Reasons of objects", reasons.OF_OBJECTS),
        ("Reasons of waiting starts", reasons.OF_WAITS),
        ("Reasons of attempts", reasons.OF_ATTEMPTS),
        ("Reasons of events", reasons.OF_EVENTS),
    ):
        lines += [f"## {title}", "", "| reason | means |", "| --- | --- |"]
        lines += [f"| `{word}` | {said} |" for word, said in sorted(table.items())]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _status() -> str:
    lines = ["# Keys of `status`", "", NOTE, ""]
    lines += ["Any key may be missing; a time is written as RFC 3339 says.", ""]
    lines += ["| key | meaning |", "| --- | --- |"]
    lines += [f"| `{key}` | {said} |" for key, said in describe_keys().items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
