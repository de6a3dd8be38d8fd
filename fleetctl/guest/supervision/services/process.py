"""One service: its process, its output, whether it is ready, which a process of its own checks once
at a time, and the record of its events.

crew.py decides what the end of a service's process means for the run.
"""

from __future__ import annotations

import binascii
import os
import signal
import time

from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.supervision.processes import end_with_parent, send_signal
from fleetctl.guest.supervision.services.names import service_name
from fleetctl.guest.task.program import enter_directory, replace_process, run_guarded

TYPE_CHECKING = False

if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Iterable, Mapping, NoReturn, Optional

    from fleetctl.guest.journal.masking import Masking
    from fleetctl.guest.journal.record import Journal


READ_BYTES_MAX = 48 * 1024  # one piece of output, which travels as one event
LAST_WORDS_BYTES = 1024
LAST_WORDS_LINES = 5
DESCRIPTORS_MAX = 4096  # more than the run's supervisor has open
SOON_S = 0.05  # between the first two looks at whether it is ready
ANSWER_S = 11.0  # a slower probe is ended; our own ones take 10
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0  # between an end and the next start
STEADY_S = 60.0  # after this long a life its next end counts as the first
STATES = STARTING, READY, RESTARTING, ENDED = "Starting", "Ready", "Restarting", "Ended"

ANSWERS, SILENT, REFUSED = 0, 1, 2  # 1: no program listens there; 2: one does, with another reply
ASK_S = 10.0  # for one reply
HEAD_BYTES_MAX = 256  # of a reply; its status is in the first line
ADDRESSES = ("127.0.0.1", "::1")  # of this sandbox alone

LOG_BYTES_MAX = 16 * 1024 * 1024  # of each service
NOTES_MAX = 200  # of each run; a service may be started again and again


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
        send_signal(-pid, signal.SIGKILL)  # processes that it may have left behind
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
        send_signal(-self.pid, signal.SIGKILL)
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
        return explain_probe(self._answer, self._ready, self._port)

    def tell_to_end(self) -> None:
        self._end_probe()
        if self.pid:
            send_signal(-self.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._end_probe()
        if self.pid:
            send_signal(-self.pid, signal.SIGKILL)

    def _end_probe(self) -> None:
        if self._probe:
            send_signal(-self._probe, signal.SIGKILL)

    def _ask(self) -> int:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if self._ready.get("argv"):
                return self._spawn(self._ready["argv"], null)
            return _fork_session(lambda: os._exit(ask_service(self._ready, self._port)), null)
        finally:
            os.close(null)

    def _spawn(self, argv: list[str], output: int) -> int:
        def work() -> NoReturn:
            enter_directory(self._directory, None)
            replace_process(argv, self._variables)

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
        run_guarded(whole)
    return pid


def ask_service(ready: Mapping[str, Any], port: int) -> int:
    """Checks once whether a service is ready; returns the exit code. ready: with `path` of an HTTP
    request, or without for a connection. Runs in a process of its own, so that the supervisor of
    services never waits for an answer.
    """
    path = ready.get("path")
    for address in ADDRESSES:
        line = connect_port(address, port)
        if line is None:
            continue
        try:
            return ANSWERS if path is None or _answers_well(line, path, port) else REFUSED
        except OSError:
            return REFUSED
        finally:
            line.close()
    return SILENT


def is_taken(port: int) -> bool:
    """Returns whether a program listens there."""
    for address in ADDRESSES:
        line = connect_port(address, port)
        if line is not None:
            line.close()
            return True
    return False


def free_port() -> int:
    """Returns a port at which no program listens now."""
    import socket

    with socket.socket() as line:
        line.bind((ADDRESSES[0], 0))
        return int(line.getsockname()[1])


def explain_probe(
    code: Optional[int],
    ready: Mapping[str, Any],
    port: int,
) -> str:
    """Explains the last result in a message. code: None before the first."""
    if ready.get("argv"):
        how = "did not end in time" if code in (None, 137) else f"exited with code {code}"
        return f"`{' '.join(ready['argv'])}` {how}"
    if code == SILENT:
        return f"nothing listens at port {port}"
    path = ready.get("path")
    what = f"`http://localhost:{port}{path}`" if path is not None else f"port {port}"
    if code is None:
        return f"{what} does not answer"
    return f"{what} does not answer with 200 to 399"


def connect_port(address: str, port: int) -> Optional[socket.socket]:
    """Connects; None where no program accepts."""
    import socket  # few runs need it, and every supervisor loads this file

    try:
        return socket.create_connection((address, port), ASK_S)
    except OSError:
        return None


def _answers_well(
    line: socket.socket,
    path: str,
    port: int,
) -> bool:
    """Returns whether the status is a success or a redirect, as in Kubernetes. Raises OSError."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nUser-Agent: fleetctl\r\n"
    line.sendall(f"{request}Accept: */*\r\nConnection: close\r\n\r\n".encode())
    head = b""
    while b"\r\n" not in head and len(head) < HEAD_BYTES_MAX:
        data = line.recv(HEAD_BYTES_MAX)
        if not data:
            break
        head += data
    words = head.split(b" ", 2)
    status = words[1][:3] if len(words) > 1 and words[0].startswith(b"HTTP/") else b""
    return status.isdigit() and 200 <= int(status) < 400


class ServiceRecords:
    """Records the events of a run's services: a log of each, and their states in the journal. The
    events come from within the sandbox, so invalid ones are dropped.
    """

    def __init__(
        self,
        names: Iterable[str],
        directory: int,
        run: str,
        bytes_max: int,
        masking: Optional[Masking] = None,
    ) -> None:
        """directory: the open one of journals and logs; bytes_max: of a log of the run; masking:
        as for the run's logs.
        """
        most = min(bytes_max, LOG_BYTES_MAX)
        self._logs = {
            name: LogFile(directory, service_name(run, name), most, masking) for name in names
        }
        self._states = dict.fromkeys(self._logs, STARTING)
        self._notes = 0

    def hear(self, event: dict[str, Any], journal: Journal) -> bool:
        """Takes an event of the run's leader; returns whether the journal gained a line."""
        kind = event.get("e")
        name = event.get("name")
        if not isinstance(name, str) or name not in self._logs:
            return False
        if kind == "service_log":
            self._write(name, event.get("b64"))
        elif kind == "service" and event.get("state") in STATES and self._notes < NOTES_MAX:
            self._notes += 1
            self._states[name] = event["state"]
            return journal.note("services", {"services": self._states})
        return False

    def close(self) -> None:
        """Closes the complete logs."""
        for log in self._logs.values():
            log.close()

    def _write(self, name: str, text: Any) -> None:
        try:
            data = binascii.a2b_base64(text)
        except (TypeError, ValueError):
            return
        self._logs[name].write(data)
