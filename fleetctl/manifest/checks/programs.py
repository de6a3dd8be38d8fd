"""Finds Python text that no task could run, parameters that it could not use, and metrics that its
trials can never print, before a sandbox is paid for.

A mistake if the Python that runs it is known to be no newer than this one, else a doubt.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.common.program import tree_of
from fleetctl.guest.task.helpers import BUFFER_HELPERS, STORAGE_HELPERS, TEXT_HELPERS
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.problems import shorten_text
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.metrics import NAME, STEP
from fleetctl.specs.values.scalars import Spec

_FILE = re.compile(r"[\w./-]+\.py(?:\s.*)?")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass)
OURS = sys.version_info[:2]
TREES_KEPT = 16
SHARED_CHARS_MAX = 16_384  # its tree is about a megabyte

SUBMIT = "SUBMIT"
ALL = "params"  # the mapping of all parameters
HELPERS = frozenset(
    {SUBMIT, "report", *STORAGE_HELPERS, *BUFFER_HELPERS, *(it.__name__ for it in TEXT_HELPERS)}
)

PATH: Path = ("spec", "template", "metrics", "regex")


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
        for submit, after in _find_dead_statements(tree):
            message = f": line {after.lineno} is never run: the SUBMIT of line {submit.lineno}"
            hint = "submit everything with one SUBMIT, as the last statement"
            message += " ends the task"
            yield Finding(path, message, hint, Severity.DOUBT, row=after.lineno)
            break  # the first one is enough


def _find_dead_statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.stmt]]:
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
        return _parse_code(code)
    return _parse_shared(code)


# The checks of one manifest parse its program one after the other.
@lru_cache(maxsize=TREES_KEPT)
def _parse_shared(code: str) -> ast.Module | SyntaxError | None:
    return _parse_code(code)


def _parse_code(code: str) -> ast.Module | SyntaxError | None:
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


def find_parameter_problems(spec: Spec) -> Iterator[Finding]:
    trees = [parse_program(code) for _, code in spec_parts.values_of(spec, "python")]
    programs = [tree for tree in trees if isinstance(tree, ast.Module)]
    if not programs:
        return
    read, made = _collect_names(programs)
    for path, name in spec_parts.list_parameters(spec):
        why, hint = _describe_fault(name, read, made)
        if why:
            yield _name_finding(path, name, why, hint)


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


def _name_finding(
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


def find_doubts(spec: SweepSpec) -> Iterator[Finding]:
    """Yields warnings: the metric may be reported otherwise, so this is not a mistake
    for certain.
    """
    if spec.template is None or spec.search.metric is None:
        return
    asked = spec.template.metrics
    wanted = spec.search.metric.name
    if asked is None or asked.regex is None or spec.template.python is not None:
        return
    names = re.compile(asked.regex).groupindex.keys() - {STEP}
    if not names or NAME in names or wanted in names:
        return
    text = ", ".join(f"`{it}`" for it in sorted(names))
    message = f" names {text}, and the search compares `{shorten_text(wanted)}`"
    hint = (
        f"write `(?P<{wanted}>...)`"
        if wanted.isidentifier()
        else "find its name too: `(?P<name>[\\w/.]+)=(?P<value>[-+.\\w]+)`"
    )
    yield Finding(PATH, message, f"{hint}, or fix `search.metric.name`", Severity.DOUBT)
