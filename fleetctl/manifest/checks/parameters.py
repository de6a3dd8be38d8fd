"""Finds names of parameters that a Python program could not use, or that hide its own functions."""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path
from fleetctl.guest.task.task import BUFFER_HELPERS, STORAGE_HELPERS, TEXT_HELPERS
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.checks.programs import parse_program
from fleetctl.manifest.problems import shorten_text
from fleetctl.specs.values.scalars import Spec

SUBMIT = "SUBMIT"
ALL = "params"  # the mapping of all parameters
HELPERS = frozenset(
    {SUBMIT, "report", *STORAGE_HELPERS, *BUFFER_HELPERS, *(it.__name__ for it in TEXT_HELPERS)}
)


def find_problems(spec: Spec) -> Iterator[Finding]:
    trees = [parse_program(code) for _, code in spec_parts.values_of(spec, "python")]
    programs = [tree for tree in trees if isinstance(tree, ast.Module)]
    if not programs:
        return
    read, made = _collect_names(programs)
    for path, name in spec_parts.list_parameters(spec):
        why, hint = _describe_fault(name, read, made)
        if why:
            yield _make_finding(path, name, why, hint)


def _describe_fault(
    name: str,
    read: frozenset[str],
    made: frozenset[str],
) -> tuple[str, str]:
    """Returns the fault of the name, and the fix; both empty for a good name.

    read: names that the programs read; made: names to which they assign a value themselves.
    """
    if name == SUBMIT:
        return "replaces `SUBMIT(...)`, which submits the result", "name it otherwise"
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
            what = f"replaces the helper `{name}(...)`, which python calls"
        elif hasattr(builtins, name):
            what = f"replaces Python's own `{name}(...)`, which python calls"
    return what, f"name it otherwise, such as `{name}_value`"


def _make_finding(
    path: Path,
    name: str,
    why: str,
    hint: str,
) -> Finding:
    block = path[:3]
    return Finding(
        path, f": the parameter `{shorten_text(name)}` {why}", hint, at_key=True, about=block
    )


def _collect_names(programs: list[ast.Module]) -> tuple[frozenset[str], frozenset[str]]:
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
