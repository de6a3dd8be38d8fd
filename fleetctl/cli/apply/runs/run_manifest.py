"""Makes the manifest of `fleetctl run`: from flags, from the environment of a file's work, from the
header of a program, with a task for each row of `--each`.

The result is an ordinary manifest: the loader and the controller check it. An uploaded directory
leaves out the same files as every `source.path`.
"""

from __future__ import annotations

import re
import secrets
import shlex
import sys
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fleetctl.cli.apply.runs.bring_back import WRITTEN
from fleetctl.cli.apply.runs.work_flags import (
    add_work_flags,
    drop_empty,
    parse_number,
    spec_fields,
    template_fields,
)
from fleetctl.cli.command.flags import Parser, parse_count
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.files import COMMAND_LINE
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import byte_size, escape_line
from fleetctl.guest.task.parameters import name_variable
from fleetctl.manifest.document.short import list_full_values
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.files.parameter_rows import RowError, read_rows
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_manifests
from fleetctl.providers.sources.tree_copy import CopyRules, walk_tree
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, kind_called
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

_SUFFIX_BYTES = 2

NAME_CHARACTERS_MAX = 63
# The fields of the spec, beside its template, that a run takes over.
_KEPT = ("placement", "nodes", "procPerNode", "ray", "rdma", "budget")
_WORK = ("python", "command", "script")

HERE = "."

HEADER_BYTES_MAX = 1024 * 1024
# Oldest first. The versions that providers and uv install today.
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")

# The reference expression of PEP 723.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_CLAUSE = re.compile(r"^(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?$")


# `{NAME}` in the command is the parameter NAME of the task, and `{}` is the line where rows are
# lines. The command becomes a script whose placeholders are quoted variables, so that no value of a
# row is read by the shell.

STDIN = "-"
LINE = "line"  # the parameter of a row that is a line
LINES_BYTES_MAX = 64 * 1024 * 1024  # as of a file of rows
ROW_SUFFIXES = (".csv", ".jsonl")

_PLACEHOLDER = re.compile(r"\{(\w*)\}")
_NAMES_SHOWN_MAX = 10


def add_flags(made: Parser) -> None:
    """Adds the flags that stand for a manifest; the fields of a BatchJob describe them."""
    group = made.add_argument_group("without a FILE")
    add = group.add_argument
    add_work_flags(group, name="of the object; default: a new one after the program")
    add("--source", metavar="DIR",
        help="directory to bring; default: this one, where COMMAND names a file in it")  # fmt: skip
    add(
        "--no-source",
        action="store_true",
        default=None,
        help="no files go along",
    )
    add("--no-outputs", action="store_true", default=None,
        help="what it writes beside the files that go along does not come back")  # fmt: skip
    add("--timeout", metavar="TIME", help="what one attempt may take, such as 2h")
    add("--each", metavar="FILE|-",
        help="a task for each row of a .csv or .jsonl, or each line of another file or stdin;"
        " {NAME} in COMMAND is its parameter, {} its line")  # fmt: skip
    add(
        "--parallelism",
        type=parse_count,
        metavar="N",
        help="with --each: tasks at a time; default 1",
    )
    add(
        "--nodes",
        type=parse_count,
        metavar="N",
        help="machines that run it together: torchrun",
    )


def document_of(args: Namespace, screen: Screen) -> tuple[Document, str]:
    """Returns the manifest, and the object's key. Prints the files that are uploaded. Raises
    NotFound, Refused and UsageError.
    """
    rows = read_tasks(args.each) if args.each is not None else None
    work = template_of(args.command, rows)
    header = read_script_header(Path(args.program)) if args.program else ScriptHeader()
    source = source_of(args.source, args.command, screen, none=bool(args.no_source))
    name = args.name or name_of(args.command)
    template = {
        **work,
        **template_fields(args, packages=header.packages, python=header.python),
        "source": {"path": source},
        "outputs": list(WRITTEN) if comes_back(args, source) else None,
        "timeoutSeconds": parse_number(args.timeout),
    }
    kind = "BatchJob"
    spec = spec_fields(args)
    if args.nodes is not None:
        kind = "TrainingRun"
        retries = spec.pop("backoffLimitPerIndex")
        spec |= {"nodes": args.nodes, "maxRestarts": retries}
    namespace = args.namespace if args.namespace != DEFAULT_NAMESPACE else None
    whole = {
        "apiVersion": API_VERSION,
        "kind": KINDS[kind].name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "tasks": rows.tasks if rows is not None else None,
            **spec,
            "template": template,
        },
    }
    return Document(
        COMMAND_LINE, to_yaml(drop_empty(whole)), str(Path.cwd())
    ), f"{kind.lower()}/{name}"


def comes_back(args: Namespace, source: str) -> bool:
    """Returns whether what the command writes comes back: where it runs in a copy of `source`. An
    image that somebody names may lack the Python that keeps files, unless the command is Python.
    """
    may_lack = args.image is not None and not args.command[0].startswith("python")
    return bool(source) and not args.no_outputs and not may_lack


def name_of(command: Sequence[str]) -> str:
    """Returns a new name after the first file that the command names, or the module, or the
    program."""
    named = next(files_named(command, Path.cwd()), None)
    words = Path(named.path if named is not None else command[0]).stem
    plain = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "run"
    suffix = f"-{secrets.token_hex(_SUFFIX_BYTES)}"
    return f"{plain[: NAME_CHARACTERS_MAX - len(suffix)].rstrip('-')}{suffix}"


def expand_documents(documents: Sequence[Document]) -> list[Document]:
    """Returns the documents with variables and overlays resolved: the fields that a run leaves out
    may hold the only reference to a variable."""
    from fleetctl.manifest.rendering.render import needs_rendering, rendered_documents

    if needs_rendering(documents):
        return rendered_documents(documents)
    return list(documents)


def with_command(
    documents: Sequence[Document],
    command: Sequence[str],
    stage: str | None,
    name: str | None = None,
) -> tuple[list[Document], str]:
    """Returns the documents with a TrainingRun of this command instead of the object that does
    work, and its key.

    name: of the TrainingRun; else a new one, after the object's. Raises UsageError where there is
    not one such object, and for an unknown stage.
    """
    found: list[str] = []
    made: list[Document] = []
    for document in documents:
        reading = read_manifests(document.path, document.text)
        values = list_full_values(root.value for root in reading.roots)
        works = [it for it in values if isinstance(it, dict) and _does_work(it)]
        if reading.problems or not works:
            made.append(document)
            continue
        found += [str(it.get("metadata", {}).get("name")) for it in works]
        changed = [_run_of(it, command, stage, name) if it in works else it for it in values]
        made.append(document._replace(text="---\n".join(map(to_yaml, changed))))
        key = f"trainingrun/{changed[values.index(works[0])]['metadata']['name']}"
    if len(found) != 1:
        raise UsageError(
            f"a run needs a file with one object that does work; here are {len(found)}",
            hint="name a file that has one",
        )
    return made, key


def _does_work(value: Mapping[str, object]) -> bool:
    kind = kind_called(value.get("kind"))
    return kind is not None and kind.runs


def _run_of(
    value: dict[str, Any],
    command: Sequence[str],
    stage: str | None,
    name: str | None,
) -> dict[str, Any]:
    spec = value.get("spec") or {}
    about = value.get("metadata") or {}
    own = _stage_of(spec, stage) if stage else {}

    kept = {name: spec[name] for name in _KEPT if name in spec}
    kept |= {name: own.pop(name) for name in _KEPT if name in own}

    template = {**(spec.get("template") or {})}
    of_stage = own.pop("env", None) or {}
    template["env"] = {**(template.get("env") or {}), **of_stage}
    template |= {name: it for name, it in own.items() if name != "name"}
    template = {name: it for name, it in template.items() if name not in _WORK and it != {}}

    if name is None:
        suffix = f"-run-{secrets.token_hex(_SUFFIX_BYTES)}"
        stem = str(about.get("name"))[: NAME_CHARACTERS_MAX - len(suffix)]
        name = f"{stem}{suffix}"
    return {
        **value,
        "kind": KINDS["TrainingRun"].name,
        "metadata": {**about, "name": name},
        "spec": {**kept, "template": {**template, "command": list(command)}},
    }


def _stage_of(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    stages = {it.get("name"): it for it in spec.get("stages") or () if isinstance(it, dict)}
    if name not in stages:
        known = ", ".join(map(str, stages)) or "none"
        raise UsageError(f"there is no stage `{name}` in this file", hint=f"it has {known}")
    return dict(stages[name])


class NamedFile(NamedTuple):
    """A word that names a file. word: as in the command. path: of the file, relative to the
    directory."""

    word: str
    path: Path


def source_of(
    said: str | None,
    command: Sequence[str],
    screen: Screen,
    *,
    none: bool,
) -> str:
    """Returns the directory to upload, as a manifest beside it would name it; empty for none.
    Prints the choice.

    said: the value of `--source`. Without it this directory is uploaded, where the command names a
    file in it. Raises NotFound, and Refused where a whole home directory would be uploaded without
    a flag.
    """
    if none:
        return ""
    here = Path.cwd()
    named = list(files_named(command, here))
    if said is None and not named:
        screen.talk("no files go along: the command names none here (`--source .` takes them)")
        return ""
    origin = Path(said or HERE)
    if not origin.is_dir():
        raise NotFound(f"--source: there is no directory `{escape_line(str(origin))}`")
    if said is None and here in (Path.home(), Path("/")):
        raise Refused(
            f"all of `{here}` would go along, because the command names `{named[0].word}` in it",
            hint="go into the project's own directory, or name it: `--source DIR`, `--no-source`",
        )
    _report_files(origin, named, screen)
    return said or HERE


def files_named(command: Sequence[str], here: Path) -> Iterator[NamedFile]:
    """Yields files and directories below `here` that words of the command name, also as
    `--flag=FILE` and as the module behind `-m`. A first word without a slash is looked up on PATH,
    so it names no file.
    """
    for at, word in enumerate(command):
        module = at > 0 and command[at - 1] == "-m"
        if at == 0 and "/" not in word:
            continue
        text = word.rpartition("=")[2] if word.startswith("-") else word
        parts = text.replace(".", "/")
        for path in (Path(f"{parts}.py"), Path(parts)) if module else (Path(text),):
            if _is_below(path, here):
                yield NamedFile(text, path)
                break


def _is_below(path: Path, here: Path) -> bool:
    """Returns true for an existing path inside of this directory; not for the directory itself."""
    if path.is_absolute() or path in (Path(), Path(HERE)) or ".." in path.parts:
        return False
    try:
        return (here / path).exists()
    except (OSError, ValueError):
        return False  # longer than a name can be, or a program's text


def _report_files(
    origin: Path,
    named: Sequence[NamedFile],
    screen: Screen,
) -> None:
    files = 0
    size = 0
    going: set[str] = set()
    for entry, relative in walk_tree(origin, CopyRules.of_project(())):
        going.add(relative)
        if entry.is_file(follow_symlinks=False):
            files = files + 1
            size = size + entry.stat(follow_symlinks=False).st_size
    count = "1 file" if files == 1 else f"{files:,} files"
    what = "this directory goes" if origin == Path(HERE) else f"`{escape_line(str(origin))}` goes"
    screen.talk(f"{what} along: {count}, {byte_size(size)}, without what ignore files leave out")
    if origin != Path(HERE):
        return
    for word, path in named:
        if str(path) not in going:
            screen.warn(f"`{escape_line(word)}` stays here: an ignore file leaves it out")


@dataclass(frozen=True, slots=True)
class ScriptHeader:
    """packages: requirements as pip reads them. python: such as `3.12`; empty where any will do."""

    packages: tuple[str, ...] = ()
    python: str = ""


def read_script_header(path: Path) -> ScriptHeader:
    """Returns the header of a program; an empty one where it has none. `dependencies` become
    `image.pip`, and `requires-python` becomes `image.python`, the newest version that it allows.

    Raises NotFound where there is no such file, UsageError for a header that breaks PEP 723.
    """
    try:
        text = path.read_bytes()[:HEADER_BYTES_MAX].decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise NotFound(f"there is no file `{escape_line(str(path))}`") from error
    blocks = [it for it in _BLOCK.finditer(text) if it["type"] == "script"]
    if not blocks:
        return ScriptHeader()
    name = escape_line(str(path))
    if len(blocks) > 1:
        raise UsageError(f"{name} has {len(blocks)} blocks `# /// script`", hint="keep one of them")
    lines = blocks[0]["content"].splitlines()
    try:
        header = tomllib.loads("\n".join(it[2:] if it.startswith("# ") else it[1:] for it in lines))
    except tomllib.TOMLDecodeError as error:
        line = text.count("\n", 0, blocks[0].start()) + 1
        raise UsageError(f"{name}:{line}: the block `# /// script` is no TOML: {error}") from error
    packages = header.get("dependencies", [])
    wanted = header.get("requires-python", "")
    if not isinstance(packages, list) or not all(isinstance(it, str) for it in packages):
        raise UsageError(f"{name}: `dependencies` must be a list of texts")
    if not isinstance(wanted, str):
        raise UsageError(f"{name}: `requires-python` must be a text such as `>=3.11`")
    return ScriptHeader(tuple(packages), _choose_python(name, wanted))


def _choose_python(name: str, wanted: str) -> str:
    if not wanted.strip():
        return ""
    clauses = [_CLAUSE.match(it.strip()) for it in wanted.split(",")]
    for python in reversed(PYTHONS):
        if all(it is not None and _allows_python(it, python) for it in clauses):
            return python
    raise UsageError(
        f"{name}: `requires-python` is `{escape_line(wanted)}`, which none of "
        f"{', '.join(PYTHONS)} is",
        hint="name one with `--python`, or correct the header",
    )


def _allows_python(clause: re.Match[str], python: str) -> bool:
    """Compares as many numbers as a version of Python has without its patch."""
    sign = clause[1]
    text = clause[2]
    here = tuple(int(it) for it in python.split("."))
    there = tuple(int(it) for it in text.split("."))
    patched = len(there) > len(here)
    there = there[: len(here)]
    padded = there + (0,) * (len(here) - len(there))
    if sign == "~=":
        return here >= padded and here[:1] == padded[:1] and (not patched or here == padded)
    if sign == "==":
        return here[: len(there)] == there
    if sign == "!=":
        return patched or here[: len(there)] != there
    if sign == ">=":
        return here >= padded
    if sign == "<=":
        return here <= padded
    # Some patch of 3.12 is above 3.12.1, and some is below it.
    if sign == ">":
        return here > padded or (patched and here == padded)
    return here < padded or (patched and here == padded)


class TaskRows(NamedTuple):
    """tasks: the field of the manifest. names: parameters that the first row has."""

    tasks: dict[str, Any]
    names: tuple[str, ...]


def read_tasks(file: str) -> TaskRows:
    """Reads the tasks of `--each FILE|-`. Raises NotFound, UsageError."""
    if file != STDIN and Path(file).suffix.lower() in ROW_SUFFIXES:
        try:
            first = read_rows(file)[0]
        except OSError as error:
            raise NotFound(f"--each: there is no file `{escape_line(file)}`") from error
        except (RowError, ValueError) as error:
            line = f":{error.line}" if isinstance(error, RowError) else ""
            raise UsageError(f"--each: {escape_line(file)}{line}: {error}") from error
        return TaskRows({"fromFile": {"path": file}}, tuple(first))
    lines = list(_read_lines(file))
    if not lines:
        raise UsageError(
            f"--each: `{escape_line(file)}` has no lines",
            hint="ls *.pdf | fleetctl run --each - -- ocr {}",
        )
    return TaskRows({"items": [{LINE: it} for it in lines]}, (LINE,))


def _read_lines(file: str) -> Iterator[str]:
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(LINES_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(LINES_BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise NotFound(f"--each: there is no file `{escape_line(file)}`") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--each: `{escape_line(file)}` is not UTF-8") from error
    if len(data) > LINES_BYTES_MAX:
        raise UsageError(
            f"--each: `{escape_line(file)}` is larger than {LINES_BYTES_MAX // 1024**2} MiB"
        )
    return (it for it in (line.rstrip("\r") for line in text.split("\n")) if it.strip())


def script_of(command: Sequence[str], names: Sequence[str]) -> str:
    """Returns the command as a POSIX shell script. Raises UsageError for a name that no row has."""
    return "exec " + " ".join(_quote_word(word, names) for word in command)


def _quote_word(word: str, names: Sequence[str]) -> str:
    parts: list[str] = []
    end = 0
    for found in _PLACEHOLDER.finditer(word):
        name = _name_of(found[1], names)
        if found.start() > end:
            parts.append(shlex.quote(word[end : found.start()]))
        parts.append(f'"${{{name_variable(name)}}}"')
        end = found.end()
    if end < len(word) or not parts:
        parts.append(shlex.quote(word[end:]))
    return "".join(parts)


def _name_of(name: str, names: Sequence[str]) -> str:
    if not name and len(names) == 1:
        return names[0]
    if name in names:
        return name
    known = ", ".join(f"`{{{it}}}`" for it in names[:_NAMES_SHOWN_MAX])
    raise UsageError(
        f"--each: no row has `{{{escape_line(name)}}}`", hint=f"known here: {escape_line(known)}"
    )


def template_of(command: Sequence[str], rows: TaskRows | None) -> Mapping[str, Any]:
    """Returns the field of the template that runs the command."""
    if rows is None:
        return {"command": list(command)}
    return {"script": script_of(command, rows.names)}
