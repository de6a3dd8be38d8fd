"""Parses Python text into a tree, one text at a time.

CPython counts the depth of the tree for all parses together (3.11 to 3.11.8, 3.12 to 3.12.2): a
parse amid another one ends it in a SystemError, which concerns neither text. It gets in where the
garbage collector runs: by a finalizer that lets another thread go on, or whose own error is
printed, as CPython parses the lines of a traceback. So nothing is collected meanwhile.
"""

from __future__ import annotations

import ast
import gc
import threading
import warnings

# Statements that the grammar allows where the compiler does not.
_OUTSIDE = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Break, ast.Continue)
_alone = threading.Lock()


def tree_of(code: str) -> ast.Module:
    """Warnings of the parser aside. Raises SyntaxError; RecursionError and MemoryError for what is
    too deep, ValueError for a NUL.
    """
    with _alone, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = _parse_uncollected(code)
        if any(isinstance(it, _OUTSIDE) for it in ast.walk(tree)):
            compile(code, "<task>", "exec", dont_inherit=True)
    return tree


def _parse_uncollected(code: str) -> ast.Module:
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code, "<task>")
    finally:
        if collects:
            gc.enable()
