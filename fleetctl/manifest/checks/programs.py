"""Finds Python text that no task could run, before a sandbox is paid for.

A mistake if the Python that runs it is known to be no newer than this one, else a doubt.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.common.program import tree_of
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.problems import shorten_text
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.values.scalars import Spec

_FILE = re.compile(r"[\w./-]+\.py(?:\s.*)?")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)
OURS = sys.version_info[:2]
TREES_KEPT = 16
SHARED_CHARS_MAX = 16_384  # its tree is about a megabyte


def find_problems(spec: Spec) -> Iterator[Finding]:
    for path, code in spec_parts.values_of(spec, "python"):
        if _FILE.fullmatch(code.strip()):
            name = shorten_text(code.strip())
            message = f" is `{name}`, the name of a file; `python` holds the program itself"
            hint = (
                f"write `command: [python, {', '.join(name.split())}]`, and `source` for the file"
            )
            yield Finding(path, message, hint)
    newer = _may_be_newer(spec)
    ours = ".".join(map(str, OURS))
    for path, fault, line in _find_syntax_errors(spec):
        row = fault.lineno or 1
        message = f" is not valid Python: line {row}: {fault.msg}"
        hint = f"the line is `{shorten_text(line.strip())}`"
        if newer:
            hint = f"every attempt would fail, unless its Python is newer than {ours}"
        yield Finding(path, message, hint, Severity.DOUBT if newer else Severity.NEVER, row=row)


def find_unreachable_code(spec: Spec) -> Iterator[Finding]:
    """Yields a finding for code behind a SUBMIT: it ends the task, though its name suggests
    otherwise.
    """
    for path, code in spec_parts.values_of(spec, "python"):
        tree = parse_program(code)
        if not isinstance(tree, ast.Module):
            continue
        for submit, after in _behind_submits(tree):
            message = f": line {after.lineno} is never run: the SUBMIT of line {submit.lineno}"
            hint = "submit everything with one SUBMIT, as the last statement"
            message += " ends the task"
            yield Finding(path, message, hint, Severity.DOUBT, row=after.lineno)
            break  # the first one is enough


def _behind_submits(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Yields (the SUBMIT, the statement behind it) in each block that has such."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for statement, after in pairwise(block):
                if _is_submit(statement) and not isinstance(after, _DEFINITIONS):
                    yield statement, after


def _is_submit(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "SUBMIT"
    )


def parse_program(code: str) -> ast.Module | SyntaxError | None:
    """Parses a program; returns None for a text that the parser cannot hold: the run itself will
    report it. Callers only read the tree, which they may share.
    """
    if len(code) > SHARED_CHARS_MAX:
        return _parse(code)
    return _parse_shared(code)


# The checks of one manifest parse its program one after the other.
@lru_cache(maxsize=TREES_KEPT)
def _parse_shared(code: str) -> ast.Module | SyntaxError | None:
    return _parse(code)


def _parse(code: str) -> ast.Module | SyntaxError | None:
    try:
        return tree_of(code)
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError, ValueError):
        return None  # too deep, or a NUL


def _find_syntax_errors(spec: Spec) -> Iterator[tuple[Path, SyntaxError, str]]:
    """Yields syntax errors, each with the line that is wrong."""
    for path, code in spec_parts.values_of(spec, "python"):
        found = parse_program(code)
        if isinstance(found, SyntaxError):
            lines = code.splitlines() or [""]
            yield path, found, lines[min(found.lineno or 1, len(lines)) - 1]


def _may_be_newer(spec: Spec) -> bool:
    """Returns True if its Python may be newer than this one, which reads the manifest."""
    template = spec_parts.template_of(spec)
    if template is not None and template.is_function and template.image is None:
        return True  # its Function has the image
    return any(_brings_a_newer(image) for _, image in spec_parts.list_images(spec))


def _brings_a_newer(image: Image) -> bool:
    if image.registry is not None or image.snapshot is not None:
        return True  # its content is unknown
    wanted = tuple(map(int, (image.python or "0").split(".")[:2]))
    return wanted > OURS
