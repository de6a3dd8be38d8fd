"""Helpers of a Daytona interpreter: programs, files of the repository, background processes.

Part of the guest; code finds these names in its namespace. Paths are relative to the checkout
unless absolute; `workspace_*` refuses paths outside the checkout, with a reason in brackets.
"""

from __future__ import annotations

import ast
import collections
import glob
import json
import os
import re
import subprocess
import threading
from typing import Any, Callable, Optional

LOG_LINES_MAX = 1000  # of a background process; the newest are kept
LAST_LINES_S = 1.0  # to read the last lines; processes left running may hold the output open
DOC_CHARACTERS_MAX = 200

CHECKOUT_HELPERS = (
    *("run", "resolve_path", "read_file", "list_files", "find_files", "extract_python_ast"),
    *("workspace_write", "workspace_read", "workspace_append"),
    *("start_background_process", "read_process_logs", "kill_process"),
)


class Checkout:
    """The directory that code works in, and the processes it has left running."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._processes: dict[str, _Background] = {}

    def run(self, command: str, cwd: Optional[str] = None) -> dict[str, Any]:
        """Runs a shell command to its end: {"exit_code", "stdout", "stderr", "ok"}."""
        done = subprocess.run(  # noqa: S602 - a shell command is what is asked for
            command,
            shell=True,
            cwd=self.resolve_path(cwd or "."),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        return {
            "exit_code": done.returncode,
            "stdout": done.stdout,
            "stderr": done.stderr,
            "ok": done.returncode == 0,
        }

    def resolve_path(self, path: str) -> str:
        """Returns the absolute path; the checkout for an empty one."""
        return os.path.normpath(os.path.join(self._top, str(path).strip()))

    def read_file(self, path: str) -> str:
        """Returns the text of a file. Raises OSError."""
        with open(self.resolve_path(path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def list_files(self, path: str = ".") -> list[str]:
        """Returns absolute paths of a directory's entries, sorted; [] for a missing directory."""
        top = self.resolve_path(path)
        names = os.listdir(top) if os.path.isdir(top) else []
        return sorted(os.path.join(top, name) for name in names)

    def find_files(self, path: str = ".", pattern: str = "*") -> list[str]:
        """Returns absolute paths below `path` that match a glob (`**` for any depth), sorted."""
        top = self.resolve_path(path)
        return sorted(glob.glob(os.path.join(glob.escape(top), pattern), recursive=True))

    def extract_python_ast(self, path: str) -> str:
        """Returns the classes (with methods) and functions at the top of a Python file, as JSON."""
        try:
            tree = ast.parse(self.read_file(path))
        except FileNotFoundError:
            return f"[file not found: {path}]"
        except (SyntaxError, ValueError) as error:
            return f"[error: {path} is not Python: {error}]"
        return json.dumps([_describe_node(node) for node in tree.body if _is_named(node)], indent=2)

    def workspace_write(self, path: str, content: Any) -> str:
        return self._access_path(path, lambda real: _write_checkout_file(real, content, "w"))

    def workspace_append(self, path: str, content: Any) -> str:
        return self._access_path(path, lambda real: _write_checkout_file(real, content, "a"))

    def workspace_read(self, path: str) -> str:
        return self._access_path(path, self.read_file)

    def start_background_process(self, process_id: str, command: str) -> str:
        """Starts a shell command that continues while further code runs."""
        known = self._processes.get(process_id)
        if known is not None and known.process.poll() is None:
            return f"process {process_id} is already running (pid {known.process.pid})"
        started = self._processes[process_id] = _Background(command, self._top)
        return f"started process {process_id} (pid {started.process.pid})"

    def read_process_logs(self, process_id: str, tail: int = 50) -> str:
        """Returns its state and the last `tail` lines of its output, stderr included."""
        known = self._processes.get(process_id)
        if known is None:
            return f"process {process_id} was not started"
        code = known.ended()
        state = "RUNNING" if code is None else f"EXITED({code})"
        lines = list(known.lines)[-tail:] if tail > 0 else []
        return f"Status: {state}\nLogs:\n" + "".join(lines)

    def kill_process(self, process_id: str) -> str:
        known = self._processes.pop(process_id, None)
        if known is None:
            return f"process {process_id} was not started"
        return f"process {process_id} " + known.end()

    def _access_path(self, path: str, act: Callable[[str], Optional[str]]) -> str:
        """Returns `act(real path)`, or the path where that is None; or a problem in brackets."""
        wanted = str(path).strip()
        top = os.path.realpath(self._top)
        real = os.path.realpath(os.path.join(top, wanted))
        if not wanted or os.path.isabs(wanted) or not (real + os.sep).startswith(top + os.sep):
            return f"[error: `{path}` is not a path inside of {self._top}]"
        try:
            answer = act(real)
        except FileNotFoundError:
            return f"[file not found: {real}]"
        except OSError as error:
            return f"[error: {real}: {error.strerror}]"
        if answer is None:
            return real
        return answer


class _Background:
    """A process in a group of its own, and the last lines of its output."""

    def __init__(self, command: str, cwd: str) -> None:
        self.lines: collections.deque[str] = collections.deque(maxlen=LOG_LINES_MAX)
        self.process = subprocess.Popen(  # noqa: S602 - a shell command is what is asked for
            command,
            shell=True,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def ended(self) -> Optional[int]:
        """Returns the exit code once there is one; then the last lines are complete."""
        code = self.process.poll()
        if code is not None:
            self._listener.join(LAST_LINES_S)
        return code

    def end(self) -> str:
        if self.process.poll() is not None:
            return f"had exited with {self.process.returncode}"
        os.killpg(self.process.pid, 15)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        return "was ended"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)


class CountedBuffers:
    """Named lists that live as long as the sandbox; each call returns a report of its change."""

    def __init__(self) -> None:
        self._items: dict[str, list[Any]] = {}

    def add_buffer(self, name: str, value: Any) -> dict[str, Any]:
        items = self._items.setdefault(name, [])
        items.append(value)
        return {"status": "ok", "name": name, "count": len(items)}

    def get_buffer(self, name: str) -> list[Any]:
        """Returns a copy of the list; [] for a missing one."""
        return list(self._items.get(name, []))

    def clear_buffer(self, name: Optional[str] = None) -> dict[str, Any]:
        if name is None:
            self._items.clear()
            return {"status": "ok", "scope": "all"}
        self._items.pop(name, None)
        return {"status": "ok", "scope": "single", "name": name}


def grep_by_regex(
    text: str,
    pattern: str,
    *,
    context: int = 0,
) -> list[str]:
    """Returns the lines that match a regular expression, each with `context` lines around it."""
    matcher = re.compile(pattern)
    lines = text.splitlines()
    return [
        "\n".join(lines[max(0, number - context) : number + context + 1])
        for number, line in enumerate(lines)
        if matcher.search(line)
    ]


def _write_checkout_file(
    real: str,
    content: Any,
    mode: str,
) -> None:
    os.makedirs(os.path.dirname(real), exist_ok=True)
    with open(real, mode, encoding="utf-8") as file:
        file.write(str(content))


def _is_named(node: ast.stmt) -> bool:
    return isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))


def _describe_node(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "Function", "name": node.name}
    if isinstance(node, ast.ClassDef):
        found["type"] = "Class"
        found["methods"] = [
            one.name
            for one in node.body
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
    found["doc"] = (ast.get_docstring(node) or "")[:DOC_CHARACTERS_MAX]
    return found
