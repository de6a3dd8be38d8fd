"""The SDK is imported by a thread, while the loop goes on and may come to need a part of it. Its
modules import each other in circles: begun at two ends at once, it stays broken in that process.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fleetctl.common.program import tree_of
from fleetctl.providers import modal as provider

# A thread has begun with the package when the main thread comes to need our reader of answers.
AT_ONCE = """
import importlib, sys, threading

reached, go_on = threading.Event(), threading.Event()

class Pause:
    def find_spec(self, name, path=None, target=None):
        if name == "modal" and not reached.is_set():
            reached.set()
            go_on.wait(0.5)

sys.meta_path.insert(0, Pause())
failures = []
def load():
    try:
        importlib.import_module("modal")
    except Exception as error:
        failures.append(error)
thread = threading.Thread(target=load)
thread.start()
assert reached.wait(300)
from fleetctl.providers.modal.functions import plain_pickle
thread.join()
assert not failures, failures
assert callable(plain_pickle.poll_output.aio) and sys.modules["modal"].Function
"""


def test_a_part_of_the_sdk_that_is_needed_while_it_is_imported_waits_for_the_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_whoever_imports_a_part_of_the_sdk_asks_for_the_package_first() -> None:
    assert provider.__file__ is not None
    found = [
        f"{path.name}:{line}"
        for path in sorted(Path(provider.__file__).parent.rglob("*.py"))
        for line in _unsafe(tree_of(path.read_text()))
    ]
    assert found == []


def _unsafe(module: ast.Module) -> Iterator[int]:
    """Lines that import `modal.x` where nothing above in the same scope or in the module's own has
    asked for `modal`; what only type checkers see does not count.
    """
    at_load = list(_imports(module.body))
    yield from _too_early(at_load, known=False)
    known = any(name == "modal" for name, _ in at_load)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _too_early(list(_imports(node.body)), known=known)


def _too_early(imports: list[tuple[str, int]], *, known: bool) -> Iterator[int]:
    for name, line in imports:
        known = known or name == "modal"
        if name.startswith("modal.") and not known:
            yield line


def _imports(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """(module, line) of each import in a scope, in order, not of those within."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif isinstance(node, ast.If | ast.With | ast.Try):
            yield from _imports(node.body)
