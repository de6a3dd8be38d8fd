"""The Python API: interpreters whose code runs in a sandbox of a provider and keeps its state.

`from fleetctl import ...` brings the public names; fleetctl/providers/contract/session.py is what a
provider implements for them.
"""

from __future__ import annotations

from fleetctl.interpreter.daytona import DaytonaInterpreter
from fleetctl.interpreter.interpreter_errors import InterpreterError
from fleetctl.interpreter.modal import Interpreter, ModalInterpreter
from fleetctl.interpreter.options import ExecutionProfile
from fleetctl.interpreter.result import FinalOutput, as_dict

__all__ = [
    "DaytonaInterpreter",
    "ExecutionProfile",
    "FinalOutput",
    "Interpreter",
    "InterpreterError",
    "ModalInterpreter",
    "as_dict",
]
