"""Which commands a forked copy of this very interpreter can run as if it had been started anew.

Called by a box's pid 1, in the tree of the box. Anything that it does not know to be the same
is left to exec: another Python, another locale, rare options, variables that change Python's start.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Those of Python's own variables that become.py heeds.
KNOWN = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE")
# They act on a program before its first line.
OF_THE_LOADER = ("LD_", "MALLOC_", "GLIBC_TUNABLES")
LOCALE = "C.UTF-8"  # which the nursery is started in
OPTIONS = "IESsPBu"
CONFIG_BYTES_MAX = 65536

_OURS = os.stat("/proc/self/exe")
_BIN = os.path.dirname(os.path.realpath("/proc/self/exe"))


class Program:
    """kind: "code", "file" or "stdin"; what: the code, or the file as it was named."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], found: str, base: str) -> None:
        self.argv, self.env = list(argv), dict(env)
        self.executable, self.base_executable = found, base
        self.options = ""
        self.kind, self.what = "stdin", ""
        self.arguments: list[str] = []

    @property
    def heeds_environment(self) -> bool:
        return not set(self.options) & set("IE")

    def says(self, option: str, variable: str = "") -> bool:
        """Returns whether an option was given, or the variable that stands for it."""
        given = self.heeds_environment and bool(self.env.get(variable))
        return given or option in self.options


def known_program(argv: Sequence[str], env: Mapping[str, str]) -> Program | None:
    """None means: exec it. Nothing is changed, and nothing but the file system is looked at."""
    name = argv[0].rpartition("/")[2]
    if not name.startswith("python") or not _starts_alike(env):
        return None
    found = _found(argv[0], env)
    base = _base_of(found) if found else ""
    if not base:
        return None
    program = Program(argv, env, found, base)
    if not _take_options(program, list(argv[1:])):
        return None
    odd = [one for one in env if one.startswith("PYTHON") and one not in KNOWN]
    if odd and program.heeds_environment:
        return None
    return program


def search_path(env: Mapping[str, str]) -> list[str]:
    """As os.get_exec_path, which imports `warnings`."""
    return env.get("PATH", os.defpath).split(":")


def _starts_alike(env: Mapping[str, str]) -> bool:
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG")
    return locale == LOCALE and not any(name.startswith(OF_THE_LOADER) for name in env)


def _found(name: str, env: Mapping[str, str]) -> str:
    """The path of our own interpreter under that name; "" when it is another program."""
    places = [""] if "/" in name else [f"{one}/" for one in search_path(env)]
    for place in places:
        try:
            there = os.stat(place + name)
        except OSError:
            continue
        # An overlay has a device number of its own, so that does not count.
        same = all(
            getattr(there, field) == getattr(_OURS, field)
            for field in ("st_ino", "st_size", "st_mtime_ns")
        )
        return place + name if same and (place + name).startswith("/") else ""
    return ""


def _base_of(found: str) -> str:
    """`sys._base_executable` of the interpreter at that path; "" when its library is elsewhere."""
    here = os.path.dirname(found)
    for place in (here, os.path.dirname(here)):
        try:
            with open(f"{place}/pyvenv.cfg", encoding="utf-8", errors="replace") as file:
                lines = file.read(CONFIG_BYTES_MAX).splitlines()
        except OSError:
            continue
        pairs = (line.partition("=") for line in lines)
        homes = [value.strip() for key, _, value in pairs if key.strip().lower() == "home"]
        return os.path.realpath(found) if [*map(os.path.realpath, homes)] == [_BIN] else ""
    return found if os.path.dirname(os.path.realpath(found)) == _BIN else ""


def _take_options(program: Program, rest: list[str]) -> bool:
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        before, code, after = word[1:].partition("c")
        if not set(before) <= set(OPTIONS):
            return False
        program.options += before
        if code:
            if not after and not rest:
                return False
            program.kind, program.what = "code", after or rest.pop(0)
            program.arguments = ["-c", *rest]
            return True
    program.arguments = rest or [""]
    if not rest or rest[0] == "-":
        return _is_plain(0) is not None and not os.isatty(0)
    program.kind, program.what = "file", rest[0]
    return _is_plain(rest[0]) is True and not rest[0].endswith((".pyc", ".pyw"))


def _is_plain(path: str | int) -> bool | None:
    """Whether it is a plain file; None when there is none."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return None
