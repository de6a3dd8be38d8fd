"""dspy's RLM, and whatever of dspy runs code, on interpreters of fleetctl.

    import dspy, fleetctl.dspy

    rlm = dspy.RLM("context, query -> answer", interpreter_factory=fleetctl.dspy.factory())

Needs dspy 3.3 or newer: `pip install 'fleetctl[dspy]'`.
"""

from __future__ import annotations

from typing import Any

from fleetctl.interpreter import Interpreter
from fleetctl.interpreter.asking import rlm
from fleetctl.interpreter.interpreter import BaseInterpreter

__all__ = ["Factory", "factory"]


class Factory:
    """A factory of interpreters for dspy, which shuts each of them down. Any thread may call it."""

    def __init__(self, kind: type[BaseInterpreter], options: dict[str, Any]) -> None:
        self.execution_instructions = rlm.build_instructions(recursive=_has_recursion(options))
        self._kind = kind
        self._options = options

    def __call__(self) -> rlm.DspyBridge:
        return rlm.DspyBridge(self._kind(**self._options))


def factory(kind: type[BaseInterpreter] = Interpreter, **options: Any) -> Factory:
    """For `interpreter_factory=` of dspy's modules, or of `dspy.configure`.

    kind: `Interpreter`, `ModalInterpreter` or `DaytonaInterpreter`; options: its own, such as
    provider, volume_name or timeout. With sub_lm its code has rlm_query too, within the limits of
    these options; dspy's llm_query asks what dspy was given, within dspy's.
    """
    if issubclass(kind, Interpreter):
        options.setdefault("summarize_stdout", False)  # dspy cuts what its model reads
    return Factory(kind, options)


def _has_recursion(options: dict[str, Any]) -> bool:
    return options.get("sub_lm") is not None and options.get("max_depth", 1) > 0
