"""Warnings about Python text that no task could run: found before a sandbox is paid for.

A warning and no error: an image may have a newer Python than the one that reads the manifest.
"""

from __future__ import annotations

import ast
import sys
import warnings as python_warnings
from collections.abc import Iterator
from functools import lru_cache

from specs.scalars import Spec
from specs.template import Template
from specs.trainingrun import TrainingRunSpec


def warnings(spec: Spec, where: str) -> Iterator[str]:
    """One sentence for each text that this Python cannot compile. where: file and line."""
    for path, code in _texts(spec):
        fault = _fault(code)
        if fault is not None:
            ours = f"{sys.version_info.major}.{sys.version_info.minor}"
            yield (
                f"{where}: {path}, line {fault.lineno}: {fault.msg}; "
                f"every attempt would fail, unless its Python is newer than {ours}"
            )


def _texts(spec: Spec) -> Iterator[tuple[str, str]]:
    template = getattr(spec, "template", None)
    if isinstance(template, Template) and template.python is not None:
        yield "spec.template.python", template.python
    if isinstance(spec, TrainingRunSpec):
        for number, stage in enumerate(spec.stages):
            if stage.python is not None:
                yield f"spec.stages[{number}].python", stage.python


@lru_cache(maxsize=16)  # many manifests of one file have the same program
def _fault(code: str) -> SyntaxError | None:
    try:
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")
            compile(code, "<task>", "exec", flags=ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError, ValueError):
        return None  # too deep for the parser, or a NUL: the run itself will tell
    return None
