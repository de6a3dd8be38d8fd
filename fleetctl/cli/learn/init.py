"""`fleetctl init`: a first manifest with comments, or an example with its files; both run on this
machine as they are.
"""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import fleetctl.specs
from fleetctl.cli.command.flags import Parser
from fleetctl.cli.command.values import one_of
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import did_you_mean, safe, shorten

SCHEMA_DIR = ".fleetctl-schemas"  # hidden, so that `apply -f DIR` passes it over
EXAMPLES = Path(fleetctl.specs.__path__[0]) / "examples"
SCHEMAS = Path(fleetctl.specs.__path__[0]) / "schemas"
STARTERS = Path(__file__).parent / "starters"
KINDS = tuple(sorted(path.stem for path in STARTERS.glob("*.yaml")))


PAGE = f"""\
[DIR] [--kind {"|".join(KINDS)} | --example [NAME]]

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
        "directory", nargs="?", default=".", metavar="DIR", help="where to; made if need be"
    )
    made.add_argument(
        "--kind",
        type=one_of(*KINDS),
        default=KINDS[0],
        metavar="|".join(KINDS),
        help="what to begin with (default %(default)s)",
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
        starter = STARTERS / f"{args.kind}.yaml"
        schema = _schema_of(args.kind)
        text = f"{_modeline(schema)}{starter.read_text(encoding='utf-8')}"
        made = {place / starter.name: text.encode()}
    elif not args.example:
        screen.table(("EXAMPLE", "WHAT"), [[name, _title(name)] for name in examples()])
        screen.hint("fleetctl init DIR --example NAME")
        return 0
    else:
        made = {place / name: data for name, data in _files_of(args.example).items()}
    _write(made)
    if args.example is None:
        _keep_schema(place / SCHEMA_DIR, schema)
    for path in made:
        screen.data(f"{safe(str(path))} written")
    if screen.talk_is_terminal:
        screen.hint(f"fleetctl apply -f {safe(shlex.quote(str(next(iter(made)))))} --wait")
    return 0


def examples() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def _title(name: str) -> str:
    """The first sentence of its first comment."""
    lines = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in lines[:3] if line[:1] == "#")
    return shorten(comment.partition(". ")[0].replace(" (`make demo`)", "").rstrip("."), 80)


def _files_of(name: str) -> dict[str, bytes]:
    """The manifest first, then what stands beside it under the same name. Raises NotFound."""
    known = examples()
    if name not in known:
        raise NotFound(
            f"there is no example `{safe(name)}`",
            hint=did_you_mean(name, known) or f"there are {', '.join(known)}",
        )
    manifest = EXAMPLES / f"{name}.yaml"
    # The comments speak of where the examples lie; here it lies where it is written.
    text = manifest.read_text(encoding="utf-8").replace("specs/examples/", "")
    beside = sorted((EXAMPLES / name).rglob("*")) if (EXAMPLES / name).is_dir() else []
    return {manifest.name: text.encode()} | {
        str(path.relative_to(EXAMPLES)): path.read_bytes()
        for path in beside
        if path.is_file() and "__pycache__" not in path.parts
    }


def _schema_of(kind: str) -> Path:
    return SCHEMAS / f"{kind}.json"


def _modeline(schema: Path) -> str:
    """For editors that know YAML: what can stand where, and what it means. By a path from the
    manifest, which holds on every machine.
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


def _write(made: Mapping[Path, bytes]) -> None:
    """All or none, as far as one can see before."""
    for path in made:
        if path.exists() or (path.parent.exists() and not path.parent.is_dir()):
            _refuse(path)
    for path, data in made.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            _refuse(path)
        except (NotADirectoryError, PermissionError) as error:
            raise UsageError(
                f"`{path}` cannot be made: {(error.strerror or 'no reason given').lower()}"
            ) from error


def _refuse(place: Path) -> None:
    """Raises: something is in the way, the file itself or a file in place of its directory."""
    if not place.parent.is_dir():
        raise UsageError(f"`{place.parent}` is a file, not a directory")
    raise Refused(
        f"`{place}` is there already, and would be lost",
        hint="name another directory: `fleetctl init DIR`",
    )
