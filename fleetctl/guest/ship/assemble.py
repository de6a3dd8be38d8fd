"""Makes the files that are shipped into sandboxes: the guest, which runs tasks, and the driver,
which serves interpreters. Called by providers; never runs in a sandbox.

Deterministic: the same sources give the same text under the same Python, so that its hash can
name it. Each is made once in a process, as it takes up to a quarter of a second of CPU: a start
that ships one must not pay for this again.
"""

from __future__ import annotations

import base64
import marshal
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from fleetctl.guest.ship.onefile import PACKAGES, compile_part, read_version
from fleetctl.guest.ship.recompile import compile_table

GUEST = Path(__file__).parents[1]
# Each after those that it needs.
_TASK = "text", "lazy", "plain", "helpers", "term", "task"
PARTS = tuple(f"task/{name}.py" for name in _TASK)
DRIVER_PARTS = (
    *PARTS,
    *("driver/channel.py", "driver/checkout.py", "driver/execution.py", "driver/main.py"),
)
# Each is compiled when it is first imported in the sandbox, if ever.
REMOTE_PARTS = (
    *(f"journal/{name}.py" for name in ("digest", "logfile", "masking", "record")),
    "journal/results.py",
    *("journal/ending.py", *PARTS, "task/program.py", "metrics/thinning.py", "metrics/numbers.py"),
    *("supervision/processes.py", "supervision/pace.py", "reports.py"),
    *("task/serving.py", "task/parameters.py"),
    *(f"nodes/{name}.py" for name in ("gang", "ray", "rayjob")),
    *(f"metrics/{name}.py" for name in ("protobuf", "events", "files")),
    "metrics/cpulimit.py",
    "metrics/followed.py",
    *(f"checkpoints/{name}.py" for name in ("disk", "formats", "keeping")),
    *(f"checkpoints/{name}.py" for name in ("prepare", "begin", "mirror", "watch")),
    *(f"supervision/services/{name}.py" for name in ("names", "process", "crew")),
    *(f"wandb/{name}.py" for name in ("file", "trial")),
    *(f"outputs/{name}.py" for name in ("selection", "walk", "pack", "keeping")),
    *(f"remote/relay/{name}.py" for name in ("keeper", "process", "client", "calls", "http")),
    *(f"remote/{name}.py" for name in ("place", "main", "loop", "supervise")),
    *(f"remote/{name}.py" for name in ("visitors", "stream", "verbs")),
    *(f"remote/run/{name}.py" for name in ("attempt", "output", "files", "keeping", "sync")),
    *(f"remote/process/{name}.py" for name in ("child", "tree", "worker")),
)
POSIX_PARTS = (
    *("idle.sh", "common.sh", "tree.sh", "end.sh", "load.sh"),
    *("supervise.sh", "follow.sh", "main.sh"),
)
MACHINE_PARTS = (
    *("common.sh", "tree.sh", "boxes.sh"),
    *("lease.sh", "files.sh", "machine.sh"),
)


@cache
def guest_source() -> str:
    """Returns the guest as one Python text; its parts see each other's names as globals."""
    return _join_parts(PARTS)


@cache
def driver_source() -> str:
    """Returns the driver as one Python program, for Python 3.9 and later; see driver/main.py."""
    return _join_parts(DRIVER_PARTS) + '\n\nif __name__ == "__main__":\n    main()\n'


@cache
def remote_source(*, compiled: bool = True) -> str:
    """Returns the guest of remote sandboxes as one Python program; see remote/main.py.

    compiled: with a table for Pythons of our own version; without it, it has a third of the size,
    and `recompile_source` can make one where it will run.
    """
    sources = _remote_sources()
    code = by = ""
    if compiled:
        codes = {name: marshal.dumps(compile_part(text, name)) for name, text in sources.items()}
        code = _pack_table(codes)
        by = read_version()
    tables = f'SOURCES = "{_pack_table(sources)}"\nCOMPILED = "{code}"\n'
    return f"{_read_head()}\n\n{tables}COMPILED_BY = {by!r}\n{_REMOTE_END}"


@cache
def quick_source() -> str:
    """Returns a program that starts the guest from its table where it can; see quick.py."""
    return (Path(__file__).parent / "quick.py").read_text(encoding="utf-8")


@cache
def quick_table() -> bytes:
    """Returns the table for Pythons of our own version; see recompile.py."""
    return compile_table(remote_source(compiled=False))


@cache
def recompile_source() -> str:
    """Returns a program for the Python of an image; its argument is the path of the guest."""
    return (Path(__file__).parent / "recompile.py").read_text(encoding="utf-8")


@cache
def posix_source() -> str:
    """Returns the guest of sandboxes without Python as one `sh` program; see posix/main.sh."""
    return _join_shell(POSIX_PARTS)


@cache
def machine_source() -> str:
    """Returns the agent of machines without Python as one `sh` program; see posix/machine.sh."""
    return _join_shell(MACHINE_PARTS)


def _join_shell(parts: tuple[str, ...]) -> str:
    here = GUEST / "posix"
    text = "".join((here / part).read_text(encoding="utf-8") for part in parts)
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return "\n".join(["#!/bin/sh", *lines]) + "\n"


def _read_head() -> str:
    return (Path(__file__).parent / "onefile.py").read_text(encoding="utf-8")


def _remote_sources() -> dict[str, str]:
    """Returns the sources of the guest, by name of module."""
    sources = dict.fromkeys(PACKAGES, "")
    for part in REMOTE_PARTS:
        name = "fleetctl.guest." + part[: -len(".py")].replace("/", ".")
        sources[name] = (GUEST / part).read_text(encoding="utf-8")
    return sources


def _pack_table(table: Any) -> str:
    return base64.b64encode(zlib.compress(marshal.dumps(table, 2), 9)).decode()


def _join_parts(parts: tuple[str, ...]) -> str:
    bodies = [_without_own_imports((GUEST / part).read_text(encoding="utf-8")) for part in parts]
    return "\n\n".join([_ONCE, *bodies])


def _without_own_imports(text: str) -> str:
    """Drops the imports that only make sense in a package, and lines that one text has once."""
    text = re.sub("^TYPE_CHECKING = False.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^from fleetctl\.guest\S* import (\([^)]*\)|.*)$", "", text, flags=re.MULTILINE)
    return text.replace("from __future__ import annotations\n", "").strip() + "\n"


_ONCE = "from __future__ import annotations\n\nTYPE_CHECKING = False\n"
_REMOTE_END = """
if __name__ == "__main__":
    import gc

    gc.disable()  # verbs are short, and a worker turns it on again for its tasks
    sys.meta_path.insert(0, OneFile())
    from fleetctl.guest.remote.main import exit_at_once, main

    exit_at_once(main(sys.argv))
"""
