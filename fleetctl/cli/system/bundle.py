"""`fleetctl bundle`: writes the facts for a bug report to one file, without secrets.

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
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.state_paths import LOG, find_state_dir
from fleetctl.common.text import CREDENTIAL_NAME, byte_size, escape_line, without_credentials
from fleetctl.common.version import VERSION
from fleetctl.tracking.written_files import note_written
from fleetctl.views.objects import as_mapping
from fleetctl.views.store_reading import open_reading

LOG_BYTES_MAX = 512 * 1024  # its end, with the last error
CRASHES_MAX = 10
# Shorter values are words such as `main`, and blanking them out would make every sentence
# unreadable.
VALUE_CHARS_MIN = 6
PREFIX = "fleetctl-bundle"
# The form of the providers' credentials, from whatever source a log has them.
_TOKENS = re.compile(r"\b(?:a[ks]-[A-Za-z0-9]{8,}|dtn_[A-Za-z0-9]{8,}|wandb_[A-Za-z0-9]{8,})")


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
    state_dir = find_state_dir()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    target = Path(args.file or f"{PREFIX}-{stamp}.tar.gz")
    hidden = sorted(
        set(_list_secrets(state_dir)), key=len, reverse=True
    )  # a long one may hold a short one
    parts = {name: _redact_text(text, hidden) for name, text in _collect_parts(state_dir)}
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Refused(f"`{target}` is there already", hint="name another file") from error
    with os.fdopen(descriptor, "wb") as stream:
        _pack_archive(stream, parts)
    note_written([target])
    screen.talk("packed, to be looked through before it is sent:")
    for name, text in parts.items():
        screen.talk(f"  {name:<16} {byte_size(len(text.encode())):>9}  {_describe_part(name)}")
    screen.data(escape_line(str(target)))
    return 0


def _collect_parts(state_dir: Path) -> Iterator[tuple[str, str]]:
    """Yields (name, text) of all parts of the bundle."""
    yield "about.json", _dump_json(_describe_machine())
    yield "doctor.json", _dump_json(_collect_doctor(state_dir))
    yield "store.json", _dump_json(_collect_store(state_dir))
    for name in (LOG, f"{LOG}.1"):
        if text := _end_of(state_dir / name):
            yield name, text
    crashes = sorted((state_dir / CRASHES).glob("crash-*.log"))[-CRASHES_MAX:]
    for path in crashes:
        yield f"{CRASHES}/{path.name}", _end_of(path)


def _describe_part(name: str) -> str:
    fields = {
        "about.json": "versions of fleetctl, Python, SQLite and this system",
        "doctor.json": "what `fleetctl doctor` found",
        "store.json": "schema, sizes and numbers of rows and of objects",
    }
    return fields.get(name) or ("a crash" if name.startswith(CRASHES) else "the end of the log")


def _describe_machine() -> dict[str, object]:
    return {
        "fleetctl": VERSION,
        "python": sys.version,
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "encoding": sys.getfilesystemencoding(),
    }


def _collect_doctor(state_dir: Path) -> object:
    from fleetctl.cli.system.doctor import run_checks

    found, needed = asyncio.run(run_checks(state_dir))
    return [{**one._asdict(), "needed": one.topic in needed} for one in found]


def _collect_store(state_dir: Path) -> dict[str, object]:
    """Returns counts; objects by kind and phase, never by name."""
    from fleetctl.stores.read.query import collect_facts

    objects: dict[str, int] = {}
    try:
        with open_reading(state_dir) as reading:
            for seen in reading.views():
                key = f"{seen.kind.name} {seen.phase}"
                objects[key] = objects.get(key, 0) + 1
    except FleetctlError as error:
        return {"files": collect_facts(state_dir), "error": str(error)}
    return {"files": collect_facts(state_dir), "objects": objects}


def _end_of(path: Path) -> str:
    """Returns the last whole lines of a file; empty where there is no file."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - LOG_BYTES_MAX))
            text = stream.read().decode("utf-8", "backslashreplace")
    except OSError:
        return ""
    if size <= LOG_BYTES_MAX:
        return text
    return text.partition("\n")[2]


def _list_secrets(state_dir: Path) -> Iterator[str]:
    """Yields values that must not be in the file: of this environment's credentials, of stored
    secrets, of the `env` of every object.
    """
    yield from (value for name, value in os.environ.items() if CREDENTIAL_NAME.search(name))
    try:
        with open_reading(state_dir) as reading:
            specs = [seen.spec() for seen in reading.views(specs=True)]
    except FleetctlError:
        return  # an unreadable store has reached no log either
    for spec in specs:
        for name in _as_texts(spec.get("fromEnv")):
            yield os.environ.get(name, "")
        for path in as_mapping(spec.get("fromFile")).values():
            yield _end_of(Path(str(path))).strip()
        yield from _list_env_values(spec)


def _list_env_values(value: object) -> Iterator[str]:
    """Yields every value of every `env` in a spec."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "env":
                yield from map(str, as_mapping(inner).values())
            else:
                yield from _list_env_values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _list_env_values(inner)


def _as_texts(value: object) -> Iterable[str]:
    if isinstance(value, list):
        return map(str, value)
    return ()


def _redact_text(text: str, hidden: Iterable[str]) -> str:
    from fleetctl.interpreter.result import redact_text

    for value in hidden:
        if len(value) >= VALUE_CHARS_MIN:
            text = text.replace(value, "***").replace(json.dumps(value)[1:-1], "***")
    return without_credentials(_TOKENS.sub("***", redact_text(text, ())))


def _dump_json(value: object) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"


def _pack_archive(stream: io.BufferedIOBase, parts: Mapping[str, str]) -> None:
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in parts.items():
            data = text.encode("utf-8", "backslashreplace")
            entry = tarfile.TarInfo(f"{PREFIX}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
