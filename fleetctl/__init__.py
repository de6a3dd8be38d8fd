"""fleetctl: declarative infrastructure for AI batch work.

The names of the Python API are found when they are asked for: the command line imports this too,
and must not load what it does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.client.fleet import Fleet, GoalMissed
    from fleetctl.client.manifests import (
        BatchJob,
        Budget,
        Endpoint,
        Function,
        Provider,
        Secret,
        Sweep,
        TrainingRun,
        Volume,
    )
    from fleetctl.interpreter import (
        DaytonaInterpreter,
        ExecutionProfile,
        FinalOutput,
        Interpreter,
        InterpreterError,
        ModalInterpreter,
        as_dict,
    )

_INTERPRETER = "fleetctl.interpreter"
_FLEET, _MANIFESTS = "fleetctl.client.fleet", "fleetctl.client.manifests"
_HOMES = {
    "BatchJob": _MANIFESTS,
    "Budget": _MANIFESTS,
    "DaytonaInterpreter": _INTERPRETER,
    "Endpoint": _MANIFESTS,
    "ExecutionProfile": _INTERPRETER,
    "FinalOutput": _INTERPRETER,
    "Fleet": _FLEET,
    "Function": _MANIFESTS,
    "GoalMissed": _FLEET,
    "Interpreter": _INTERPRETER,
    "InterpreterError": _INTERPRETER,
    "ModalInterpreter": _INTERPRETER,
    "Provider": _MANIFESTS,
    "Secret": _MANIFESTS,
    "Sweep": _MANIFESTS,
    "TrainingRun": _MANIFESTS,
    "Volume": _MANIFESTS,
    "as_dict": _INTERPRETER,
}
__all__ = [
    "BatchJob",
    "Budget",
    "DaytonaInterpreter",
    "Endpoint",
    "ExecutionProfile",
    "FinalOutput",
    "Fleet",
    "Function",
    "GoalMissed",
    "Interpreter",
    "InterpreterError",
    "ModalInterpreter",
    "Provider",
    "Secret",
    "Sweep",
    "TrainingRun",
    "Volume",
    "as_dict",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module `fleetctl` has no attribute `{name}`")
