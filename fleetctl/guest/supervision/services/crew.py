"""Leads an attempt that has services: they are started before the work, ready before it begins, and
ended after it.

Called in the forked process that leads a run, instead of the work; it never returns. Each service
has a session of its own: a TERM that ends the work leaves the services standing until the work has
ended. All services end when this process does, also where it is killed.
"""

from __future__ import annotations

import binascii
import os
import select
import signal
import time

from fleetctl.guest.supervision.processes import end_with_parent, reap_children, send_signal
from fleetctl.guest.supervision.services import process
from fleetctl.guest.supervision.services.process import Service, exit_code, let_go
from fleetctl.guest.task.program import run_guarded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Mapping, NoReturn, Optional, Sequence

    Tell = Callable[[Dict[str, Any]], None]
    Work = Callable[[Dict[str, str]], NoReturn]

FAILED = "ServiceFailed"
NOT_READY = "ServiceNotReady"
RESTART = "Restart"
IGNORE = "Ignore"
IDLE_S = 3600.0  # no call is due
GIVE_UP_S = 5.0  # after KILL; processes that live even then are left to the run's supervisor
DRAIN_READS_MAX = 256  # other processes may write for ever


class _CrewEnded(BaseException):
    """TERM arrived while the work does not run in this process."""


class _CrewFailed(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def lead_services(
    asked: Sequence[Mapping[str, Any]],
    variables: Mapping[str, str],
    directory: str,
    work: Work,
    *,
    grace_s: float,
    tell: Tell,
) -> NoReturn:
    """Runs the services and the work; never returns. asked: the services, as `Service` takes them;
    the `port` of a probe is 0 for a free port. variables: the whole environment of the work and the
    services. directory: where they begin. work: called in a process of its own with the variables
    of the ports. grace_s: seconds between the request to end and the kill. tell: sends one event
    to the run's supervisor.
    """
    signal.signal(signal.SIGTERM, _raise_ended)
    crew = _Crew(tell)
    status = 1 << 8
    try:
        ports = crew.enlist(asked, variables, directory)
        crew.await_ready()
        status = crew.watch(lambda: work(ports))
    except _CrewEnded:
        status = signal.SIGTERM
    except (_CrewFailed, OSError) as error:
        reason = error.reason if isinstance(error, _CrewFailed) else FAILED
        tell({"e": "error", "reason": reason, "message": str(error)})
        _log_line(str(error))
        crew.end_work(grace_s)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        crew.end(grace_s)
    _end_as(status)


class _Crew:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._services: list[Service] = []
        self._work = 0  # its pid
        self._status: Optional[int] = None  # its wait status
        self._poll = select.poll()
        self._outputs: dict[int, Service] = {}
        self._woken, writable = os.pipe()
        for handle in (self._woken, writable):
            os.set_blocking(handle, False)
        self._poll.register(self._woken, select.POLLIN)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def enlist(
        self,
        asked: Sequence[Mapping[str, Any]],
        variables: Mapping[str, str],
        directory: str,
    ) -> dict[str, str]:
        """Returns the variables with the ports. Raises _CrewFailed where a port is in use: its
        listener would be taken for the service.
        """
        numbers: dict[str, int] = {}
        for it in asked:
            port = _port_of(it)
            while port and port in numbers.values():
                port = process.free_port()
            numbers[it["name"]] = port
        ports = {_port_variable(name): str(port) for name, port in numbers.items() if port}
        known = {**variables, **ports}
        self._services = [Service(it, numbers[it["name"]], known, directory) for it in asked]
        return ports

    def await_ready(self) -> None:
        """Starts all, and returns when all are ready. Raises _CrewFailed, _CrewEnded, OSError."""
        for service in self._services:
            service.start()
            self._attend(service)
        while not all(it.was_ready for it in self._services):
            self._turn()

    def watch(self, work: Callable[[], NoReturn]) -> int:
        """Returns the wait status of the work, once it has ended. Raises _CrewFailed for a service
        that ends before.
        """
        leader = os.getpid()

        def begin() -> NoReturn:
            end_with_parent(leader)
            let_go(keep=4)  # all but the channel
            work()

        pid = os.fork()
        if pid == 0:
            run_guarded(begin, self._tell)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the work receives TERM through its group
        self._work = pid
        while self._status is None:
            self._turn()
        return self._status

    def end_work(self, grace_s: float) -> None:
        """Sends TERM, and KILL after the grace. The run's supervisor ends its other processes."""
        if not self._work:
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)
        until_s = time.monotonic() + grace_s
        while self._status is None and time.monotonic() < until_s:
            self._rest(until_s)
            self._reap()
        if self._status is None:
            send_signal(self._work, signal.SIGKILL)

    def end(self, grace_s: float) -> None:
        """Ends all services at once; returns when the last one has ended."""
        for service in self._services:
            service.tell_to_end()
        for patience_s in (grace_s, GIVE_UP_S):
            until_s = time.monotonic() + patience_s
            while any(it.pid for it in self._services) and time.monotonic() < until_s:
                self._rest(until_s)
                self._reap()
            for service in self._services:
                service.kill()
        for service in self._services:
            self._drain(service)

    def _turn(self) -> None:
        """Waits for an event, and calls what is due."""
        for service in self._services:
            before = service.state
            service.look()
            if service.state != before:
                self._attend(service)
            if service.late and not service.was_ready:
                raise _CrewFailed(NOT_READY, self._late(service))
        self._rest(min(it.due_s() for it in self._services))
        for service in self._reap():
            self._handle_end(service)

    def _rest(self, until_s: float) -> None:
        """Waits until then at the most, and reads output."""
        wait_s = min(IDLE_S, max(0.0, until_s - time.monotonic()))
        for handle, _ in self._poll.poll(wait_s * 1000 + 0.5):
            if handle == self._woken:
                os.read(self._woken, 4096)
            else:
                self._pump(self._outputs[handle])

    def _reap(self) -> list[Service]:
        """Returns services whose processes have ended. Results of probes are taken second: another
        listener than the ended service may have replied.
        """
        found = dict(reap_children())
        if self._work in found:
            self._status = found.pop(self._work)
        gone = [it for it in self._services if it.pid in found]
        for service in gone:
            service.ended(found.pop(service.pid))
        for pid, status in found.items():
            for service in self._services:
                before = service.state
                if service.takes(pid, status) and service.state != before:
                    took = f"{service.took_s:.1f} s"
                    _log_line(f"service `{service.name}` is ready{service.where} after {took}")
                    self._note(service)
        return gone

    def _handle_end(self, service: Service) -> None:
        """Handles a service's end. Raises _CrewFailed where the work cannot do without it."""
        self._drain(service)
        text = f"service `{service.name}` exited with code {service.code}"
        if not service.was_ready:
            raise _CrewFailed(FAILED, f"{text} before it was ready{service.last_words}")
        if self._status is not None:
            self._note(service)  # the work has ended, and needs it no more
        elif service.on_exit == RESTART:
            _log_line(f"{text}; it is started again in {service.start_later():.0f} s")
            self._note(service)
        elif service.on_exit == IGNORE:
            _log_line(f"{text}; its `onExit` is Ignore")
            self._note(service)
        else:
            self._note(service)
            raise _CrewFailed(FAILED, f"{text} while the work ran{service.last_words}")

    def _late(self, service: Service) -> str:
        self._drain(service, close=False)
        text = f"service `{service.name}` was not ready after {service.took_s:.0f} s"
        return f"{text}: {service.unready}{service.last_words}"

    def _attend(self, service: Service) -> None:
        """Registers a service that has been started."""
        self._outputs[service.output] = service
        self._poll.register(service.output, select.POLLIN)
        self._note(service)

    def _pump(self, service: Service) -> bool:
        """Passes some output on; False when there is none now."""
        data = service.read() if service.output else None
        if data == b"":
            self._hang_up(service)
        if data:
            text = binascii.b2a_base64(data, newline=False).decode()
            self._tell({"e": "service_log", "name": service.name, "b64": text})
        return bool(data)

    def _drain(self, service: Service, *, close: bool = True) -> None:
        """Passes the last output on."""
        for _ in range(DRAIN_READS_MAX):
            if not self._pump(service):
                break
        if close:
            self._hang_up(service)

    def _hang_up(self, service: Service) -> None:
        if service.output:
            self._poll.unregister(service.output)
            del self._outputs[service.output]
            os.close(service.output)
            service.output = 0

    def _note(self, service: Service) -> None:
        self._tell({"e": "service", "name": service.name, "state": service.state})


def _port_of(asked: Mapping[str, Any]) -> int:
    """Returns a probe's port; 0 where none is given. Raises _CrewFailed."""
    port = (asked["ready"] or {}).get("port")
    if port is None:
        return 0
    if port == 0:
        return process.free_port()
    if process.is_taken(port):
        name = asked["name"]
        raise _CrewFailed(
            FAILED,
            f"port {port} is in use before service `{name}` is started; where tasks share a"
            f" machine, `port: auto` gives each a free one, in {_port_variable(name)}",
        )
    return int(port)


def _port_variable(name: str) -> str:
    return f"FLEETCTL_PORT_{name.replace('-', '_').upper()}"


def _raise_ended(_number: int, _frame: Optional[FrameType]) -> None:
    raise _CrewEnded


def _end_as(status: int) -> NoReturn:
    """Ends as the work did, so that the supervisor classifies its end correctly."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(exit_code(status))


def _log_line(text: str) -> None:
    """Writes a line of ours to the log of the run."""
    os.write(2, f"fleetctl: {text}\n".encode("utf-8", "backslashreplace"))
