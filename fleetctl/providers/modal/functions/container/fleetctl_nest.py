"""The nest: a process in a function's container that has the guest in memory and forks it for every
call.

Shipped beside the guest and run by fleetctl_attempt.py. A new start of Python costs more than most
tasks, and the body has threads of the SDK's, which a fork does not survive.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GUEST = "/.fleetctl/guest.py"
READ_BYTES = 1024 * 1024


def serve_forks(handle: int) -> None:
    """Forks for every request until no process can send another. handle: the requests' socket."""
    with open(GUEST, encoding="utf-8") as file:
        guest: dict[str, Any] = {"__name__": "guest"}
        exec(compile(file.read(), GUEST, "exec", dont_inherit=True), guest)  # our own
    sys.meta_path.insert(0, guest["OneFile"]())
    from fleetctl.guest.remote import main, supervise
    from fleetctl.guest.remote import stream as follow
    from fleetctl.guest.remote import verbs as attach
    from fleetctl.guest.remote.process import worker

    del attach, follow, supervise, worker  # in memory for all that are forked
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries them
    line = socket.socket(fileno=handle)
    while True:
        request, handles, _, _ = socket.recv_fds(line, READ_BYTES, 2)
        if not request:
            return
        if os.fork() == 0:
            code = 70
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                line.close()
                for place, one in enumerate(handles):
                    os.dup2(one, place)
                    os.close(one)
                code = main.main(["guest", *json.loads(request)])
            finally:
                os._exit(code)
        for one in handles:
            os.close(one)


if __name__ == "__main__":
    serve_forks(int(sys.argv[1]))
