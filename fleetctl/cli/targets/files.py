"""The manifests that a command line names, as raw text, among them the Sweep of a bare W&B sweep
file.

A bare sweep file that lies in a named directory makes no Sweep: another manifest may name it in
`searchFrom`, and work must not start because a file lies somewhere. The Sweep is called after
`name` in the file, else after the file, so that a second apply finds it. The program's directory
goes along: the one that `wandb agent` would begin in, else that of the file.

Parsing belongs to the controller (apply) or to manifests.py, so that a client stays thin.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import and_more, escape_line
from fleetctl.manifest.files.documents import (
    SET,
    VALUES,
    Document,
    is_address,
    is_sweep_file,
    read_documents,
)

NAMES_SHOWN_MAX = 5

COMMAND_LINE = "command line"  # the path of a document that flags made, before a user reads it
STDIN = "-"
_PROGRAM = re.compile(r"[^\s:]+\.\w+")


def documents_of(
    names: Sequence[str],
    *,
    values: Sequence[str] = (),
    recursive: bool = False,
    may_be_empty: bool = False,
    tell: Callable[[str], None] | None = None,
) -> list[Document]:
    """Returns the texts behind files, directories, addresses and `-`. Raises NotFound for a missing
    path. values: files with values of variables.

    Unreadable files are reported by the loader, beside all other errors. tell: gets a sentence on
    files of directories that are left out, for they are of other tools.
    """
    for name in (*names, *values):
        if name != "-" and not is_address(name) and not _path_exists(name):
            raise NotFound(
                f"there is no file or directory `{name}`", hint=_suggest_path(Path(name))
            )
    foreign: list[Document] = []
    found = read_documents(
        names,
        stdin=sys.stdin.buffer,
        recursive=recursive,
        may_be_empty=may_be_empty,
        foreign=foreign,
    )
    given = [it._replace(role=VALUES) for it in read_documents(values, stdin=sys.stdin.buffer)]
    read = {os.path.abspath(name) for name in values}  # as text
    foreign = [it for it in foreign if os.path.abspath(it.path) not in read]
    if foreign and tell is not None:
        _report_left_out(foreign, found, tell)
    return found + given


def _report_left_out(
    foreign: Sequence[Document],
    found: Sequence[Document],
    tell: Callable[[str], None],
) -> None:
    names = [escape_line(Path(it.path).name) for it in foreign]
    tell(f"left out, for nothing in it is `kind: ...`: {and_more(names, most=NAMES_SHOWN_MAX)}")
    for it in foreign:
        if is_sweep_file(it.text) and not any(Path(it.path).name in one.text for one in found):
            tell(f"a W&B sweep runs where it is named itself: `-f {escape_line(it.path)}`")
            break


def parse_assignment(text: str) -> Document:
    """Reads one `--set NAME=VALUE` of a variable. Raises UsageError for other forms."""
    name, equals, _ = text.partition("=")
    if not equals or not name:
        raise UsageError(f"`{text}` is not NAME=VALUE", hint="for instance `--set gpu=A100:4`")
    return Document(f"--set {name}", text, str(Path.cwd()), role=SET)


def _path_exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return True  # it has an error of its own, which the loader reports


def _suggest_path(path: Path) -> str:
    from fleetctl.common.text import did_you_mean

    try:
        names = [str(entry) for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory `{path.parent}` either"
    return did_you_mean(str(path), names)


class SweepFields(NamedTuple):
    """Fields that flags add to the Sweep of a file. name: empty for the file's own."""

    name: str
    spec: Mapping[str, Any]
    template: Mapping[str, Any]


NO_FIELDS = SweepFields("", {}, {})


def make_sweeps(documents: Sequence[Document], fields: SweepFields = NO_FIELDS) -> list[Document]:
    """Returns the documents with a Sweep instead of each bare W&B file.

    Raises UsageError for a file that another manifest of them names in `searchFrom`, and Refused
    where a whole home directory would go along unasked.
    """
    made: list[Document] = []
    for document in documents:
        search = _search_in(document) if is_sweep_file(document.text) else None
        if search is None:
            made.append(document)
            continue
        _refuse_named_twice(document, documents)
        made.append(_sweep_of(document, search, fields))
    return made


def _search_in(document: Document) -> dict[str, Any] | None:
    """Returns the configuration; empty where its YAML is wrong, which the loader reports, and None
    for a document that is none. Raises ManifestErrors for wrong YAML of no file.
    """
    from fleetctl.manifest.problems import ManifestErrors
    from fleetctl.manifest.yaml.reader import read_yaml
    from fleetctl.manifest.yaml.wandb import WANDB

    reading = read_yaml(document.path, document.text, dialect=WANDB)
    if reading.problems and _is_file(document):
        return {}
    if reading.problems:
        raise ManifestErrors(reading.problems)
    values = [root.value for root in reading.roots]
    if document.role or len(values) != 1 or not isinstance(values[0], dict):
        return None
    if {"method", "parameters"} <= values[0].keys():
        return values[0]
    return None


def _is_file(document: Document) -> bool:
    return document.path != STDIN and not is_address(document.path)


def _sweep_of(
    document: Document,
    search: Mapping[str, Any],
    fields: SweepFields,
) -> Document:
    from fleetctl.manifest.foreign.foreign_mapping import make_name
    from fleetctl.manifest.yaml.emit import to_yaml
    from fleetctl.specs.kinds.registry import API_VERSION

    stem = Path(document.path).stem if document.path != STDIN else "sweep"
    own_name = search.get("name")
    what = (
        {"searchFrom": {"file": Path(document.path).name}}
        if _is_file(document)
        else {"search": search}
    )
    template = {**fields.template}
    if source := _program_directory(search, document):
        template["source"] = {"path": source}
    whole = {
        "apiVersion": API_VERSION,
        "kind": "Sweep",
        "metadata": {
            "name": fields.name or make_name(own_name if isinstance(own_name, str) else "", stem)
        },
        "spec": {**what, **fields.spec, **({"template": template} if template else {})},
    }
    return document._replace(path=COMMAND_LINE, text=to_yaml(whole))


def _program_directory(search: Mapping[str, Any], document: Document) -> str:
    """Returns the directory, relative to the document's, that holds a file of the search's
    command; empty if there is none.
    """
    words = list(_words_of(search))
    for here in dict.fromkeys((Path.cwd(), Path(document.dir))):
        found = next((it for it in words if (here / it).is_file()), None)
        if found is None:
            continue
        if here in (Path.home(), Path("/")):
            raise Refused(
                f"all of `{here}` would go along, because the sweep names `{escape_line(found)}`",
                hint="go into the project's own directory, and apply it from there",
            )
        return os.path.relpath(here, document.dir)
    return ""


def _words_of(search: Mapping[str, Any]) -> Iterator[str]:
    command = search.get("command")
    given = command if isinstance(command, list) else str(command or "").split()
    for word in (search.get("program"), *given):
        if isinstance(word, str) and _PROGRAM.fullmatch(word) and not word.startswith(("/", "-")):
            yield word


def _refuse_named_twice(document: Document, documents: Sequence[Document]) -> None:
    from fleetctl.manifest.document.short import list_full_values
    from fleetctl.manifest.yaml.reader import read_manifests

    for other in documents:
        if "searchFrom" not in other.text:
            continue
        roots = read_manifests(other.path, other.text).roots
        for value in list_full_values(root.value for root in roots):
            if _named_search(value, other.dir) == _absolute_path(document):
                path = escape_line(document.path)
                raise UsageError(
                    f"`{path}` could be a Sweep of its own, or the search of the one in"
                    f" {escape_line(other.path)}, which names it in `searchFrom`",
                    hint=f"leave one of them out: `-f {path}` or `-f {escape_line(other.path)}`",
                )


def _named_search(value: Any, directory: str) -> str:
    """Returns the absolute path of the search that a manifest names; empty for others."""
    spec = value.get("spec") if isinstance(value, dict) else None
    named = spec.get("searchFrom") if isinstance(spec, dict) else None
    file = named.get("file") if isinstance(named, dict) else None
    if isinstance(file, str):
        return os.path.normpath(os.path.join(directory, file))
    return ""


def _absolute_path(document: Document) -> str:
    return os.path.normpath(os.path.join(document.dir, Path(document.path).name))
