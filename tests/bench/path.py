"""The way of one manifest: how many files of the product a controller enters between the request
of `apply -f hello.yaml` and the start of its first process. A call of a function counts, the
import of a module and the body of a class do not.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.harness import Figure, home

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "specs" / "examples" / "hello.yaml"
FILES_MAX = 100
# Imported by Python as it starts: in the controller alone, from the request to the start.
TRACER = """
import json, os, sys, threading

ROOT, INTO = {root!r}, {into!r}
OPTIMIZED = 1  # a function; the bodies of modules and classes have no such flag
entered, begun = [], []


def take(frame, event, _):
    code = frame.f_code
    if event != "call" or not code.co_flags & OPTIMIZED or os.path.exists(INTO):
        return
    file = os.path.relpath(code.co_filename, ROOT)
    if file.startswith("..") or file.startswith("."):
        return
    if (file, code.co_name) == ("fleetctl/daemon/receive.py", "apply"):
        begun.append(file)
    if begun:
        entered.append((file, code.co_qualname))
    if begun and (file, code.co_name) == ("fleetctl/providers/local/local_provider.py", "start"):
        with open(INTO + ".new", "w") as out:
            json.dump(entered, out)
        os.replace(INTO + ".new", INTO)


if "fleetctl.cli.main" in sys.orig_argv and "up" in sys.orig_argv:
    sys.setprofile(take)
    threading.setprofile(take)
"""


def list_entered() -> list[tuple[str, str]]:
    """Every call from the request to the start: the file and the name of the function."""
    with home() as at:
        into = at.path / "entered.json"
        site = at.path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(TRACER.format(root=str(ROOT), into=str(into)))
        at.env["PYTHONPATH"] = str(site)
        at.run("apply", "-f", str(EXAMPLE), "--wait")
        return [(file, name) for file, name in json.loads(into.read_text())]


def figures() -> list[Figure]:
    entered = list_entered()
    files = {file for file, _ in entered}
    shown = f"{len(files)} files, {len({*entered})} functions, {len(entered):,} calls"
    what = "files entered from the request of `apply -f hello.yaml` to its first start"
    return [Figure(what, shown, f"{FILES_MAX}", len(files) <= FILES_MAX)]
