"""`fleetctl init`: writes a first manifest with comments, or an example with its files; both run on
this machine as they are.
"""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import fleetctl.specs
from fleetctl.cli.command.flags import Parser, one_of
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import did_you_mean, escape_line, shorten_text
from fleetctl.specs.kinds.registry import KINDS

SCHEMA_DIR = ".fleetctl-schemas"  # hidden, so that `apply -f DIR` passes it over
EXAMPLES = Path(fleetctl.specs.__path__[0]) / "examples"
SCHEMAS = Path(fleetctl.specs.__path__[0]) / "schemas"
STARTERS = Path(__file__).parent / "starters"
# First manifests, by the kinds whose rows name one.
FIRST = {it.name.lower(): it.starter for it in KINDS.values() if it.starter}

PAGE = """\
[DIR] [--kind KIND | --example [NAME]]

Write a first manifest, with comments, or an example with the files that it needs.
It runs on this machine as it is; a file that is there is never written over.
--example alone lists the examples.

examples:
  fleetctl init
  fleetctl init my-search --kind sweep
  fleetctl init --example
  fleetctl init digits --example sweep

exit codes:
  0 written, 2 wrong usage, 3 there is such a file already, 4 no such example
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "directory",
        nargs="?",
        default=".",
        metavar="DIR",
        help="directory to write to; created if need be",
    )
    made.add_argument(
        "--kind",
        type=one_of(*FIRST),
        default=next(iter(FIRST)),
        metavar="|".join(FIRST),
        help="kind to begin with (default %(default)s)",
    )
    made.add_argument(
        "--example",
        nargs="?",
        const="",
        metavar="EXAMPLE",
        help="one of the examples, with its files; without a name: which there are",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    place = Path(args.directory)
    if args.example is None:
        schema = _schema_of(args.kind)
        text = f"{_format_modeline(schema)}{_read_starter(FIRST[args.kind])}"
        made = {place / f"{args.kind}.yaml": text.encode()}
    elif not args.example:
        screen.table(("EXAMPLE", "WHAT"), [[name, read_title(name)] for name in list_examples()])
        screen.hint("fleetctl init DIR --example NAME")
        return 0
    else:
        made = {place / name: data for name, data in read_example(args.example).items()}
    _write_files(made)
    if args.example is None:
        _keep_schema(place / SCHEMA_DIR, schema)
    for path in made:
        screen.data(f"{escape_line(str(path))} written")
    if screen.talk_is_terminal:
        screen.hint(f"fleetctl apply -f {escape_line(shlex.quote(str(next(iter(made)))))} --wait")
    return 0


def list_examples() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def read_title(name: str) -> str:
    """Returns the first sentence of its first comment."""
    lines = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in lines[:3] if line[:1] == "#")
    return shorten_text(comment.partition(". ")[0].replace(" (`make demo`)", "").rstrip("."), 80)


def read_example(name: str) -> dict[str, bytes]:
    """Returns the manifest first, then the files beside it under the same name. Raises NotFound."""
    known = list_examples()
    if name not in known:
        raise NotFound(
            f"there is no example `{escape_line(name)}`",
            hint=did_you_mean(name, known) or f"there are {', '.join(known)}",
        )
    manifest = EXAMPLES / f"{name}.yaml"
    text = _read_manifest(manifest)
    beside = sorted((EXAMPLES / name).rglob("*")) if (EXAMPLES / name).is_dir() else []
    return {manifest.name: text.encode()} | {
        str(path.relative_to(EXAMPLES)): path.read_bytes()
        for path in beside
        if path.is_file() and "__pycache__" not in path.parts
    }


def _read_starter(path: str) -> str:
    folder, _, name = path.partition("/")
    return _read_manifest({"starters": STARTERS, "examples": EXAMPLES}[folder] / name)


def _read_manifest(path: Path) -> str:
    """Returns a shipped manifest. Its comments name the examples' directory; here the file is where
    the user writes it."""
    return path.read_text(encoding="utf-8").replace("specs/examples/", "")


def _schema_of(kind: str) -> Path:
    return SCHEMAS / f"{kind}.json"


def _format_modeline(schema: Path) -> str:
    """Returns a line for editors that know YAML: the schema with fields and their descriptions. By
    a path from the manifest, which is valid on every machine.
    """
    return f"# yaml-language-server: $schema={SCHEMA_DIR}/{schema.name}\n"


def _keep_schema(directory: Path, schema: Path) -> None:
    """Puts a kind's schema beside its manifest; one that is there already may be of an older
    version.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / schema.name).write_bytes(schema.read_bytes())
    except OSError as error:
        raise UsageError(
            f"`{directory}` cannot be made: {(error.strerror or 'no reason given').lower()}"
        ) from error


def _write_files(made: Mapping[Path, bytes]) -> None:
    """Writes all or none, as far as can be checked before."""
    for path in made:
        if path.exists() or (path.parent.exists() and not path.parent.is_dir()):
            _refuse_overwrite(path)
    for path, data in made.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            _refuse_overwrite(path)
        except (NotADirectoryError, PermissionError) as error:
            raise UsageError(
                f"`{path}` cannot be made: {(error.strerror or 'no reason given').lower()}"
            ) from error


def _refuse_overwrite(place: Path) -> None:
    """Raises UsageError where a file is in the path of the directory, else Refused: it exists."""
    if not place.parent.is_dir():
        raise UsageError(f"`{place.parent}` is a file, not a directory")
    raise Refused(
        f"`{place}` is there already, and would be lost",
        hint="name another directory: `fleetctl init DIR`",
    )
