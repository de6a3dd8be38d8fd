"""`fleetctl skills`: writes a folder in the form of Agent Skills from which a coding agent learns
fleetctl: from the texts of `explain`, the list of reasons and the examples.

The folder has the version, and the digest of each of its files: `update` replaces files that are as
they were written, and never those that somebody edited.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.learn.explain import render_page
from fleetctl.cli.learn.init import STARTERS, list_examples, read_example, read_title
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import escape_line
from fleetctl.common.version import VERSION
from fleetctl.controllers.reasons import REASONS
from fleetctl.manifest.hints.fields import manifest_field
from fleetctl.specs.kinds.registry import KINDS

PAGE = """\
install [DIR] | update [DIR]

Write a skill for coding agents: a folder `fleetctl` with SKILL.md, the fields of each
kind, the reasons and the examples, of this version. DIR is where the agent looks for
skills. `update` brings it to this version; files that you have edited are not written
over.

examples:
  fleetctl skills install
  fleetctl skills install .claude/skills
  fleetctl skills update

exit codes:
  0 written, 2 wrong usage, 3 there is one already, or an edited file, 4 no skill to update
"""
DEFAULT_DIRECTORY = ".agents/skills"
NAME = "fleetctl"
SKILL = "SKILL.md"
RECORD = ".written.json"  # version and digests, for `update`


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "act", choices=("install", "update"), metavar="install|update", help="what to do"
    )
    made.add_argument(
        "directory", nargs="?", default=DEFAULT_DIRECTORY, metavar="DIR",
        help="where skills are (default %(default)s)",
    )  # fmt: skip
    return made


def run(args: Namespace, screen: Screen) -> int:
    folder = Path(args.directory) / NAME
    record = folder / RECORD
    made = build_skill()
    if args.act == "install":
        if folder.exists():
            raise Refused(
                f"there is `{escape_line(str(folder))}` already",
                hint=f"fleetctl skills update {escape_line(args.directory)}",
            )
        old = "", dict[str, str]()
    else:
        old = _read_record(record)
        _refuse_edited(folder, old[1], made)
    for name in old[1].keys() - made.keys():
        (folder / name).unlink(missing_ok=True)
    for name, data in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    digests = {name: _digest_file(data) for name, data in made.items()}
    record.write_text(json.dumps({"version": VERSION, "files": digests}, indent=1), "utf-8")
    was = f", before {escape_line(old[0])}" if old[0] else ""
    screen.data(f"{escape_line(str(folder))} written, version {VERSION}{was}")
    return 0


def build_skill() -> dict[str, bytes]:
    """Returns the files of the skill, by their paths in its folder."""
    text = (STARTERS / SKILL).read_text("utf-8")
    found = {
        "version": VERSION,
        "kinds": "\n".join(
            f"- `{it.name}`: {it.summary} Fields: `references/{it.name.lower()}.md`"
            for it in KINDS.values()
        ),
        "examples": "\n".join(
            f"- `references/examples/{name}.yaml`: {read_title(name)}" for name in list_examples()
        ),
    }
    for name, value in found.items():
        text = text.replace(f"{{{name}}}", value)
    made = {SKILL: text.encode()}
    for name, page in _render_references():
        made[f"references/{name}.md"] = page.encode()
    for example in list_examples():
        for name, data in read_example(example).items():
            made[f"references/examples/{name}"] = data
    return made


def _render_references() -> Iterator[tuple[str, str]]:
    """Yields (name, text) of each page that is made from the code."""
    for kind in KINDS:
        lines = render_page(kind, manifest_field(kind), (), recursive=True)
        page = "\n".join(line.rstrip() for line in lines)
        meaning = f"`fleetctl explain {kind.lower()}.spec.FIELD` says what a field means."
        yield kind.lower(), f"# {kind}\n\n{meaning}\n\n```text\n{page}\n```\n"
    reasons = "\n".join(f"- `{name}`: {text}" for name, text in sorted(REASONS.items()))
    yield "reasons", f"# Reasons\n\nWhy an object or a task is as it is.\n\n{reasons}\n"


def _read_record(record: Path) -> tuple[str, dict[str, str]]:
    """Returns (version, digests by path). Raises NotFound and UsageError."""
    try:
        found = json.loads(record.read_text("utf-8"))
        files = {str(name): str(digest) for name, digest in found["files"].items()}
        version = str(found["version"])
    except FileNotFoundError:
        raise NotFound(
            f"there is no skill in `{escape_line(str(record.parent))}`",
            hint=f"fleetctl skills install {escape_line(str(record.parent.parent))}",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise UsageError(
            f"`{escape_line(str(record))}` is not as `skills install` wrote it",
            hint="remove the folder, and install the skill again",
        ) from None
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise UsageError(f"`{escape_line(str(record))}` names files beside its folder")
    return version, files


def _refuse_edited(
    folder: Path,
    digests: Mapping[str, str],
    made: Mapping[str, bytes],
) -> None:
    """Raises Refused where a file that would be replaced or removed is not as it was written."""
    edited = []
    for name in sorted({*digests, *made}):
        path = folder / name
        if not path.exists():
            continue
        there = path.read_bytes()
        if _digest_file(there) != digests.get(name) and there != made.get(name):
            edited.append(name)
    if edited:
        raise Refused(
            "somebody edited " + ", ".join(f"`{escape_line(name)}`" for name in edited[:5]),
            hint=f"move them out of `{escape_line(str(folder))}`, then update",
        )


def _digest_file(data: bytes) -> str:
    return sha256(data).hexdigest()
