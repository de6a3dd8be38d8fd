"""The namespace of a session, in which pieces of code are executed, and SUBMIT in its two
manners.

Globals stay from one execution to the next. The session survives everything but the end of the
process: errors of code become text. SUBMIT takes the values that a task's SUBMIT takes, but keeps
NaN; a value without a rule is an ordinary error of the code that submits it, so that the session
survives it.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import pathlib
import subprocess
import sys
import time
from types import ModuleType
from typing import Any, Callable, Optional, Sequence

from fleetctl.guest.driver.channel import Capture, HostCalls
from fleetctl.guest.driver.checkout import CHECKOUT_HELPERS, Checkout, CountedBuffers, grep_by_regex
from fleetctl.guest.task.helpers import (
    BUFFER_HELPERS,
    STORAGE_HELPERS,
    TEXT_HELPERS,
    Buffers,
    Storage,
)
from fleetctl.guest.task.plain import NoRule, escape_surrogates, key_text, replace_value
from fleetctl.guest.task.task import Submitted
from fleetctl.guest.task.text import find_wrong_field

MODAL, DAYTONA = "modal", "daytona"  # the two manners: names, SUBMIT and errors differ
NO_HELPERS = "ROOT_INTERLOCUTOR"  # the profile in which code may only compute and submit
MEMORY_FOLDERS = ("memory", "artifacts", "buffers", "meta")
# Names that code may call once the host has given a tool with that name.
OF_A_MODEL = (
    *("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched"),
    *("sub_rlm", "sub_rlm_batched"),
)
HISTORY_MAX = 1000  # executions that get_session_history() knows
HISTORY_CHARACTERS_MAX = 10_000  # of each text in it

Answer = dict[str, Any]

FINAL_BYTES_MAX = 8 * 1024 * 1024  # the limit of a line to the host; larger values go to a volume


class Execution:
    """One session's namespace. setup: the host's first message, with the session's directories."""

    def __init__(
        self,
        setup: dict[str, Any],
        calls: HostCalls,
        capture: Capture,
    ) -> None:
        self._daytona = setup["manner"] == DAYTONA
        self._calls = calls
        self._capture = capture
        self._profile = ""
        self._tools: set[str] = set()
        self._history: list[dict[str, Any]] = []
        self.running = 0  # the number of the execution that goes on
        # A module of its own, registered, so that pickling and `if __name__ == "__main__"` work.
        self._module = ModuleType("__main__")
        self._namespace = self._module.__dict__
        sys.modules["__main__"] = self._module
        storage = Storage(setup["mount"], setup["root"])
        helpers = self._for_daytona(setup) if self._daytona else _for_modal()
        for name in STORAGE_HELPERS[:2] if self._daytona else STORAGE_HELPERS:
            helpers[name] = _wrap_flushing(getattr(storage, name), setup["root"])
        for name in ("get_session_history", "get_last_execution", "log_execution"):
            helpers[name] = getattr(self, "_" + name)
        for name, helper in helpers.items():
            self._namespace[name] = self._gate_helper(name, helper)

    def run(self, order: dict[str, Any]) -> Answer:
        """Returns {"stdout", "stderr", "final": JSON text or None, "failed"} of an execution."""
        code = order["code"]
        submission = Submission(order["fields"])
        self._prepare(order, submission)
        complaint = self._execute(order["id"], code, submission)
        stdout, stderr = self._capture.take()
        text = submission.text
        if complaint and text is None:
            stderr += complaint
        if len(self._history) < HISTORY_MAX:
            self._log_execution(code, {"stdout": stdout, "stderr": stderr, "final": text})
        return {"stdout": stdout, "stderr": stderr, "final": text, "failed": bool(complaint)}

    def _prepare(self, order: dict[str, Any], submission: Submission) -> None:
        self._profile = order["profile"]
        self._namespace.update(order["variables"])
        self._namespace["SUBMIT"] = submission.by_name() if self._daytona else submission.by_any()
        for name in self._tools.difference(order["tools"]):
            self._namespace.pop(name, None)
        self._tools = set(order["tools"])
        for name in self._tools:
            self._namespace[name] = self._gate_helper(name, self._calls.function(name))
        for name in OF_A_MODEL:
            if name not in self._tools:
                self._namespace[name] = _without_model(name)

    def _execute(
        self,
        number: int,
        code: str,
        submission: Submission,
    ) -> str:
        """Runs the code; returns "" or the text of its error."""
        process = os.getpid()
        try:
            self.running = number
            try:
                self._run_code(code)
            finally:
                self.running = 0
                if os.getpid() != process:
                    sys.stdout.flush()
                    os._exit(0)  # a fork that reached its end must not answer for its parent
            if "Final" in self._namespace and not self._daytona:
                submission.offer(self._namespace["Final"])
        except Submitted:
            return ""
        except SystemExit as error:
            return "" if not error.code else self._complaint("SystemExit", error)
        except BaseException as error:
            return self._complaint(type(error).__name__, error)
        finally:
            if not self._daytona:
                self._namespace.pop("Final", None)
        return ""

    def _run_code(self, code: str) -> None:
        # Not with this file's own `from __future__`: the code decides about its annotations.
        compiled = compile(code, "<execute>", "exec", dont_inherit=True)
        exec(compiled, self._namespace)  # what a driver is for

    def _complaint(self, name: str, error: BaseException) -> str:
        try:
            message = str(error)
        except Exception as worse:  # an error's own text may raise anything
            message = f"(its text cannot be had: {type(worse).__name__})"
        if self._daytona:
            if message:
                return f"{name}: {message}"
            return name
        return f"[Error] {name}: {message}\n"

    def _gate_helper(self, name: str, helper: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the helper so that it refuses in the profile that has none."""

        @functools.wraps(helper)
        def gated(*args: Any, **kwargs: Any) -> Any:
            if self._profile == NO_HELPERS:
                raise RuntimeError(f"`{name}` cannot be used in the profile {NO_HELPERS}")
            return helper(*args, **kwargs)

        return gated

    def _for_daytona(self, setup: dict[str, Any]) -> dict[str, Callable[..., Any]]:
        """Returns the helpers; also sets the constants and enters the checkout."""
        workspace = setup["workspace"] or os.getcwd()
        os.makedirs(workspace, exist_ok=True)
        os.chdir(workspace)
        for name in MEMORY_FOLDERS if setup["root"] else ():
            os.makedirs(os.path.join(setup["root"], name), exist_ok=True)
        self._namespace["REPO_PATH"] = workspace
        self._namespace["MEMORY_ROOT"] = pathlib.Path(
            setup["root"] or setup.get("fresh") or setup["mount"]
        )
        checkout = Checkout(workspace)
        buffers = CountedBuffers()
        helpers = {helper.__name__: helper for helper in TEXT_HELPERS}
        helpers.update({name: getattr(checkout, name) for name in CHECKOUT_HELPERS})
        helpers.update({name: getattr(buffers, name) for name in BUFFER_HELPERS})
        helpers["grep"] = grep_by_regex
        return helpers

    def _log_execution(
        self,
        code: str,
        result: dict[str, Any],
        metadata: Optional[dict[str, Any]] = None,
    ) -> None:
        """Adds executions of elsewhere to the history; our own are there already."""
        short = {name: _shorten_value(value) for name, value in result.items()}
        entry = {
            "at": time.time(),
            "code": _shorten_value(code),
            **short,
            "metadata": metadata or {},
        }
        self._history.append(entry)

    def _get_session_history(self) -> list[dict[str, Any]]:
        """Returns earlier executions, oldest first: {"at", "code", "stdout", "stderr", "final"}."""
        return list(self._history)

    def _get_last_execution(self) -> Optional[dict[str, Any]]:
        if self._history:
            return self._history[-1]
        return None


def _for_modal() -> dict[str, Callable[..., Any]]:
    buffers = Buffers()
    helpers: dict[str, Callable[..., Any]] = {one.__name__: one for one in TEXT_HELPERS}
    helpers.update({name: getattr(buffers, name) for name in BUFFER_HELPERS})
    return helpers


def _wrap_flushing(helper: Callable[..., Any], root: str) -> Callable[..., Any]:
    """Wraps a writing helper so that a Modal volume keeps its files: a sync of the mount."""
    if not root or helper.__name__ not in ("save_to_volume", "workspace_write", "workspace_append"):
        return helper

    @functools.wraps(helper)
    def flushing(*args: Any, **kwargs: Any) -> Any:
        output = helper(*args, **kwargs)
        sync_directory(root)
        return output

    return flushing


def sync_directory(path: str) -> str:
    """Makes the file system keep written files; returns "" or why it did not.

    Runs the program that Modal documents as the commit of a volume; where an image has none, the
    system call behind it.
    """
    try:
        done = subprocess.run(["sync", path], capture_output=True, text=True)
        return done.stderr.strip() if done.returncode else ""
    except FileNotFoundError:
        return _sync_path(path)
    except OSError as error:
        return f"sync {path}: {error.strerror}"


def _sync_path(path: str) -> str:
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _without_model(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"`{name}` asks a language model, and this interpreter has none; give it one with"
            " sub_lm=..., or a function of that name:"
            f" interpreter.tools['{name}'] = ..."
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


def _shorten_value(value: Any) -> Any:
    if isinstance(value, str):
        return value[:HISTORY_CHARACTERS_MAX]
    return value


class Submission:
    """The value that one execution submits. The first SUBMIT counts, whatever the code catches."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.text: Optional[str] = None
        self._fields = list(fields)

    def by_any(self) -> Callable[..., None]:
        """Returns SUBMIT(value), SUBMIT(a, b) or SUBMIT(name=value); keywords win over values."""

        def submit(*args: Any, **kwargs: Any) -> None:
            if kwargs:
                self._take(kwargs)
            elif not self._fields:
                self._take({"output": args[0] if len(args) == 1 else list(args)})
            elif len(args) == len(self._fields):
                self._take({name: args[place] for place, name in enumerate(self._fields)})
            else:
                wanted = f"{len(self._fields)} positional values ({self._fields})"
                self._take({"error": f"SUBMIT expected {wanted}, got {len(args)}"})

        return submit

    def by_name(self) -> Callable[..., None]:
        """Returns SUBMIT(name=value); it takes declared fields exactly, which may be positional."""
        if not self._fields:
            return self._by_any_name
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in self._fields])

        def submit(*args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"SUBMIT{signature}: {error}") from None
            self._take(dict(bound.arguments))

        return submit

    def _by_any_name(self, *args: Any, **kwargs: Any) -> None:
        if args:
            raise TypeError(
                f"SUBMIT takes named values here, such as SUBMIT(output={args[0]!r:.60});"
                f" it was called with {len(args)} without a name"
            )
        self._take(kwargs)

    def offer(self, value: Any) -> None:
        """Takes the value of the variable `Final`, unless the execution called SUBMIT."""
        if self.text is None:
            self.text = encode_final(value)

    def _take(self, value: dict[str, Any]) -> None:
        self.offer(value)
        raise Submitted


def encode_final(value: Any) -> str:
    """Encodes as JSON text in ASCII. Raises TypeError or ValueError with the faulty field."""
    try:
        text = _encode_final(value)
    except Exception as error:  # also what the methods of a value raise
        sort = ValueError if isinstance(error, ValueError) else TypeError
        wrong = find_wrong_field(value, _encode_final) or "the value"
        raise sort(f"SUBMIT: {wrong} cannot be written as JSON: {error}") from None
    if len(text) > FINAL_BYTES_MAX:
        raise ValueError(
            f"SUBMIT: the values have {len(text)} bytes as JSON, and {FINAL_BYTES_MAX} is the most"
            " (write large data to a volume and submit its path)"
        )
    return text


def _encode_final(value: Any) -> str:
    try:
        text = _encode_plain(value)
    except NoRule:
        raise
    except TypeError:  # of a key, too, for which an encoder takes no rule
        return _encode_plain(_copy_value(value))
    # An escape of a surrogate may be a lone one, which no UTF-8 has.
    if "\\ud" in text:
        return _encode_plain(_copy_value(value))
    return text


def _copy_value(value: Any) -> Any:
    """Returns an equal value of JSON's own types."""
    if isinstance(value, dict):
        parts = ((key_text(key), one) for key, one in value.items())
        return {_copy_value(key): _copy_value(one) for key, one in parts}
    if isinstance(value, (list, tuple)):
        return [_copy_value(one) for one in value]
    if isinstance(value, str):
        return escape_surrogates(value)
    if value is None or isinstance(value, (int, float)):
        return value
    return _copy_value(replace_value(value))


# NaN and infinities pass: both ends are Python, and a loss keeps its value.
_encode_plain = json.JSONEncoder(default=replace_value).encode
