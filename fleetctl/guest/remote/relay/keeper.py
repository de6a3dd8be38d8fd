"""The relay in the supervisor: its addresses, the process that listens there, and the verb `relay`,
which joins it for a run and is its line.

The addresses are bound here, before a task begins, and stay for the sandbox's life: a listening
process that dies is started again behind them. Its memory is then lost, and clients repeat their
requests. The process of the verb `relay` may die as well: no request is lost with it.
"""

from __future__ import annotations

import _signal
import _socket
import gc
import os
import select
import time

from fleetctl.guest.task.text import encode_compact

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, NoReturn, Optional, Protocol

    class Loop(Protocol):
        """The supervisor's loop; see remote/loop.py."""

        def after(
            self,
            name: str,
            delay_s: float,
            act: Callable[[], object],
        ) -> None: ...

        def watch_child(self, pid: int, act: Callable[[int], object]) -> None: ...


SOCKET = "relay"  # in the state directory: where the verb `relay` joins
AGAIN_S = 0.5  # until a process that died is started again
DESCRIPTORS_MAX = 1024  # more than the supervisor ever has

BEGIN_S, LOOK_S = 60.0, 0.05  # until the relay listens: its run may be about to begin
READ_BYTES = 256 * 1024
NOBODY = 5  # the exit code when there is no relay


class Relay:
    def __init__(self, loop: Loop) -> None:
        """Listens on a free port of loopback. Raises OSError where no address can be bound."""
        self._loop = loop
        self._listener = _open_listener(_socket.AF_INET, ("127.0.0.1", 0))
        self._joining = _open_listener(_socket.AF_UNIX, SOCKET)
        self._run: dict[str, str] = {}  # the message about the run that may ask now
        self._start()

    def variables(self, order: dict[str, Any], secrets: dict[str, str]) -> dict[str, str]:
        """Returns the secrets of a run, with the address of the listener where its order leaves it
        open; from now on the run may make calls.
        """
        asked = order["relay"]
        self._run = {"run": order["run"], "token": secrets[asked["token"]]}
        self._send(self._run)
        base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        return {name: value.replace(asked["base"], base) for name, value in secrets.items()}

    def end(self, run: str) -> None:
        """Ends the calls of the run."""
        if self._run.get("run") == run:
            self._run = {}
            self._send({"over": run})

    def _send(self, message: dict[str, str]) -> None:
        try:
            self._control.sendall((encode_compact(message) + "\n").encode())
        except OSError:
            return  # it has just died, and the next process gets the message

    def _start(self) -> None:
        self._control, theirs = _socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _become_listener(self._listener, self._joining, theirs)
        theirs.close()
        self._loop.watch_child(pid, self._close_control)

    def _close_control(self, _: int) -> None:
        self._control.close()
        self._loop.after("relay", AGAIN_S, self._start_again)

    def _start_again(self) -> None:
        try:
            self._start()
        except OSError:  # no process can be started now
            self._loop.after("relay", AGAIN_S, self._start_again)
            return
        if self._run:
            self._send(self._run)


def _open_listener(family: int, address: Any) -> _socket.socket:
    listener = _socket.socket(family, _socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(128)
    return listener


def _become_listener(*sockets: _socket.socket) -> NoReturn:
    """Becomes the process that listens. It inherits neither the supervisor's lock nor its signals;
    it ends when the last of `sockets`, the supervisor's own, is closed.
    """
    code = 70
    try:
        os.setsid()
        _signal.set_wakeup_fd(-1)
        for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT):
            _signal.signal(number, _signal.SIG_DFL)
        kept = sorted(one.fileno() for one in sockets)
        for low, high in zip([2, *kept], [*kept, DESCRIPTORS_MAX]):  # Python 3.9
            os.closerange(low + 1, high)
        gc.enable()
        from fleetctl.guest.remote.relay.process import serve_relay

        serve_relay(*[one.fileno() for one in sockets])
        code = 0
    except BaseException:  # no exception may reach the supervisor's code
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def join_relay(run: str) -> int:
    """Returns the exit code when either side has closed."""
    relay = _connect_relay()
    if relay is None:
        return NOBODY
    relay.sendall(run.encode() + b"\n")
    poll = select.poll()
    for handle in (0, relay.fileno()):
        poll.register(handle, select.POLLIN)
    while True:
        for handle, _ in poll.poll():
            data = os.read(handle, READ_BYTES)
            if not data:
                return 0
            if handle == 0:
                relay.sendall(data)
            else:
                _write_all(data)


def _connect_relay() -> Optional[_socket.socket]:
    until_s = time.monotonic() + BEGIN_S
    while True:
        relay = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            relay.connect(SOCKET)
        except OSError:
            relay.close()
        else:
            return relay
        if time.monotonic() > until_s:
            return None
        time.sleep(LOOK_S)


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
