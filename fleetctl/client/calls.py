"""Runs calls of a function as tasks of a BatchJob: for `Fleet.map` and `Executor`.

A function travels by its import path, never as code: the task imports it from a copy of its project
and calls it with arguments that JSON can hold. Its return value is the task's result, and its
exception is the reason of the task's failure, built again here where it is a built-in error.
"""

from __future__ import annotations

import builtins
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.guest.task.plain import replace_value
from fleetctl.manifest.document.short import expand_document
from fleetctl.specs.kinds.registry import KINDS

CALLS_MAX = 100_000  # for one job
NAME_CHARACTERS_MAX = 40
_SUFFIX_BYTES = 3
_INSTALLED = ("site-packages", "dist-packages")

# Runs in the sandbox. `__main__` of the caller is imported under its file's name, so that the part
# below `if __name__ == "__main__":` does not run.
_PROGRAM = """\
import importlib, os, sys
sys.path.insert(0, os.path.join(os.getcwd(), {root!r}))
function = importlib.import_module({module!r})
for name in {names!r}:
    function = getattr(function, name)
SUBMIT(value=function(*call["args"], **call["kwargs"]))
"""


class RemoteError(RuntimeError):
    """A call that failed in its task; the text is the end of its traceback, or why the task ended
    without one.
    """


@dataclass(frozen=True, slots=True)
class ImportPath:
    """The path by which a task imports a function. directory: the files to copy into the sandbox,
    None where the sandbox has them. root: below it, the entry for `sys.path`.
    """

    module: str
    names: tuple[str, ...]
    directory: Path | None
    root: str = ""

    def program(self) -> str:
        """Returns the task's Python source."""
        return _PROGRAM.format(
            root=self.root,
            module=self.module,
            names=self.names,
        )


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of a call's task, by the names of `fleetctl run`'s flags.

    on: a provider; None for this machine. image: a reference, or the mapping of a manifest.
    volumes: `NAME:/PATH`. timeout: seconds or `2h`, per attempt. source: the directory to upload;
    None for the one that the function is imported from.
    """

    on: str | None = None
    gpu: str | None = None
    cpu: float | str | None = None
    memory: str | None = None
    image: str | Mapping[str, Any] | None = None
    pip: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    secrets: Sequence[str] = ()
    volumes: Sequence[str] = ()
    timeout: float | str | None = None
    retries: int = 0
    parallelism: int | None = None
    budget: float | None = None
    source: str | Path | None = None


Call = tuple[tuple[Any, ...], Mapping[str, Any]]


def find_import_path(function: Callable[..., Any], source: str | Path | None = None) -> ImportPath:
    """Returns the path by which a task can import the function.

    Raises UsageError for a callable without an import path: a lambda, a function inside another
    one, a bound method, an object that can be called, and a function of a notebook or of standard
    input.
    """
    names = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None)
    owner = getattr(function, "__self__", None)  # of a built-in function: its module
    if not names or module is None or not (owner is None or isinstance(owner, ModuleType)):
        raise UsageError(
            f"{function!r} is no plain function: a task finds a function by its import path",
            hint="write a function at the top of a module that calls it",
        )
    if "<" in names:
        sort = "a lambda" if "<lambda>" in names else "defined inside another function"
        raise UsageError(
            f"`{names}` is {sort}: a task finds a function by its import path, and it has none",
            hint="write it with `def` at the top of a module",
        )
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__":
        if file is None:
            raise UsageError(
                f"`{names}` was defined in a notebook or an interpreter: no task can import it",
                hint="write it into a module, such as work.py, and import it from there",
            )
        module = Path(file).stem
        top = Path(file).resolve().parent
    else:
        top = _import_root(module, file)
    if source is None and not (isinstance(function, FunctionType) and _is_own(file)):
        return ImportPath(module, tuple(names.split(".")), None)
    directory = (top if source is None else Path(source)).resolve()
    if not top.is_relative_to(directory):
        raise UsageError(
            f"`{module}` is imported from {top}, which is not below the source {directory}",
            hint="name the project's directory as `source`, or leave it out",
        )
    root = str(top.relative_to(directory))
    return ImportPath(module, tuple(names.split(".")), directory, "" if root == "." else root)


def _is_own(file: str | None) -> bool:
    """Returns false for the standard library and installed packages, which images bring."""
    if file is None:
        return False
    parts = Path(file).parts
    library = Path(json.__file__).resolve().parents[1]
    return not any(it in parts for it in _INSTALLED) and not Path(file).is_relative_to(library)


def _import_root(module: str, file: str | None) -> Path:
    """Returns the directory on `sys.path` that a module is found below."""
    if file is None:
        return Path.cwd()
    path = Path(file).resolve()
    depth = module.count(".") + (path.name == "__init__.py")
    return path.parents[depth]


def job_name(function: Callable[..., Any]) -> str:
    """Returns a new name for the job of a function."""
    words = re.sub(r"[^a-z0-9]+", "-", function.__qualname__.lower()).strip("-") or "call"
    return f"{words[:NAME_CHARACTERS_MAX].rstrip('-')}-{secrets.token_hex(_SUFFIX_BYTES)}"


def build_job(
    name: str,
    path: ImportPath,
    calls: Iterable[Call],
    options: CallOptions,
) -> dict[str, Any]:
    """Returns the BatchJob with a task a call, in the full form. Raises UsageError for arguments
    that JSON cannot hold, and for more than CALLS_MAX calls.
    """
    items = [{"call": plain_arguments(call, f"call {number}")} for number, call in enumerate(calls)]
    if len(items) > CALLS_MAX:
        raise UsageError(f"{len(items):,} calls; one job has at most {CALLS_MAX:,}")

    resources = {"gpu": options.gpu, "cpu": options.cpu, "memory": options.memory}
    fields: dict[str, Any] = {
        "placement": options.on,
        "parallelism": options.parallelism or min(len(items), 100),
        "backoffLimitPerIndex": options.retries,
        "budget": {"maxCost": options.budget} if options.budget is not None else None,
        "tasks": {"items": items},
        "source": str(path.directory) if path.directory is not None else None,
        "image": _build_image(options),
        "resources": {key: it for key, it in resources.items() if it is not None},
        "env": dict(options.env or {}),
        "secrets": list(options.secrets),
        "volumes": list(options.volumes),
        "timeoutSeconds": options.timeout,
        "python": path.program(),
    }
    given = {key: it for key, it in fields.items() if it is not None and it not in ({}, [])}
    short = {"kind": KINDS["BatchJob"].name, "name": name, **given}
    full: dict[str, Any] = expand_document(short).value
    return full


def _build_image(options: CallOptions) -> dict[str, Any]:
    """Returns the image block, with the packages of `pip` after its own; empty without any."""
    image: dict[str, Any] = {}
    if isinstance(options.image, str):
        image["registry"] = options.image
    elif isinstance(options.image, Mapping):
        image |= options.image
    if options.pip:
        image["pip"] = [*image.get("pip", ()), *options.pip]
    return image


def plain_arguments(call: Call, name: str = "the call") -> dict[str, Any]:
    """Returns the arguments as JSON has them. name: of the call, for the error. Raises UsageError
    for an argument that JSON cannot hold.
    """
    args, kwargs = call
    try:
        text = json.dumps({"args": args, "kwargs": kwargs}, default=replace_value, allow_nan=False)
        made: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} has an argument that a task cannot be given: {error}",
            hint="give numbers, texts, lists and mappings, or the name of a file on a volume",
        ) from error
    return made


def error_of(reason: str, message: str) -> Exception:
    """Returns the exception that a failed call raises: of the built-in type that its traceback ends
    with, whose cause is a RemoteError with that traceback, else the RemoteError alone.
    """
    remote = RemoteError(message.strip() or reason)
    lines = message.rstrip().split("\n")
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    last = "\n".join(lines[frames[-1] + 1 :]) if frames else ""
    name, _, text = last.partition(": ")
    known = getattr(builtins, name.strip(), None)
    if not (isinstance(known, type) and issubclass(known, Exception)):
        return remote
    try:
        made: Exception = known(text) if text else known()
    except TypeError:  # UnicodeDecodeError and its like take more than a text
        return remote
    made.__cause__ = remote
    return made
