"""Makes volumes durable: `sync` of each mount, which commits it where the provider means it so.

Called by attempt.py while a run lives and at its end.
"""

from __future__ import annotations

import os

from fleetctl.guest.remote.process.child import Leader, execute_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn

    from fleetctl.guest.remote.loop import Loop


def sync_mounts(
    loop: Loop,
    base: dict[str, str],
    mounts: list[str],
    then: Callable[[str], None],
) -> None:
    """Syncs one mount after the other, then calls `then` with the failure, or "". base: the
    environment.
    """
    if not mounts:
        then("")
        return
    mount = mounts[0]

    def work() -> NoReturn:
        execute_program(["sync", mount], base, "/")

    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        leader = Leader(loop, work, null)
    except OSError as error:
        then(f"`sync {mount}` could not be started: {error}")
        return
    finally:
        os.close(null)

    def ended() -> None:
        leader.hang_up()
        if leader.status:
            then(f"`sync {mount}` failed, so what the task wrote there may be lost")
        else:
            sync_mounts(loop, base, mounts[1:], then)

    leader.ended = ended
