"""Copies checkpoints to `checkpoint.mirror`, one at a time beside the training, and restores one
where the volume has none.

The guest copies, since the data is beside it and the run has the secrets of the mirror; through the
controller the data would pass a user's laptop. A failure is reported and ends no run.
Used by watch.py while a run lives, and by begin.py before it.
"""

from __future__ import annotations

import json
import os
import sys
import time

from fleetctl.guest.checkpoints.formats import MARKS
from fleetctl.guest.journal.masking import Masking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence

    # `name`, `step` and `tracker` of a copy, as library/fleetctl_mirror.py takes them.
    Copy = dict[str, Any]

PROGRAM = "fleetctl_mirror.py"  # its text comes with the order
ANSWER_BYTES_MAX = 64 * 1024
END_S = 600.0  # how long the end of a run waits for its last copy
RESTORE_S = 3600.0  # to bring a checkpoint back
MESSAGE_CHARACTERS_MAX = 300
SECRET_CHARACTERS_MIN = 4  # shorter values are not masked: they would garble the messages


def mirror_of(
    order: Mapping[str, Any],
    directory: str,
    variables: Mapping[str, str],
) -> Optional[Mirror]:
    """Returns the mirror of an order; None without one, and on all nodes but the first."""
    url = order["checkpoint"]["mirror"]
    if not url or order.get("rank"):
        return None
    return Mirror(
        url,
        directory,
        order["library"][PROGRAM],
        drop_run_marks(variables),
        list_secrets(order, variables),
    )


def list_secrets(order: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    """Returns the values of the order's secrets."""
    names = order.get("secret_names") or order.get("secrets") or ()
    return [variables[name] for name in names if name in variables]


def drop_run_marks(variables: Mapping[str, str]) -> dict[str, str]:
    """Drops the marks of the run's own processes, which would be ended with the run."""
    marks = ("FLEETCTL_RUN", "FLEETCTL_PARAMS")
    return {name: value for name, value in variables.items() if name not in marks}


class Mirror:
    """Copies checkpoints; only the newest waits, so a mirror slower than training misses some."""

    def __init__(
        self,
        url: str,
        directory: str,
        program: str,
        variables: Mapping[str, str],
        hidden: Sequence[str] = (),
    ) -> None:
        """directory: of the checkpoints; program: its text; variables: its environment; hidden:
        values to mask in every message.
        """
        self._url = url
        self._directory = directory
        self._program = program
        self._variables = variables
        self._hidden = hidden
        self._waiting: Optional[Copy] = None
        self._copying: Optional[Copy] = None
        self._process: Any = None
        self._answer = b""
        self._until_s = 0.0  # monotonic; set when the run has ended

    @property
    def pid(self) -> Optional[int]:
        if self._process is None:
            return None
        return int(self._process.pid)

    def copy(
        self,
        name: str,
        step: int,
        tracker: Optional[tuple[str, str]],
    ) -> None:
        self._waiting = {"name": name, "step": step, "tracker": tracker, "last": MARKS}

    def look(self) -> Optional[str]:
        """Returns the failure of a copy since the last look, if any, and begins the next copy."""
        problem = self._read_answer()
        if self._process is None and self._waiting is not None:
            self._copying = self._waiting
            self._waiting = None
            if self._is_gone(self._copying):
                return problem
            try:
                self._begin(self._copying)
            except OSError as error:
                return self._describe_problem(str(error))
        return problem

    def is_over(self) -> bool:
        """Returns whether all copying has finished; polled after the run's end until it has."""
        self._until_s = self._until_s or time.monotonic() + END_S
        return self._process is None and self._waiting is None

    def give_up(self) -> Optional[str]:
        """Ends a last copy that exceeded its time and returns a sentence about it."""
        if self._process is None or not 0 < self._until_s <= time.monotonic():
            return None
        self._process.kill()
        self._read_answer(to_the_end=True)
        self._waiting = None
        return self._describe_problem(f"it was not done {END_S:.0f} s after the end of the run")

    def _begin(self, asked: Copy) -> None:
        import subprocess

        self._answer = b""
        self._process = subprocess.Popen(
            build_command(
                self._program,
                "copy",
                self._url,
                self._directory,
                asked,
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self._variables),
            cwd="/",
            start_new_session=True,
        )
        os.set_blocking(self._process.stdout.fileno(), False)

    def _read_answer(self, *, to_the_end: bool = False) -> Optional[str]:
        if self._process is None:
            return None
        try:
            data = b"" if to_the_end else os.read(self._process.stdout.fileno(), ANSWER_BYTES_MAX)
        except BlockingIOError:
            return None
        if data:
            self._answer += data
            return None
        self._process.stdout.close()
        self._process.wait()  # it has written its last message
        self._process = None
        answer = parse_report(self._answer)
        if "error" not in answer or (self._copying is not None and self._is_gone(self._copying)):
            return None
        return self._describe_problem(answer["error"])

    def _is_gone(self, asked: Copy) -> bool:
        """Returns whether it was set aside or removed meanwhile; the remover has reported that."""
        return not os.path.lexists(os.path.join(self._directory, asked["name"]))

    def _describe_problem(self, problem: str) -> str:
        name = "" if self._copying is None else self._copying["name"]
        return f"checkpoint `{name}` is not at the mirror: {clean_text(problem, self._hidden)}"


def restore_copy(
    url: str,
    directory: str,
    program: str,
    variables: Mapping[str, str],
    step: Optional[int],
) -> tuple[Optional[str], str]:
    """Returns (the name of the restored checkpoint, the failure). step: the one to restore."""
    import subprocess

    try:
        os.makedirs(directory, exist_ok=True)
        ended = subprocess.run(
            build_command(
                program,
                "restore",
                url,
                directory,
                {"step": step},
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(variables),
            timeout=RESTORE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{type(error).__name__}"
    answer = parse_report(ended.stdout)
    return answer.get("name"), str(answer.get("error", ""))


def build_command(
    program: str,
    verb: str,
    url: str,
    directory: str,
    asked: Mapping[str, Any],
) -> list[str]:
    return [sys.executable, "-c", program, verb, url, directory, json.dumps(asked)]


def parse_report(data: bytes) -> dict[str, Any]:
    """Parses the program's report; an error where the program was ended before it reported."""
    try:
        answer = json.loads(data.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": "the program that copies ended without a report"}
    if isinstance(answer, dict):
        return answer
    return {"error": "the program that copies replied nonsense"}


def clean_text(text: str, hidden: Sequence[str]) -> str:
    """Returns the text without values of secrets, on one line of bounded length."""
    text = Masking(hidden, shortest=SECRET_CHARACTERS_MIN).text(text)
    return " ".join(text.split())[:MESSAGE_CHARACTERS_MAX]
