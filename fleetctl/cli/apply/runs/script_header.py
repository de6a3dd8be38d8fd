"""Reads the header of a single-file Python program: the block `# /// script` of PEP 723.

Called by from_flags.py for `fleetctl run train.py`. `dependencies` become `image.pip`, and
`requires-python` becomes `image.python`, the newest version that it allows.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import escape_line

HEADER_BYTES_MAX = 1024 * 1024
# Oldest first. The versions that providers and uv install today.
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")

# The reference expression of PEP 723.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_CLAUSE = re.compile(r"^(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?$")


@dataclass(frozen=True, slots=True)
class ScriptHeader:
    """packages: requirements as pip reads them. python: such as `3.12`; empty where any will do."""

    packages: tuple[str, ...] = ()
    python: str = ""


def read_script_header(path: Path) -> ScriptHeader:
    """Returns the header of a program; an empty one where it has none.

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
