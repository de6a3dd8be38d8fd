"""Runs one Python task: its namespace, its end, its traceback.

Called in the sandbox by the process that prepared it (for provider `local`, the forked child of the
supervisor). Sends its events through `emit`, one dictionary each; never writes a journal and never
decides whether a task counts as failed: its caller does, from the events and the exit code.
"""

from __future__ import annotations

import os
import sys
import time

from fleetctl.guest.task.helpers import (
    BUFFER_HELPERS,
    STORAGE_HELPERS,
    TEXT_HELPERS,
    Buffers,
    Storage,
)
from fleetctl.guest.task.lazy import FILE_NAME, LazyModule, import_module, known_or_lazy
from fleetctl.guest.task.plain import (
    ResultCopy,
    Unkeepable,
    encode_number,
    flat_metrics,
    replace_value,
)
from fleetctl.guest.task.term import Terminated, end_by_term, heed_term, heed_term_no_more
from fleetctl.guest.task.text import encoder_with, parse_json

TYPE_CHECKING = False  # `typing` costs more to import than a short task does
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Callable, Optional, Union

    Emit = Callable[[dict[str, Any]], None]
else:
    ModuleType = type(sys)

MESSAGE_BYTES_MAX = 2048  # for the last frames and the error; the log has the whole traceback
RESULT_BYTES_MAX = 256 * 1024
RESULT_DEPTH_MAX = 32

# From library/fleetctl_checkpoint.py, which comes with a TrainingRun that has a `checkpoint`.
CHECKPOINT_HELPERS = ("latest", "saving", "stop_requested")
# From library/fleetctl_llm.py, which comes with `endpoints`.
MODEL_HELPERS = ("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched")


class Submitted(BaseException):
    """Ends a task from SUBMIT. No Exception, so that `except Exception` in a task does not stop
    it.
    """


class Sandbox:
    """The state that tasks in one process share: globals, buffers, the volume.

    Parameters are not shared, and neither are other values of the helpers' names.
    """

    def __init__(self, volumes: list[dict[str, str]]) -> None:
        first = volumes[0] if volumes else {}
        storage = Storage(first.get("mount", ""), first.get("root", ""), self._remark)
        buffers = Buffers()
        self._emit: Emit = _refuse_submit
        self._submitted = self._refused = False
        self._step = -1
        self._reports_remarked = False
        # A module of its own, registered, so that pickling and `if __name__ == "__main__"` work.
        self._module = ModuleType("__main__")
        self._namespace = self._module.__dict__
        for helper in (self._report, *TEXT_HELPERS):
            self._namespace[helper.__name__.lstrip("_")] = helper
        for name in STORAGE_HELPERS:
            self._namespace[name] = getattr(storage, name)
        for name in BUFFER_HELPERS:
            self._namespace[name] = getattr(buffers, name)
        for name in CHECKPOINT_HELPERS:
            why = "only a TrainingRun with `checkpoint` saves checkpoints"
            self._namespace[name] = _of_library("fleetctl_checkpoint", name, why)
        for name in MODEL_HELPERS:
            why = "the task has no model endpoint: `template.endpoints: [NAME]` is missing"
            self._namespace[name] = _of_library("fleetctl_llm", name, why)
        self._namespace["SUBMIT"] = self._submit
        self._helpers = dict(self._namespace)
        self._namespace["json"] = known_or_lazy("json")
        self._params: dict[str, Any] = {}  # the parameters of the running or the last task
        self._hidden: dict[str, Any] = {}  # globals of the program that parameters replace

    def run(
        self,
        code: Union[str, CodeType],
        params: dict[str, Any],
        emit: Emit,
    ) -> int:
        """Executes one task and returns its exit code; the program's globals stay for the next one.

        Never returns where the task was ended by TERM.
        """
        self._emit = emit
        self._step = -1
        self._reports_remarked = False
        self._submitted = self._refused = False
        sys.modules["__main__"] = self._module
        try:
            if isinstance(code, str):
                if "json" in code and isinstance(self._namespace.get("json"), LazyModule):
                    self._namespace["json"] = import_module("json")
                code = compile_task(code)
            self._hand_out(params)
            heed_term()
            exec(code, self._namespace)  # what a guest is for
        except Terminated:
            end_by_term()
        except Submitted:
            return 1 if self._refused else 0
        except SystemExit as error:
            return _exit_code(error)
        except BaseException as error:
            emit({"e": "error", **describe_error(error)})
            return 1
        finally:
            heed_term_no_more()
        return 1 if self._refused else 0

    def _hand_out(self, params: dict[str, Any]) -> None:
        """Puts a task's parameters into the namespace, instead of the last task's."""
        namespace = self._namespace
        for name in self._params:
            namespace.pop(name, None)
        namespace.update(self._hidden)
        namespace.update(self._helpers)
        namespace.pop("__warningregistry__", None)  # else repeated warnings are hidden
        self._hidden = {name: namespace[name] for name in params if name in namespace}
        self._params = params
        namespace.update({"params": params, **params})

    def _submit(self, *args: Any, **kwargs: Any) -> None:
        """Hands in the task's result and ends it. The first counts, whatever the task catches."""
        value = kwargs or {"output": args[0] if len(args) == 1 else list(args)}
        if self._submitted:
            self._remark(
                "SUBMIT was called again: the first call ends the task, and its result counts"
            )
            raise Submitted
        self._submitted = True
        problem, text, changed = check_result(value)
        if text:
            self._emit({"e": "result", "json": text})
        if problem:
            self._refused = True
            self._emit({"e": "error", "reason": "ResultInvalid", "message": f"SUBMIT: {problem}"})
        if changed:
            self._remark(f"SUBMIT: {changed}")
        raise Submitted

    def _remark(self, text: str) -> None:
        """Sends a remark for the user of a task that may well succeed."""
        print(f"fleetctl: {text}", file=sys.stderr)
        self._emit({"e": "remark", "message": text})

    def _report(self, *, step: Optional[int] = None, **metrics: Any) -> None:
        """Records numbers of this moment; without a step, each call is one step further.

        An invalid number must not end a training of hours: the first causes a remark.
        """
        whole = None if step is None else _as_step(step)
        if step is not None and whole is None:
            self._remark_once(
                f"report: the step is {_shorten_repr(step)}; it must be a whole number"
            )
        self._step = self._step + 1 if whole is None else whole
        kept, left_out = flat_metrics(metrics, _as_number_of_any)
        if left_out:
            name, value = left_out[0]
            what = f"`{name}` at step {self._step} is {_shorten_repr(value)} and is not recorded"
            self._remark_once(f"report: {what}; a metric is a number")
        values = {name: encode_number(value) for name, value in kept.items()}
        if values:
            self._emit({"e": "metric", "step": self._step, "values": values, "at": time.time()})

    def _remark_once(self, text: str) -> None:
        """Sends the first remark of a task; the next ones are alike."""
        if not self._reports_remarked:
            self._reports_remarked = True
            self._remark(text)


def _of_library(
    module: str,
    name: str,
    why: str,
) -> Callable[..., Any]:
    """Returns a function of a module that only some tasks have; why: the error in all others."""

    def helper(*args: Any, **kwargs: Any) -> Any:
        try:
            library = import_module(module)
        except ImportError:
            raise RuntimeError(f"{name}: {why}") from None
        return getattr(library, name)(*args, **kwargs)

    return helper


def compile_task(code: str) -> CodeType:
    """Compiles a task. Raises SyntaxError, shown later as the task's own."""
    return compile(code, FILE_NAME, "exec", dont_inherit=True)


def check_result(value: dict[str, Any]) -> tuple[str, str, str]:
    """Returns (problem or "", the value as JSON text in ASCII, a remark on changes or "").

    With a problem, the text has the other fields, and is "" without other fields.
    """
    try:
        text = _encode(value)
    except Exception:  # also raised by the methods of a value
        return _fields_that_fit(value)
    # An escape of a surrogate may be a lone one, which no UTF-8 has.
    if len(text) > RESULT_BYTES_MAX or _is_too_deep(text, RESULT_DEPTH_MAX) or "\\ud" in text:
        return _fields_that_fit(value)
    return "", text, ""


def _fields_that_fit(value: dict[str, Any]) -> tuple[str, str, str]:
    """Checks as `check_result` does, each field on its own."""
    copy = ResultCopy()
    texts = {}
    problems = []
    for key, one in value.items():
        try:
            text = _encode(copy.made(one, key))
            if _is_too_deep(text, RESULT_DEPTH_MAX - 1):
                raise Unkeepable(f"it is nested more than {RESULT_DEPTH_MAX} deep")
            texts[key] = f"{_encode(copy.made(key))}: {text}"
        except Unkeepable as error:
            problems.append(f"field `{key}`: {error}")
    size = sum(map(len, texts.values())) + 2 * len(texts)
    if size > RESULT_BYTES_MAX:
        problems.append(
            f"it has {size} bytes, and at most {RESULT_BYTES_MAX} are kept"
            f" (write large data to a volume and submit its path), so {_without_large(texts)}"
        )
    kept = "{" + ", ".join(texts.values()) + "}" if texts else ""
    problem = ""
    if problems:
        problem = f"the result cannot be kept whole ({'; '.join(problems)})"
    return problem, kept, "; ".join(copy.remarks)


def _without_large(texts: dict[str, str]) -> str:
    """Leaves out the largest fields until the others fit, and names them."""
    left = []
    while texts and sum(map(len, texts.values())) + 2 * len(texts) > RESULT_BYTES_MAX:
        largest = max(texts, key=lambda key: len(texts[key]))
        left.append(f"field `{largest}` ({len(texts.pop(largest))} bytes)")
    return f"{', '.join(left)} is left out"


def _is_too_deep(text: str, levels: int) -> bool:
    # With fewer brackets than levels there is no need to look; most results have a few.
    return text.count("[") + text.count("{") > levels and _is_nested_beyond(text, levels)


def _is_nested_beyond(text: str, levels: int) -> bool:
    try:
        return measure_depth(parse_json(text)) > levels
    except (RecursionError, ValueError):
        return True


def measure_depth(value: Any) -> int:
    """Returns how deep lists and objects are nested; counts at most one beyond the limit."""
    level = 0
    layer = [value]
    while layer and level <= RESULT_DEPTH_MAX:
        layer = [
            child
            for item in layer
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        level += 1
    return level - 1 if not isinstance(value, (dict, list)) else level


def describe_error(error: BaseException) -> dict[str, str]:
    """Prints the traceback, without our frames, to stderr; returns its reason and last lines."""
    import linecache
    import traceback

    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != FILE_NAME:
        frames = frames.tb_next
    linecache.checkcache()
    shown = traceback.TracebackException(type(error), error, frames)
    chain = [shown]
    for each in chain:
        each.stack[:] = [one for one in each.stack if not _is_ours(one.filename)]
        chain += [one for one in (each.__cause__, each.__context__) if one is not None]
    text = "".join(shown.format())
    sys.stderr.write(text)
    if not isinstance(error, MemoryError):
        return {"reason": "Error", "message": take_last_lines(text, MESSAGE_BYTES_MAX)}
    message = take_last_lines(text, MESSAGE_BYTES_MAX)
    return {"reason": "OOMKilled", "message": f"{message} (it held {_peak_memory_mib()}Mi before)"}


def _is_ours(file: str) -> bool:
    """Returns whether a file is ours: in a sandbox one file, or modules without a file."""
    return file == _OURS or file.startswith("<fleetctl.")


def _peak_memory_mib() -> int:
    """Returns the most memory that this process has had."""
    import resource

    unit = 1024 if sys.platform == "linux" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit >> 20


def take_last_lines(text: str, limit: int) -> str:
    """Returns as many whole lines from the end as fit."""
    kept: list[str] = []
    used = 0
    for line in reversed(text.rstrip().splitlines()):
        used += len(line.encode("utf-8", "replace")) + 1
        if used > limit:
            break
        kept.append(line)
    return "\n".join(reversed(kept)) or text.rstrip()[-limit // 4 :]


def exit_process(code: int) -> None:
    """Ends the process as the interpreter would, without tearing it down: threads, atexit,
    buffers.
    """
    import atexit

    shutdown = getattr(sys.modules.get("threading"), "_shutdown", None)
    if shutdown is not None:
        shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120  # the interpreter's own code for output that could not be written
    os._exit(code)


def _exit_code(error: SystemExit) -> int:
    """Returns the interpreter's exit code for `sys.exit(x)`."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _as_number_of_any(value: Any) -> Optional[float]:
    """Converts a number, its text, or an array with one element. None for any other value."""
    return _convert_value(value, float)  # type: ignore[no-any-return]


def _as_step(value: Any) -> Optional[int]:
    """Converts to a step, within the whole numbers that a store holds."""
    found = _convert_value(value, int)
    return found if found is not None and abs(found) < 1 << 63 else None


def _convert_value(value: Any, sort: Callable[[Any], Any]) -> Any:
    """Converts a value; None where it cannot; never raises, whatever the methods of a value do."""
    if type(value) is sort:
        return value
    ways: tuple[Callable[[Any], Any], ...] = (_array_item, _same_value, replace_value)
    for number_in in ways:
        try:
            return sort(number_in(value))
        except Exception:  # noqa: S112 - the next way may convert it
            continue
    return None


def _array_item(array: Any) -> Any:
    return array.item()


def _same_value(value: Any) -> Any:
    return value


def _shorten_repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # the methods of a value may raise anything
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:60] + "…"


_OURS = check_result.__code__.co_filename


# Made once: an encoder made for each result would touch more memory than the result itself.
_encode = encoder_with(replace_value)


def _refuse_submit(_: dict[str, Any]) -> None:
    raise RuntimeError("no task is running")
