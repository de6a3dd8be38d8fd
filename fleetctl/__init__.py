"""fleetctl: declarative infrastructure for AI batch work.

The names of the Python API are found when they are asked for: the command line imports this too,
and must not load what it does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.client.async_fleet import AsyncFleet
    from fleetctl.client.calls import RemoteError
    from fleetctl.client.executor import Executor
    from fleetctl.client.fleet import Fleet
    from fleetctl.client.fleet_base import TimedOut
    from fleetctl.client.manifests import (
        BatchJob,
        Budget,
        Endpoint,
        Function,
        Notifier,
        Policy,
        Provider,
        Queue,
        Schedule,
        Secret,
        Settings,
        Source,
        Sweep,
        TrainingRun,
        Volume,
    )
    from fleetctl.client.waits import GoalMissed
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
_HOMES = {
    "AsyncFleet": "fleetctl.client.async_fleet",
    "DaytonaInterpreter": _INTERPRETER,
    "ExecutionProfile": _INTERPRETER,
    "Executor": "fleetctl.client.executor",
    "FinalOutput": _INTERPRETER,
    "Fleet": "fleetctl.client.fleet",
    "GoalMissed": "fleetctl.client.waits",
    "Interpreter": _INTERPRETER,
    "InterpreterError": _INTERPRETER,
    "ModalInterpreter": _INTERPRETER,
    "RemoteError": "fleetctl.client.calls",
    "TimedOut": "fleetctl.client.fleet_base",
    "as_dict": _INTERPRETER,
}
__all__ = [
    "AsyncFleet",
    "BatchJob",
    "Budget",
    "DaytonaInterpreter",
    "Endpoint",
    "ExecutionProfile",
    "Executor",
    "FinalOutput",
    "Fleet",
    "Function",
    "GoalMissed",
    "Interpreter",
    "InterpreterError",
    "ModalInterpreter",
    "Notifier",
    "Policy",
    "Provider",
    "Queue",
    "RemoteError",
    "Schedule",
    "Secret",
    "Settings",
    "Source",
    "Sweep",
    "TimedOut",
    "TrainingRun",
    "Volume",
    "as_dict",
]


def __getattr__(name: str) -> object:
    from fleetctl.specs.kinds.registry import KINDS

    if name in _HOMES or name in KINDS:
        from importlib import import_module

        try:
            if name in KINDS:
                return import_module("fleetctl.client.manifests").class_of(name)
            return getattr(import_module(_HOMES[name]), name)
        except ImportError as error:
            from fleetctl.common.install import old_dependency

            why, fix = old_dependency()
            if not why:
                raise
            raise ImportError(f"{why}: {fix}") from error
    raise AttributeError(f"module `fleetctl` has no attribute `{name}`")
