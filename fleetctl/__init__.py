"""fleetctl: declarative infrastructure for AI batch work.

The names of the Python API are found when they are asked for: the command line imports this too,
and must not load what it does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.interpreter import (
        DaytonaInterpreter,
        ExecutionProfile,
        FinalOutput,
        Interpreter,
        InterpreterError,
        ModalInterpreter,
        as_dict,
    )

__all__ = [
    "DaytonaInterpreter",
    "ExecutionProfile",
    "FinalOutput",
    "Interpreter",
    "InterpreterError",
    "ModalInterpreter",
    "as_dict",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("fleetctl.interpreter"), name)
    raise AttributeError(f"module `fleetctl` has no attribute `{name}`")
