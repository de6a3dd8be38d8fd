"""`fleetctl bundle`: what a report about a bug needs, in one file, without what is secret in it.

Values of secrets and of environments never enter: they are looked up here only to be blanked out.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import platform
import re
import sqlite3
import sys
import tarfile
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fleetctl.cli.command.crash import CRASHES
from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.home import LOG, home
from fleetctl.common.text import byte_size, safe
from fleetctl.common.version import VERSION
from fleetctl.tracking.written import note_written
from fleetctl.views.objects import mapping
from fleetctl.views.reading import open_reading

LOG_BYTES_MAX = 512 * 1024  # the end of it: what went wrong last stands there
CRASHES_MAX = 10
# Shorter values are words such as `main`, and blanking them out would leave no sentence whole.
VALUE_CHARS_MIN = 6
PREFIX = "fleetctl-bundle"
# What the providers' credentials look like, wherever a log has them from.
_TOKENS = re.compile(r"\b(?:a[ks]-[A-Za-z0-9]{8,}|dtn_[A-Za-z0-9]{8,}|wandb_[A-Za-z0-9]{8,})")
_URL_USER = re.compile(r"//[^/\s@]+@")


PAGE = """\
[FILE]

Pack what a report about a bug needs: versions, what `doctor` found, the end of the
controller's log, the last crashes, and counts of the store. No manifest, no result,
no task's output; values of secrets and of `env` are blanked out.

examples:
  fleetctl bundle
  fleetctl bundle report.tar.gz
  tar -tzf $(fleetctl bundle)

exit codes:
  0 ok, 1 the file cannot be written, 2 wrong usage, 3 the file is there already
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "file", nargs="?", default="", metavar="FILE", help="a new file; default: named by the time"
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    state_dir = home()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    target = Path(args.file or f"{PREFIX}-{stamp}.tar.gz")
    hidden = sorted(
        set(_hidden(state_dir)), key=len, reverse=True
    )  # a long one may hold a short one
    parts = {name: _redacted(text, hidden) for name, text in _parts(state_dir)}
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Refused(f"`{target}` is there already", hint="name another file") from error
    with os.fdopen(descriptor, "wb") as stream:
        _pack(stream, parts)
    note_written([target])
    screen.talk("packed, to be looked through before it is sent:")
    for name, text in parts.items():
        screen.talk(f"  {name:<16} {byte_size(len(text.encode())):>9}  {_about(name)}")
    screen.data(safe(str(target)))
    return 0


def _parts(state_dir: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of all that goes in."""
    yield "about.json", _json(_about_this_machine())
    yield "doctor.json", _json(_doctor(state_dir))
    yield "store.json", _json(_store(state_dir))
    for name in (LOG, f"{LOG}.1"):
        if text := _end_of(state_dir / name):
            yield name, text
    crashes = sorted((state_dir / CRASHES).glob("crash-*.log"))[-CRASHES_MAX:]
    for path in crashes:
        yield f"{CRASHES}/{path.name}", _end_of(path)


def _about(name: str) -> str:
    fields = {
        "about.json": "versions of fleetctl, Python, SQLite and this system",
        "doctor.json": "what `fleetctl doctor` found",
        "store.json": "schema, sizes and numbers of rows and of objects",
    }
    return fields.get(name) or ("a crash" if name.startswith(CRASHES) else "the end of the log")


def _about_this_machine() -> dict[str, object]:
    return {
        "fleetctl": VERSION,
        "python": sys.version,
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "encoding": sys.getfilesystemencoding(),
    }


def _doctor(state_dir: Path) -> object:
    from fleetctl.cli.system.doctor import examine

    found, needed = asyncio.run(examine(state_dir))
    return [{**one._asdict(), "needed": one.topic in needed} for one in found]


def _store(state_dir: Path) -> dict[str, object]:
    """Counts; objects by kind and phase, never by name."""
    from fleetctl.stores.read.facts import facts

    objects: dict[str, int] = {}
    try:
        with open_reading(state_dir) as reading:
            for seen in reading.views():
                key = f"{seen.kind.name} {seen.phase}"
                objects[key] = objects.get(key, 0) + 1
    except FleetctlError as error:
        return {"files": facts(state_dir), "error": str(error)}
    return {"files": facts(state_dir), "objects": objects}


def _end_of(path: Path) -> str:
    """The last whole lines of a file; nothing where there is none."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - LOG_BYTES_MAX))
            text = stream.read().decode("utf-8", "backslashreplace")
    except OSError:
        return ""
    return text if size <= LOG_BYTES_MAX else text.partition("\n")[2]


def _hidden(state_dir: Path) -> Iterator[str]:
    """Values that must not be in the file: of this environment's credentials, of stored secrets, of
    the `env` of every object.
    """
    from fleetctl.manifest.problems import CREDENTIAL_NAME

    yield from (value for name, value in os.environ.items() if CREDENTIAL_NAME.search(name))
    try:
        with open_reading(state_dir) as reading:
            specs = [seen.spec() for seen in reading.views(specs=True)]
    except FleetctlError:
        return  # what cannot be read has reached no log either
    for spec in specs:
        for name in _texts(spec.get("fromEnv")):
            yield os.environ.get(name, "")
        for path in mapping(spec.get("fromFile")).values():
            yield _end_of(Path(str(path))).strip()
        yield from _environments(spec)


def _environments(value: object) -> Iterator[str]:
    """Every value of every `env` in a spec."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "env":
                yield from map(str, mapping(inner).values())
            else:
                yield from _environments(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _environments(inner)


def _texts(value: object) -> Iterable[str]:
    return map(str, value) if isinstance(value, list) else ()


def _redacted(text: str, hidden: Iterable[str]) -> str:
    from fleetctl.interpreter.errors import redact

    for value in hidden:
        if len(value) >= VALUE_CHARS_MIN:
            text = text.replace(value, "***").replace(json.dumps(value)[1:-1], "***")
    return _URL_USER.sub("//***@", _TOKENS.sub("***", redact(text, ())))


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"


def _pack(stream: io.BufferedIOBase, parts: Mapping[str, str]) -> None:
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in parts.items():
            data = text.encode("utf-8", "backslashreplace")
            entry = tarfile.TarInfo(f"{PREFIX}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
