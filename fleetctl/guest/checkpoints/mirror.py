"""Copies of checkpoints at another place, `checkpoint.mirror`: made behind the training, one at a
time, and brought back where the volume has none.

The guest copies, since the data is beside it and the run has the secrets that the place asks for;
through the controller it would pass somebody's laptop. What goes wrong is told and ends nothing.
Used by watch.py while a run lives, and by begin.py before it.
"""

from __future__ import annotations

import json
import os
import sys
import time

from fleetctl.guest.checkpoints.formats import MARKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence

    # Of one copy: `name`, `step` and `tracker` as library/fleetctl_mirror.py takes them.
    Copy = dict[str, Any]

PROGRAM = "fleetctl_mirror.py"  # its text comes with the order
ANSWER_BYTES_MAX = 64 * 1024
END_S = 600.0  # that the end of a run waits for its last copy
RESTORE_S = 3600.0  # to bring a checkpoint back
MESSAGE_CHARACTERS_MAX = 300
SECRET_CHARACTERS_MIN = 4  # shorter ones are no secrets, and would garble what is told


def mirror_of(
    order: Mapping[str, Any], directory: str, variables: Mapping[str, str]
) -> Optional[Mirror]:
    """What an order asks for; None without a mirror, and on all nodes but the first."""
    url = order["checkpoint"]["mirror"]
    if not url or order.get("rank"):
        return None
    return Mirror(
        url, directory, order["library"][PROGRAM], beside(variables), hidden(order, variables)
    )


def hidden(order: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    """Values of its secrets."""
    names = order.get("secret_names") or order.get("secrets") or ()
    return [variables[name] for name in names if name in variables]


def beside(variables: Mapping[str, str]) -> dict[str, str]:
    """Without what marks a process as the run's own, which would be ended with it."""
    marks = ("FLEETCTL_RUN", "FLEETCTL_PARAMS")
    return {name: value for name, value in variables.items() if name not in marks}


class Mirror:
    """Of those that wait only the newest is kept: a place slower than the training misses some."""

    def __init__(
        self,
        url: str,
        directory: str,
        program: str,
        variables: Mapping[str, str],
        hidden: Sequence[str] = (),
    ) -> None:
        """directory: of the checkpoints; program: its text; variables: that it runs with; hidden:
        values never to be told.
        """
        self._url, self._directory, self._program = url, directory, program
        self._variables, self._hidden = variables, hidden
        self._waiting: Optional[Copy] = None
        self._copying: Optional[Copy] = None
        self._process: Any = None
        self._answer = b""
        self._until_s = 0.0  # monotonic, once the run is over

    @property
    def pid(self) -> Optional[int]:
        return None if self._process is None else int(self._process.pid)

    def copy(self, name: str, step: int, tracker: Optional[tuple[str, str]]) -> None:
        self._waiting = {"name": name, "step": step, "tracker": tracker, "last": MARKS}

    def look(self) -> Optional[str]:
        """What went wrong with a copy since the last look. Begins the next one."""
        problem = self._heard()
        if self._process is None and self._waiting is not None:
            self._copying, self._waiting = self._waiting, None
            try:
                self._begin(self._copying)
            except OSError as error:
                return self._told(str(error))
        return problem

    def is_over(self) -> bool:
        """Whether nothing is copied any more; to be asked until it is, once the run has ended."""
        self._until_s = self._until_s or time.monotonic() + END_S
        return self._process is None and self._waiting is None

    def give_up(self) -> Optional[str]:
        """A sentence once the last copy has had its time; it is ended then."""
        if self._process is None or not 0 < self._until_s <= time.monotonic():
            return None
        self._process.kill()
        self._heard(to_the_end=True)
        self._waiting = None
        return self._told(f"it was not done {END_S:.0f} s after the end of the run")

    def _begin(self, asked: Copy) -> None:
        import subprocess

        self._answer = b""
        self._process = subprocess.Popen(
            command(self._program, "copy", self._url, self._directory, asked),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self._variables),
            cwd="/",
            start_new_session=True,
        )
        os.set_blocking(self._process.stdout.fileno(), False)

    def _heard(self, *, to_the_end: bool = False) -> Optional[str]:
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
        self._process.wait()  # it has said its last word
        self._process = None
        answer = parsed(self._answer)
        return self._told(answer["error"]) if "error" in answer else None

    def _told(self, problem: str) -> str:
        name = "" if self._copying is None else self._copying["name"]
        return f"checkpoint `{name}` is not at the mirror: {clean(problem, self._hidden)}"


def brought_back(
    url: str, directory: str, program: str, variables: Mapping[str, str], step: Optional[int]
) -> tuple[Optional[str], str]:
    """(the name of the checkpoint that is there now, what went wrong). step: a certain one."""
    import subprocess

    try:
        os.makedirs(directory, exist_ok=True)
        ended = subprocess.run(
            command(program, "restore", url, directory, {"step": step}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(variables),
            timeout=RESTORE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{type(error).__name__}"
    answer = parsed(ended.stdout)
    return answer.get("name"), str(answer.get("error", ""))


def command(
    program: str, verb: str, url: str, directory: str, asked: Mapping[str, Any]
) -> list[str]:
    return [sys.executable, "-c", program, verb, url, directory, json.dumps(asked)]


def parsed(data: bytes) -> dict[str, Any]:
    """What the program said; an error where it was ended before it could."""
    try:
        answer = json.loads(data.splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": "the program that copies ended without a word"}
    return (
        answer if isinstance(answer, dict) else {"error": "the program that copies said nonsense"}
    )


def clean(text: str, hidden: Sequence[str]) -> str:
    """Without values of secrets, in one line of bounded length."""
    for value in hidden:
        if len(value) >= SECRET_CHARACTERS_MIN:
            text = text.replace(value, "***")
    return " ".join(text.split())[:MESSAGE_CHARACTERS_MAX]
