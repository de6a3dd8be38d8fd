"""dspy's RLM on an interpreter of ours: the loop of a recursive query.

Used by recursion.py and by fleetctl/dspy.py. dspy is imported when it is needed, and here alone.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fleetctl.common.install import install_hint
from fleetctl.guest.library.fleetctl_llm_queries import (
    RECURSIVE,
    RecursiveQuery,
    counted_model,
    messages_of,
    run_loop,
)
from fleetctl.interpreter.asking.model_server import ModelServer
from fleetctl.interpreter.asking.questions import Questions
from fleetctl.interpreter.result import FinalOutput, InterpreterError, read_submitted

if TYPE_CHECKING:
    from fleetctl.interpreter.session.execute_call import ExecuteResult

ANSWERED_HERE = ("llm_query", "llm_query_batched")


class CodeRunner(Protocol):
    """The methods of an interpreter that the loop calls."""

    output_fields: Sequence[Mapping[str, Any]] | None

    @property
    def tools(self) -> dict[str, Any]: ...
    def start(self) -> None: ...
    def executed(self, code: str, variables: Mapping[str, Any] | None = None) -> ExecuteResult: ...
    def shutdown(self) -> None: ...


def check_installed() -> None:
    """Raises RuntimeError with the way to dspy."""
    if importlib.util.find_spec("dspy") is None:
        raise RuntimeError(
            "a recursive query is dspy's RLM, and dspy is not installed beside fleetctl:"
            f" `{install_hint('dspy')}`; llm_query needs nothing more"
        )


def answer_query(
    runner: CodeRunner,
    questions: Questions,
    *,
    query: str,
    context: str,
    calls: int,
    recursive: bool,
) -> str:
    """Runs the loop to its end. calls: of the model that are left for it and its code.

    Raises RuntimeError for any failure. Blocks; it shuts the runner down.
    """
    import dspy

    model = _count_calls(questions)
    interpreters = _SingleUse(runner, build_instructions(recursive=recursive))
    try:
        return run_loop(dspy, RecursiveQuery(query, context), model, calls, interpreters)
    except Exception as error:  # of dspy and of any model library
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def build_instructions(*, recursive: bool) -> str:
    """Returns the instructions for the model about the environment of its code."""
    text = "Code runs as Python in a sandbox; globals, imports and functions persist."
    return text + (RECURSIVE if recursive else "")


class DspyBridge:
    """One of our interpreters as dspy's CodeInterpreter.

    ours: names of tools that stay the interpreter's own, even if dspy replaces them.
    """

    def __init__(self, runner: CodeRunner, ours: Sequence[str] = ()) -> None:
        self._runner = runner
        self._ours = ours

    @property
    def tools(self) -> dict[str, Any]:
        return self._runner.tools

    @property
    def output_fields(self) -> Sequence[Mapping[str, Any]] | None:
        return self._runner.output_fields

    @output_fields.setter
    def output_fields(self, value: Sequence[Mapping[str, Any]] | None) -> None:
        self._runner.output_fields = value

    def start(self) -> None:
        from dspy.primitives.code_interpreter import CodeInterpreterError

        try:
            self._runner.start()
        except InterpreterError as error:
            raise CodeInterpreterError(str(error)) from error

    def execute(self, code: str, variables: Mapping[str, Any] | None = None) -> Any:
        """Returns dspy's FinalOutput, or the printed text. Raises dspy's CodeExecutionError when
        the code failed, its CodeInterpreterError when the sandbox did.
        """
        from dspy.primitives import code_interpreter as dspys

        tools = self._runner.tools
        for name in self._ours:
            tools.pop(name, None)
        tools.update({name: _positional_tool(tool) for name, tool in tools.items()})
        try:
            executed = self._runner.executed(code, variables)
        except InterpreterError as error:
            raise dspys.CodeInterpreterError(str(error)) from error
        if isinstance(executed.value, FinalOutput):
            return dspys.FinalOutput(read_submitted(executed.value))
        if executed.failed:
            # dspy writes `[Error] ` before it.
            raise dspys.CodeExecutionError(executed.value.strip().removeprefix("[Error] "))
        return executed.value

    def shutdown(self) -> None:
        self._runner.shutdown()


def _positional_tool(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Allows positional arguments: dspy's wrapping of a tool takes keywords alone, and models write
    `tool("...")`.
    """
    if "__signature__" not in getattr(tool, "__dict__", {}):
        return tool
    signature = inspect.signature(tool)

    def call(*args: Any, **named: Any) -> Any:
        return tool(**(signature.bind(*args, **named).arguments if args else named))

    return call


class _SingleUse:
    """The interpreter of a loop. Sub-agents that its code makes with dspy get no interpreter."""

    def __init__(self, runner: CodeRunner, execution_instructions: str) -> None:
        self.execution_instructions = execution_instructions
        self._left = [runner]

    def __call__(self) -> DspyBridge:
        if not self._left:
            raise RuntimeError("dspy.RLM cannot be used in a recursive query; use rlm_query")
        return DspyBridge(self._left.pop(), ANSWERED_HERE)


def _count_calls(questions: Questions) -> Any:
    """Returns the language model of `questions` as one of dspy's; each call is counted there."""
    import dspy

    model = questions.model

    def ask(prompt: str | None = None, **named: Any) -> Any:
        if isinstance(model, dspy.BaseLM):
            return questions.raw(prompt, **named)
        messages = messages_of(prompt, named)
        if isinstance(model, ModelServer):
            return [questions.raw(messages=messages)]
        return [questions.query(_join_messages(messages))]

    return counted_model(dspy, str(getattr(model, "model", "fleetctl")), ask)


def _join_messages(messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns a conversation as one prompt, for a model that takes a text."""
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"[{one['role']}]\n{one['content']}" for one in messages)
