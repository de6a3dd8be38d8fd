"""The Python API: an interpreter whose code runs in a sandbox, and keeps its state there.

    with Interpreter(provider="local") as interpreter:
        result = interpreter.execute("SUBMIT(total=sum(range(1000)))")
    print(result.total)

Every method has an async twin. Any number of interpreters may be used from any threads at once;
executions of an interpreter follow one another.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fleetctl.common.errors import UsageError
from fleetctl.guest.library.fleetctl_llm_budget import RecursionBudget
from fleetctl.interpreter import loop
from fleetctl.interpreter.asking.model_server import ModelServer
from fleetctl.interpreter.asking.questions import Questions
from fleetctl.interpreter.asking.recursion import Bear, Recursion
from fleetctl.interpreter.options import ChildPlacement, ExecutionProfile, InterpreterOptions
from fleetctl.interpreter.result import FinalOutput
from fleetctl.interpreter.session import conversation, interpreter_record
from fleetctl.interpreter.session.execute_call import Callback, ExecuteRequest, ExecuteResult
from fleetctl.interpreter.session.interpreter_record import InterpreterRecord
from fleetctl.interpreter.session.runtime import InterpreterRuntime, Opener, Tool

RESERVED_NAMES = ("SUBMIT", "print")
Self = TypeVar("Self", bound="BaseInterpreter")
Profile = ExecutionProfile | str


class BaseInterpreter:
    """The methods that all interpreters share; the constructors are in provider_interpreters.py."""

    def __init__(
        self,
        options: InterpreterOptions,
        profile: ExecutionProfile,
        sub_lm: object | None = None,
        endpoint: str | None = None,
    ) -> None:
        if sub_lm is None and endpoint is not None:
            sub_lm = ModelServer(endpoint, timeout_s=options.llm_call_timeout_s)
        self._set_up(options, profile, _build_recursion(options, sub_lm))

    def _set_up(
        self,
        options: InterpreterOptions,
        profile: ExecutionProfile,
        recursion: Recursion | None,
        opener: Opener | None = None,
        parent: Callable[[], str] = lambda: "",
    ) -> None:
        self._options = options
        self._recursion = recursion
        self._tools: dict[str, Tool] = {}
        asking = {} if recursion is None else dict(recursion.tools())
        # A user's function takes precedence over ours of the same name.
        tools = ChainMap(self._tools, asking)
        record = InterpreterRecord(options, recursion, parent)
        self._runtime = InterpreterRuntime(
            options,
            tools,
            recursion,
            opener,
            record,
        )
        if recursion is not None:
            recursion.bear = _child_factory(options, self._runtime)
        interpreter_record.remember_runtime(self._runtime)
        # It is unreachable for any caller, so only we can end it.
        weakref.finalize(self, interpreter_record.abandon_runtime, self._runtime).atexit = False
        self.output_fields: Sequence[Mapping[str, Any]] | None = None
        self.execution_event_callback: Callback | None = None
        self.default_execution_profile = profile

    @property
    def provider(self) -> str:
        return self._options.provider

    @property
    def llm_usage(self) -> list[dict[str, Any]]:
        """Returns the usage of the language model by code and all queries below it, a mapping for
        each depth that used any (0 is this interpreter's own code): `depth`, `calls`, `tokens`,
        `usd`, `unpriced` (calls whose price is unknown; `usd` is without them), `sandboxes`.
        """
        if self._recursion is None:
            return []
        return self._recursion.usage()

    @property
    def tools(self) -> dict[str, Tool]:
        """Functions of this process that code may call by name, from any of its threads.

        Arguments and values travel as JSON; a value that JSON cannot hold becomes its text. An
        error is a RuntimeError in the code. A function that several threads call at once must allow
        that.
        """
        return self._tools

    @tools.setter
    def tools(self, value: Mapping[str, Tool]) -> None:
        _check_names(value)
        given = dict(value)
        self._tools.clear()
        self._tools.update(given)

    def start(self) -> None:
        """Makes the sandbox, unless it exists. Raises FleetctlError."""
        loop.run(self._runtime.start())

    def execute(
        self,
        code: str,
        variables: Mapping[str, Any] | None = None,
        *,
        execution_profile: Profile | None = None,
    ) -> str | FinalOutput:
        """Runs code in the sandbox, with `variables` set as globals before it; globals stay.

        Returns a FinalOutput when the code called SUBMIT, else the text that it printed, with its
        stderr and the error that ended it. Errors of the code are never raised.

        Raises InterpreterError when the sandbox ended or the code took longer than execute_timeout.
        The state is lost then. Code is never run twice; the next call starts a new sandbox.
        """
        return self.executed(code, variables, execution_profile).value

    def executed(
        self,
        code: str,
        variables: Mapping[str, Any] | None = None,
        execution_profile: Profile | None = None,
    ) -> ExecuteResult:
        """Runs `execute`; also returns true if an error of the code ended it."""
        return loop.run(self._runtime.execute(self._work(code, variables, execution_profile)))

    def shutdown(self) -> None:
        """Ends the sandbox, confirmed. Waits for an execution that goes on. Idempotent."""
        loop.run(self._runtime.shutdown())

    def commit(self) -> None:
        """Makes the volume keep all files written so far. Without a volume it does nothing.

        Raises InterpreterError when it cannot, as always with a volume of Modal's version 1: other
        readers see its changes after shutdown().
        """
        loop.run(self._runtime.commit())

    def reload(self) -> None:
        """Loads the changes that other writers made to the volume. Without a volume it does
        nothing.
        """
        loop.run(self._runtime.reload())

    def upload_to_volume(
        self,
        local_dirs: Mapping[str, str] | None = None,
        local_files: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """Copies local directories and files ({local path: path on the volume}) to the volume.

        A path that exists there is left alone. Returns the paths that were written. Raises
        ValueError without a volume, FileNotFoundError, InterpreterError.
        """
        return loop.run(self._upload(local_dirs or {}, local_files or {}))

    async def astart(self) -> None:
        await loop.join_work(self._runtime.start())

    async def aexecute(
        self,
        code: str,
        variables: Mapping[str, Any] | None = None,
        *,
        execution_profile: Profile | None = None,
    ) -> str | FinalOutput:
        """Runs `execute` for a coroutine. When it is cancelled, the code is interrupted."""
        work = self._work(code, variables, execution_profile)
        return (await loop.join_work(self._runtime.execute(work))).value

    async def ashutdown(self) -> None:
        await loop.join_work(self._runtime.shutdown())

    async def acommit(self) -> None:
        await loop.join_work(self._runtime.commit())

    async def areload(self) -> None:
        await loop.join_work(self._runtime.reload())

    async def aupload_to_volume(
        self,
        local_dirs: Mapping[str, str] | None = None,
        local_files: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        return await loop.join_work(self._upload(local_dirs or {}, local_files or {}))

    async def retire(self) -> None:
        """Ends the sandbox at once and for ever. On the shared loop."""
        await self._runtime.retire()

    @contextlib.contextmanager
    def execution_profile(self: Self, profile: Profile) -> Iterator[Self]:
        """Executions inside the block have this profile."""
        before = self.default_execution_profile
        self.default_execution_profile = ExecutionProfile(profile)
        try:
            yield self
        finally:
            self.default_execution_profile = before

    def __enter__(self: Self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()

    async def __aenter__(self: Self) -> Self:
        await self.astart()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.ashutdown()

    def __repr__(self) -> str:
        state = "started" if self._runtime.started else "not started"
        return f"<{type(self).__name__} on {self.provider}, {state}>"

    def _work(
        self,
        code: str,
        variables: Mapping[str, Any] | None,
        profile: Profile | None,
    ) -> ExecuteRequest:
        """Builds the request of an execution. Raises UsageError for names that Python does not
        allow.
        """
        _check_names(self._tools)
        given = dict(variables or {})
        for name in given:
            if not isinstance(name, str) or not name.isidentifier():
                raise UsageError(f"variable `{name}` is not a name that Python allows")
        fields = tuple(str(one["name"]) for one in self.output_fields or () if one.get("name"))
        return ExecuteRequest(
            code=code,
            variables=given,
            fields=fields,
            profile=ExecutionProfile(profile or self.default_execution_profile).value,
            callback=self.execution_event_callback,
        )

    async def _upload(
        self, local_dirs: Mapping[str, str], local_files: Mapping[str, str]
    ) -> tuple[str, ...]:
        if not self._options.volume:
            raise ValueError("there is no volume to upload to; pass volume_name")
        wanted = conversation.list_uploads(local_dirs, local_files)
        return await self._runtime.use(lambda talk: conversation.upload_files(talk, wanted))


def _build_recursion(options: InterpreterOptions, sub_lm: object | None) -> Recursion | None:
    """Returns the queries that code may send to the host; None without a language model. Raises
    UsageError.
    """
    if sub_lm is None:
        return None
    budget = RecursionBudget(
        calls=options.llm_calls_max,
        sandboxes=options.sandboxes_max,
        depth_max=options.depth_max,
        tokens=options.llm_tokens_max,
        usd=options.llm_usd_max,
        timeout_s=options.rlm_timeout_s,
    )
    questions = Questions(
        sub_lm,
        budget=budget,
        timeout_s=options.llm_call_timeout_s,
        prices=options.llm_prices,
    )
    return Recursion(options, questions, budget)


def _child_factory(options: InterpreterOptions, runtime: InterpreterRuntime) -> Bear:
    """Returns a maker of interpreters below one; holds its runtime alone, so that the parent is not
    kept alive.
    """

    def bear(place: ChildPlacement, recursion: Recursion) -> BaseInterpreter:
        within = place is ChildPlacement.CONTEXT
        child = BaseInterpreter.__new__(BaseInterpreter)
        child._set_up(
            # The reader of the output cuts it; and a context waits for its model, which is no
            # idleness.
            replace(
                options,
                summary_threshold=None,
                idle_timeout_s=None if within else options.idle_timeout_s,
            ),
            ExecutionProfile.RLM_DELEGATE,
            recursion,
            runtime.open_context if within else None,
            runtime.sandbox,
        )
        return child

    return bear


def _check_names(tools: Mapping[str, Tool]) -> None:
    """Raises ValueError for a tool that code could not call."""
    for name, tool in tools.items():
        if name in RESERVED_NAMES or not name.isidentifier():
            raise ValueError(
                f"a tool cannot be called `{name}`; any other name that Python allows can"
            )
        if not callable(tool):
            raise ValueError(f"tool `{name}` is a {type(tool).__name__}, not a function")
