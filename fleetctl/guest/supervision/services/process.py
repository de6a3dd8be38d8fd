"""One service: its process, its output, and whether it is ready. Its end is
handled by crew.py.
"""

from __future__ import annotations

import os
import signal
import time

from fleetctl.guest.supervision.processes import end_with_parent, send
from fleetctl.guest.supervision.services import probe
from fleetctl.guest.task.program import become, enter, guarded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, NoReturn, Optional

READ_BYTES_MAX = 48 * 1024  # one piece of output, which travels as one event
LAST_WORDS_BYTES = 1024
LAST_WORDS_LINES = 5
DESCRIPTORS_MAX = 4096  # more than the run's supervisor has open
SOON_S = 0.05  # between the first two looks at whether it is ready
ANSWER_S = 11.0  # a slower probe is ended; our own ones take 10
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0  # between an end and the next start
STEADY_S = 60.0  # after this long a life its next end counts as the first
STATES = STARTING, READY, RESTARTING, ENDED = "Starting", "Ready", "Restarting", "Ended"


class Service:
    def __init__(
        self,
        asked: Mapping[str, Any],
        port: int,
        variables: Mapping[str, str],
        directory: str,
    ) -> None:
        """asked: `name`, `argv`, `env`, `on_exit` and `ready`, which is None or has `timeout_s`,
        `every_s` and `argv`, or `port` with `path` or without. port: where it listens, 0 = unknown.
        """
        self.name: str = asked["name"]
        self.on_exit: str = asked["on_exit"]
        self.state = STARTING
        self.was_ready = False
        self.pid = self.output = 0  # 0 = not started
        self.code = 0  # its last exit code
        self._asked, self._ready, self._port = asked, asked["ready"], port
        ours = {name: it for name, it in variables.items() if name.startswith("FLEETCTL_")}
        self._variables = {**variables, **asked["env"], **ours}
        self._directory = directory
        self._tail = b""
        self._ends = 0  # ends in a row
        self._began_s = self._due_s = self._asked_s = 0.0
        self._until_s = float("inf")
        self._probe = 0
        self._answer: Optional[int] = None  # exit code of the last probe

    def start(self) -> None:
        """Starts the process. Raises OSError when it cannot be started."""
        now_s = time.monotonic()
        self.output, writable = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self.pid = self._spawn(self._asked["argv"], writable)
        except OSError:
            os.close(self.output)
            self.output = 0
            raise
        finally:
            os.close(writable)
        self._began_s = self._due_s = now_s
        if self._ready is None:
            self.state = READY
            self.was_ready = True
            return
        self.state = STARTING
        if not self.was_ready:
            self._until_s = now_s + self._ready["timeout_s"]

    def due_s(self) -> float:
        """Returns when `look` is due, in monotonic seconds."""
        if self.state == RESTARTING:
            return self._due_s
        if self.state != STARTING:
            return float("inf")
        next_s = self._asked_s + ANSWER_S if self._probe else self._due_s
        return min(next_s, self._until_s)

    def look(self) -> None:
        """Starts it again, or begins a probe, where that is due."""
        if self.due_s() > time.monotonic():
            return
        if self.state == RESTARTING:
            self.start()
        elif self._probe:
            self._end_probe()
        elif not self.late:
            self._asked_s = time.monotonic()
            self._probe = self._ask()

    @property
    def late(self) -> bool:
        """Returns whether it should have been ready by now."""
        return not self.was_ready and time.monotonic() >= self._until_s

    @property
    def where(self) -> str:
        """Returns ` at port 8000`, where that is known."""
        if self._port:
            return f" at port {self._port}"
        return ""

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began_s

    def takes(self, pid: int, status: int) -> bool:
        """Returns whether a process that ended was the probe, and takes its result."""
        if pid != self._probe:
            return False
        send(-pid, signal.SIGKILL)  # processes that it may have left behind
        self._probe, self._answer = 0, exit_code(status)
        # Most are ready soon; a slow one is probed at the configured interval.
        soon_s = max(SOON_S, self.took_s / 4)
        self._due_s = time.monotonic() + min(soon_s, self._ready["every_s"])
        if self._answer == 0 and self.state == STARTING:
            self.state = READY
            self.was_ready = True
        return True

    def ended(self, status: int) -> None:
        """Records the end of its process, and kills the processes that it left behind."""
        send(-self.pid, signal.SIGKILL)
        self.pid, self.code, self.state = 0, exit_code(status), ENDED
        self._end_probe()

    def start_later(self) -> float:
        """Returns seconds until it is started again."""
        self._ends = 1 if self.took_s >= STEADY_S else self._ends + 1
        wait_s: float = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(self._ends - 1, 16))
        self.state, self._due_s = RESTARTING, time.monotonic() + wait_s
        return wait_s

    def read(self) -> Optional[bytes]:
        """Returns the next piece of output: None when there is none now, b"" at its end."""
        try:
            data = os.read(self.output, READ_BYTES_MAX)
        except BlockingIOError:
            return None
        self._tail = (self._tail + data)[-LAST_WORDS_BYTES:]
        return data

    @property
    def last_words(self) -> str:
        """Returns the last few lines, for a message; "" when there is no output."""
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()[-LAST_WORDS_LINES:]
        if lines:
            return "\n".join(["; its last lines:", *lines])
        return ""

    @property
    def unready(self) -> str:
        """Explains in a message why it is not ready."""
        return probe.why(self._answer, self._ready, self._port)

    def tell_to_end(self) -> None:
        self._end_probe()
        if self.pid:
            send(-self.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._end_probe()
        if self.pid:
            send(-self.pid, signal.SIGKILL)

    def _end_probe(self) -> None:
        if self._probe:
            send(-self._probe, signal.SIGKILL)

    def _ask(self) -> int:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if self._ready.get("argv"):
                return self._spawn(self._ready["argv"], null)
            return _fork_session(lambda: os._exit(probe.asked(self._ready, self._port)), null)
        finally:
            os.close(null)

    def _spawn(self, argv: list[str], output: int) -> int:
        def work() -> NoReturn:
            enter(self._directory, None)
            become(argv, self._variables)

        return _fork_session(work, output)


def exit_code(status: int) -> int:
    """Converts a wait status to an exit code, as a shell does."""
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    return 128 + os.WTERMSIG(status)


def let_go(*, keep: int) -> None:
    """Resets a new process's signals and descriptors. keep: descriptors below stay open."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.closerange(keep, DESCRIPTORS_MAX)


def _fork_session(work: Callable[[], NoReturn], output: int) -> int:
    """Forks a process with a session of its own, which ends with this one; returns its pid. A TERM
    that ends the work does not reach it.
    """
    parent = os.getpid()

    def whole() -> NoReturn:
        os.setsid()
        end_with_parent(parent)
        os.dup2(output, 1)
        os.dup2(output, 2)
        let_go(keep=3)
        work()

    pid = os.fork()
    if pid == 0:
        guarded(whole)
    return pid
