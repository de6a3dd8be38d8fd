"""Names of parameters that a Python program could not use, or that take away what it calls."""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Iterator

from fleetctl.guest.task.task import BUFFER_HELPERS, STORAGE_HELPERS, TEXT_HELPERS
from fleetctl.manifest.checks import works
from fleetctl.manifest.checks.programs import parsed
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import Path, shortened
from fleetctl.specs.values.scalars import Spec

SUBMIT = "SUBMIT"
ALL = "params"  # the mapping of all parameters
HELPERS = frozenset(
    {SUBMIT, "report", *STORAGE_HELPERS, *BUFFER_HELPERS, *(it.__name__ for it in TEXT_HELPERS)}
)


def wrong(spec: Spec) -> Iterator[Finding]:
    trees = [parsed(code) for _, code in works.values_of(spec, "python")]
    programs = [tree for tree in trees if isinstance(tree, ast.Module)]
    if not programs:
        return
    read, made = _names(programs)
    for path, name in works.parameters(spec):
        why, hint = _fault(name, read, made)
        if why:
            yield _finding(path, name, why, hint)


def _fault(name: str, read: frozenset[str], made: frozenset[str]) -> tuple[str, str]:
    """What is wrong with the name, and what would be right; both empty where nothing is.

    read: names that the programs read; made: those that they give a value themselves.
    """
    if name == SUBMIT:
        return "takes the place of `SUBMIT(...)`, which hands in the result", "name it otherwise"
    if keyword.iskeyword(name) and ALL not in read:
        return (
            "is a word of Python's own, so no program can read it as a variable",
            f'name it otherwise, such as `{name}_`, or read it as `params["{name}"]`',
        )
    if name.startswith("__") and name.endswith("__"):
        return "is a name of Python's own", "name it otherwise"
    what = ""
    if name in read and name not in made:
        if name in HELPERS:
            what = f"takes the place of the helper `{name}(...)`, which python calls"
        elif hasattr(builtins, name):
            what = f"takes the place of Python's own `{name}(...)`, which python calls"
    return what, f"name it otherwise, such as `{name}_value`"


def _finding(path: Path, name: str, why: str, hint: str) -> Finding:
    block = path[:3]
    return Finding(path, block, f": the parameter `{shortened(name)}` {why}", hint, at_key=True)


def _names(programs: list[ast.Module]) -> tuple[frozenset[str], frozenset[str]]:
    """Names that are called (and `params`, when it is read at all), and those that are made."""
    read: set[str] = set()
    made: set[str] = set()
    for node in (it for tree in programs for it in ast.walk(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            read.add(node.func.id)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                made.add(node.id)
            elif node.id == ALL:
                read.add(ALL)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            made.add(node.name)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).partition(".")[0])
    return frozenset(read), frozenset(made)
