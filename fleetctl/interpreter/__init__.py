"""The Python API: interpreters whose code runs in a sandbox of a provider and keeps its state.

`from fleetctl import ...` brings the public names; fleetctl/providers/contract/sandbox_access.py
is what a provider implements for them.
"""

from __future__ import annotations

from fleetctl.interpreter.options import ExecutionProfile
from fleetctl.interpreter.provider_interpreters import (
    DaytonaInterpreter,
    Interpreter,
    ModalInterpreter,
)
from fleetctl.interpreter.result import FinalOutput, InterpreterError, as_dict

__all__ = [
    "DaytonaInterpreter",
    "ExecutionProfile",
    "FinalOutput",
    "Interpreter",
    "InterpreterError",
    "ModalInterpreter",
    "as_dict",
]
