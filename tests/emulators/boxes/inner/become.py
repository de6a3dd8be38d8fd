"""Makes a forked copy of a box's pid 1 into a Python that has just been started, and lets it run.

What a program can ask of its interpreter is as after `exec`: arguments, flags, search path, modules
that are there, streams, signals, descriptors, name, and what /proc says of it. Two things are not:
the seed of the hashes of strings is that of its siblings, and `os` is there without `site`, too.
"""

from __future__ import annotations

import _signal
import ctypes
import io
import os
import sys
import time

import naming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType
    from typing import Any

    from program import Program
else:
    ModuleType = type(sys)

DESCRIPTORS_MAX = 4096
STREAMS = ("stdin", "stdout", "stderr")
# `os` and what it is made of: to import them again would take as long as all else here.
OS = ("_stat", "stat", "_collections_abc", "genericpath", "posixpath", "os.path", "os")
# In the order of their loading, what an interpreter has before its program comes first.
_FRESH = [*list(sys.modules)[: list(sys.modules).index("__main__")], *OS]
_ENCODINGS = [(one.encoding, one.errors) for one in (sys.stdin, sys.stdout, sys.stderr)]
_SOURCE_LOADER: Any = type(__spec__.loader)
LIBRARIES = ("_json", "_sha256", "binascii", "fcntl", "math", "zlib")
_find_spec: Any = sys.modules["_frozen_importlib_external"].PathFinder.find_spec
_kept: list[Any] = []  # what a program does not see; to destroy it would touch its memory


def preload() -> None:
    """Have the libraries of extension modules that many programs import where forks find them: a
    program that imports one makes its module anew, but maps and links nothing.
    """
    for name in LIBRARIES:
        spec = _find_spec(name)
        if spec is not None and spec.has_location:
            _kept.append(ctypes.CDLL(spec.origin))


def hide_ourselves() -> None:
    """Let modules and paths be those of an interpreter whose program has not begun. Once, in the
    nursery: each page of memory that a fork of it need not touch is time saved in all of them.
    """
    own = os.path.dirname(__file__)
    sys.path[:] = [place for place in sys.path if place != own]
    sys.path_importer_cache.pop(own, None)
    main = ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=sys.modules["builtins"])
    main.__dict__.update(__loader__=sys.__loader__)
    _kept.append(sys.modules.copy())
    fresh = {name: sys.modules[name] for name in _FRESH}
    sys.modules.clear()
    sys.modules.update(fresh)
    sys.modules["__main__"] = main


def import_library(name: str, source: str, place: str) -> None:
    """Have a module, and all that it imports, in every fork, which finds the rest of it at `place`.
    After hide_ourselves: so what it brings along is made anew, as a program's imports are.
    """
    sys.path.append(source)
    __import__(name)
    sys.path.remove(source)
    sys.path_importer_cache.clear()
    for module in sys.modules.values():
        file = getattr(module, "__file__", None) or ""
        if file.startswith(source):
            module.__file__ = place + file[len(source) :]
        if file.startswith(source) and hasattr(module, "__path__"):
            module.__path__[:] = [place + one[len(source) :] for one in module.__path__]


def settle(program: Program, descriptors: Sequence[int]) -> None:
    """Be apart from pid 1: session, descriptors, signals, name. The working directory is set."""
    os.setsid()
    for place, given in enumerate(descriptors):
        os.dup2(given, place)
    os.closerange(3, DESCRIPTORS_MAX)
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(program.env)
    naming.rename(program.argv, program.env, os.path.basename(program.executable))


def run(program: Program) -> None:
    """At the bottom of the interpreter's stack: what it does not handle ends the process, and so
    does its return.
    """
    _take_arguments(program)
    _ready_paths(program)
    try:
        exec(_code(program), sys.modules["__main__"].__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        _end_by(error)


def _take_arguments(program: Program) -> None:
    """And what hangs on them: flags, and streams."""
    if "TZ" in program.env:
        time.tzset()
    sys.orig_argv, sys.argv = program.argv, program.arguments
    sys.executable = program.executable
    sys._base_executable = program.base_executable  # type: ignore[attr-defined]
    sys.dont_write_bytecode = program.says("B", "PYTHONDONTWRITEBYTECODE")
    _set_flags(program)
    unbuffered = program.says("u", "PYTHONUNBUFFERED")
    for place, name in enumerate(STREAMS):
        stream = _stream(place, name, unbuffered=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _set_flags(program: Program) -> None:
    alone = "I" in program.options
    wanted = {
        "dont_write_bytecode": int(sys.dont_write_bytecode),
        "ignore_environment": int(not program.heeds_environment),
        "isolated": int(alone),
        "no_site": int(program.says("S")),
        "no_user_site": int(alone or program.says("s", "PYTHONNOUSERSITE")),
        "safe_path": alone or program.says("P"),
    }
    names = type(sys.flags).__match_args__  # type: ignore[attr-defined]
    for name, value in wanted.items():
        if getattr(sys.flags, name) != value:
            # There is no other way to the fields of a structure that only Python itself makes.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
            ctypes.pythonapi.PyStructSequence_SetItem(
                ctypes.py_object(sys.flags), names.index(name), ctypes.py_object(value)
            )


def _stream(place: int, name: str, *, unbuffered: bool) -> Any:
    """As `create_stdio` of CPython makes it."""
    write, encoding = place > 0, _ENCODINGS[place]
    mode, buffering = "wb" if write else "rb", 0 if write and unbuffered else -1
    raw: Any = open(place, mode, buffering=buffering, closefd=False)  # noqa: SIM115 - for all its life
    getattr(raw, "raw", raw).name = f"<{name}>"
    stream = io.TextIOWrapper(
        raw,
        encoding=encoding[0],
        errors=encoding[1],
        newline="\n",
        line_buffering=not unbuffered and (place == 2 or os.isatty(place)),
        write_through=unbuffered,
    )
    stream.mode = "w" if write else "r"  # type: ignore[misc]
    return stream


def _ready_paths(program: Program) -> None:
    asked = program.env.get("PYTHONPATH", "") if program.heeds_environment else ""
    if asked:
        sys.path[:0] = asked.split(":")
    if not sys.flags.no_site:
        __import__("site")
    if not sys.flags.safe_path:
        own = os.path.dirname(os.path.realpath(program.what)) if program.kind == "file" else ""
        sys.path.insert(0, own)


def _code(program: Program) -> CodeType:
    main = sys.modules["__main__"].__dict__
    if program.kind == "code":
        return compile(program.what, "<string>", "exec", dont_inherit=True)
    name = program.what if program.kind == "file" else "<stdin>"
    main.update(__file__=name, __cached__=None)
    if program.kind == "stdin":
        parts = list(iter(lambda: os.read(0, 1 << 16), b""))
        return compile(b"".join(parts), name, "exec", dont_inherit=True)
    main["__loader__"] = _SOURCE_LOADER("__main__", name)
    with open(name, "rb") as file:
        return compile(file.read(), name, "exec", dont_inherit=True)


def _end_by(error: BaseException) -> None:
    """As Python does at the top: the traceback, without us, and the code of a failure."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
    if isinstance(error, KeyboardInterrupt):
        sys.stdout.flush()
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        os.kill(os.getpid(), _signal.SIGINT)
    raise SystemExit(1) from None
