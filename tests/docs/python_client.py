"""The generated parts of the Python client: its async twin, the classes of the kinds, and the page
of its reference.

`make reference` writes them; a test holds them against the code.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from fleetctl.cli.command.verbs import VERBS
from fleetctl.client.fleet import Fleet
from fleetctl.client.fleet_base import FleetBase
from fleetctl.specs.kinds.registry import KINDS
from tests.docs.fleet import ROOT

TWIN = ROOT / "fleetctl" / "client" / "async_fleet.py"
MANIFESTS = ROOT / "fleetctl" / "client" / "manifests.py"
PAGE = ROOT / "docs" / "reference" / "python.md"
NOTE = "<!-- Written by `make reference`; edit the code, not this page. -->"
# For Executor, whose futures belong to threads.
NOT_IN_TWIN = frozenset({"start_calls"})

# By verb: the method that does the same. Verbs of this name need no row.
METHODS_OF_VERBS = {
    "describe": "get",
    "run": "map",
}
# By verb: the reason why the client has no method.
NO_METHOD = {
    "edit": "opens an editor; `set` and `apply` change fields",
    "exec": "a terminal in a running task",
    "port-forward": "holds a port open until Ctrl-C",
    "top": "a screen; `query` reads the same: `select * from attempts where state = 'Running'`",
    "report": "a page for readers; `cost`, `list` and `plot` have its parts",
    "graph": "a drawing; `list` has `spec['dependsOn']` and the phase of each object",
    "render": "prints the files of an overlay; `plan` and `apply` take them as they are",
    "ls": "files of volumes; kept outputs of tasks are `artifacts`",
    "cp": "files of volumes and live tasks; kept outputs come with `fetch_artifacts`",
    "rm": "files of volumes",
    "up": "a Fleet starts a controller where it needs one",
    "down": "ends a service that others of this machine may use",
    "status": "about the controller's process",
    "doctor": "checks this machine, for a person who sets it up",
    "backup": "for whoever looks after the state directory",
    "restore": "for whoever looks after the state directory",
    "gc": "for whoever looks after the state directory",
    "orphans": "ends sandboxes by a person's decision",
    "bundle": "packs a report about a bug",
    "operator": "a service in a cluster",
    "serve": "a service of a team",
    "token": "decides who may use the service",
    "audit": "for whoever looks after the service",
    "login": "keeps a token for the command line",
    "config": "chooses a server for the command line",
    "mcp": "a service of a coding agent",
    "skills": "writes files for a coding agent",
    "init": "writes a first file",
    "convert": "writes a file of another tool as a manifest",
    "explain": "prints documentation; `help(fleetctl.BatchJob)` and the fields' pages have it",
    "schema": "prints a file for editors",
    "api-resources": "prints the kinds, which are classes here",
    "completion": "is about a shell",
    "version": "`importlib.metadata.version('fleetctl')`",
}


def methods() -> Iterator[ast.FunctionDef]:
    """Yields the public methods of a Fleet, overloads included, as their sources have them."""
    for owner in Fleet.__mro__:
        if not issubclass(owner, FleetBase) or owner is FleetBase:
            continue
        (found,) = [
            it
            for it in _tree_of(owner).body
            if isinstance(it, ast.ClassDef) and it.name == owner.__name__
        ]
        for it in found.body:
            if isinstance(it, ast.FunctionDef) and not it.name.startswith("_"):
                yield it


def render_twin() -> str:
    """Returns the module of AsyncFleet."""
    twins = [it for it in methods() if it.name not in NOT_IN_TWIN]
    # Last, since below `def list` the word `list` is no type in this class any more.
    twins.sort(key=lambda it: hasattr(builtins, it.name))
    lines = [
        '"""The async client, written by `make reference` from Fleet; edit the methods there."""',
        "from __future__ import annotations",
        "from functools import partial",
        "from typing import TYPE_CHECKING, overload",
        "from fleetctl.client.async_base import AsyncFleetBase",
        "if TYPE_CHECKING:",
        *(f"    {it}" for it in _imports_for(twins)),
        "class AsyncFleet(AsyncFleetBase):",
        '    """The objects of a state directory, for programs with an event loop."""',
    ]
    for method in twins:
        lines += ["", *(f"    {line}" if line else "" for line in _twin_of(method).splitlines())]
    return _format("\n".join(lines) + "\n")


def render_page() -> str:
    """Returns the reference of the client."""
    lines = ["# The Python client", "", NOTE, ""]
    lines += [
        "How to use it: [Use fleetctl from Python](../how-to/use-python.md). `AsyncFleet` has the "
        "same methods, to be awaited.",
        "",
    ]
    lines += [
        "Kinds: " + ", ".join(f"`{it}`" for it in KINDS) + ".",
        "",
        "## Methods of `Fleet`",
        "",
    ]
    for method in sorted(_by_name().values(), key=lambda it: it.name):
        if method.name in NOT_IN_TWIN:
            continue
        lines += [f"### {method.name}", "", "```py", _signature_of(method), "```", ""]
        lines += [inspect.cleandoc(ast.get_docstring(method) or ""), ""]
    lines += ["## Verbs of the command line", "", "| verb | in Python |", "| --- | --- |"]
    for verb in VERBS:
        name = method_of(verb)
        reason = NO_METHOD.get(verb, "")
        shown = f"[`{name}`](#{name})" if name else reason
        lines.append(f"| `{verb}` | {shown.replace('|', '&#124;')} |")
    return "\n".join(lines) + "\n"


def render_manifests() -> str:
    """Returns the module with the class of each kind."""
    lines = [
        '"""The classes of the kinds, written by `make reference` from their rows; edit those."""',
        "from __future__ import annotations",
        "from functools import cache",
        "from fleetctl.client.declared_object import DeclaredObject",
    ]
    for kind in KINDS.values():
        lines += [f"class {kind.name}(DeclaredObject):", f'    """{kind.summary}"""', ""]
    lines += [
        "@cache",
        "def class_of(kind: str) -> type[DeclaredObject]:",
        '    """Returns the class of a kind; a new one for a kind that was added since."""',
        "    known = {it.kind: it for it in DeclaredObject.__subclasses__()}",
        "    return known.get(kind) or type(kind, (DeclaredObject,), {})",
    ]
    return _format("\n".join(lines) + "\n")


def method_of(verb: str) -> str:
    """Returns the method that does the work of a verb; empty without one."""
    name = METHODS_OF_VERBS.get(verb, verb.replace("-", "_"))
    return name if name in _by_name() else ""


def _by_name() -> dict[str, ast.FunctionDef]:
    """Returns each method once: of overloads the last, which has the docstring."""
    return {it.name: it for it in methods()}


@cache
def _tree_of(owner: type) -> ast.Module:
    return ast.parse(Path(inspect.getfile(owner)).read_text("utf-8"))


def _twin_of(method: ast.FunctionDef) -> str:
    """Returns the source of the awaited method."""
    overloads = [f"@{ast.unparse(it)}" for it in method.decorator_list]
    streams = _streams(method)
    returned = ast.unparse(method.returns) if method.returns is not None else "None"
    if streams:
        returned = f"Async{returned}"
    head = f"async def {method.name}({ast.unparse(method.args)}) -> {returned}:"
    if overloads:
        return "\n".join([*overloads, f"{head} ..."])
    call = f"partial({', '.join([f'self._fleet.{method.name}', *_arguments(method.args)])})"
    body = f"return await self._call({call})"
    if streams:
        body = f"async for it in self._stream({call}):\n        yield it"
    documented = f'    """{ast.get_docstring(method, clean=False)}"""'
    return "\n".join([head, documented.replace("\n        ", "\n    "), f"    {body}"])


def _streams(method: ast.FunctionDef) -> bool:
    return method.returns is not None and ast.unparse(method.returns).startswith("Iterator[")


def _arguments(args: ast.arguments) -> Iterator[str]:
    """Yields the arguments of a call that passes on all that the method is given."""
    yield from (it.arg for it in args.args[1:])
    if args.vararg is not None:
        yield f"*{args.vararg.arg}"
    yield from (f"{it.arg}={it.arg}" for it in args.kwonlyargs)
    if args.kwarg is not None:
        yield f"**{args.kwarg.arg}"


def _imports_for(twins: Iterable[ast.FunctionDef]) -> list[str]:
    """Returns a line for each name in their annotations and defaults."""
    wanted: set[str] = {"AsyncIterator"}
    for method in twins:
        parts = [method.returns, *ast.walk(method.args)]
        names = (node for part in parts if part is not None for node in ast.walk(part))
        wanted |= {it.id for it in names if isinstance(it, ast.Name)}
    known = {"AsyncIterator": "collections.abc"}
    for owner in Fleet.__mro__:
        if issubclass(owner, FleetBase):
            known |= _names_of(owner.__module__, _tree_of(owner))
    wanted.discard("Iterator")  # an AsyncIterator in the twin
    return sorted(f"from {known[it]} import {it}" for it in wanted if it in known)


def _names_of(module: str, tree: ast.Module) -> dict[str, str]:
    """Returns the module of each name that a source imports or defines."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {it.name: node.module for it in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = module
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = module
    return found


def _signature_of(method: ast.FunctionDef) -> str:
    args = ast.unparse(method.args).removeprefix("self").removeprefix(", ")
    returned = ast.unparse(method.returns) if method.returns is not None else "None"
    text = _format(f"def {method.name}({args}) -> {returned}: ...\n")
    return text.strip().removesuffix(": ...")


def _format(source: str) -> str:
    ruff = str(Path(sys.executable).parent / "ruff")
    for words in (["check", "--fix", "-q", "--select", "I"], ["format", "-q"]):
        done = subprocess.run(
            [ruff, *words, "--stdin-filename", str(TWIN), "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        source = done.stdout
    return source
