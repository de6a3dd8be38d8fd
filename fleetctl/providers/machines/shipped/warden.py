"""The warden: ends the boxes of controllers that have sent no message for as long as their lease.

One process a machine while there are boxes, forked by an agent and independent of it. An agent
renews the lease of its store at each beat of its controller. Times are counted here, never
compared: a clock that is set wrong ends nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

from fleetctl.providers.machines.shipped.boxes import Boxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Tuple

LOOK_S = 5.0
IDLE_LOOKS = 6  # without a box, until the warden leaves
CACHE_S = 7 * 86_400.0  # that a copy of a source is kept unused
LEASES = "leases"
LEASE_S = 86_400.0  # of a store whose lease somebody removed, as the default of `lease`
LOCK = "warden.lock"


def note_lease(root: str, fleet: str, lease_s: float) -> None:
    """Notes how long the work of a store goes on without a controller."""
    os.makedirs(os.path.join(root, LEASES), 0o700, exist_ok=True)
    path = os.path.join(root, LEASES, fleet)
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump({"lease_s": lease_s}, file)
    os.replace(f"{path}.{os.getpid()}", path)


def renew_lease(root: str, fleet: str, lease_s: float) -> None:
    try:
        os.utime(os.path.join(root, LEASES, fleet))
    except FileNotFoundError:  # somebody has removed it
        note_lease(root, fleet, lease_s)


def is_held(root: str) -> bool:
    """Returns whether a warden is there."""
    try:
        handle = os.open(os.path.join(root, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def ensure_warden(boxes: Boxes) -> None:
    """Starts the warden, unless one is there."""
    if not is_held(boxes.root):
        detach(lambda: Warden(boxes).serve())


def detach(work: Callable[[], None]) -> None:
    """Does it in a process that is independent of this one."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for handle in range(3):
            os.dup2(null, handle)
        os.closerange(3, 4096)
        os.chdir("/")
        work()
    finally:
        os._exit(0)


class Warden:
    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._heard: Dict[
            str, Tuple[int, float]
        ] = {}  # fleet -> its lease's stamp, 0 without a lease, and when it was first seen

    def serve(self) -> None:
        handle = os.open(
            os.path.join(self._boxes.root, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        idle = 0
        while idle < IDLE_LOOKS:
            idle = 0 if self.look() else idle + 1
            time.sleep(LOOK_S)

    def look(self) -> bool:
        """Ends what is due; returns whether there is any box."""
        names = self._boxes.names()
        for name in names:
            box = self._boxes.read(name)
            state = self._boxes.state(name, box) if box is not None else "gone"
            if box is None or state == "gone":
                continue
            if state == "stale":
                self._boxes.end(name)
            elif state in ("new", "live") and self._is_over(box["tags"].get("fleet", "")):
                self._expire(name)
        self._sweep()
        return bool(names)

    def _is_over(self, fleet: str) -> bool:
        path = os.path.join(self._boxes.root, LEASES, fleet)
        now_s = time.monotonic()
        try:
            stamp = os.stat(path).st_mtime_ns
            with open(path, encoding="utf-8") as file:
                lease_s = float(json.load(file)["lease_s"])
        except (OSError, ValueError, KeyError):
            stamp, lease_s = 0, LEASE_S
        known, since_s = self._heard.get(fleet, (-1, 0.0))
        if known != stamp:
            self._heard[fleet] = (stamp, now_s)
            return False
        return now_s - since_s > lease_s

    def _expire(self, name: str) -> None:
        """Ends the work of a box. Its journals stay for a controller that comes back."""
        path = os.path.join(self._boxes.path(name), "expired")
        with open(path, "w", encoding="utf-8"):
            pass
        pid = os.fork()  # a directory of its own is entered for it
        if pid == 0:
            try:
                self._boxes.kill(name)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def _sweep(self) -> None:
        """Removes ended boxes, and copies of sources that nobody uses."""
        self._boxes.sweep()
        try:
            entries = list(os.scandir(os.path.join(self._boxes.root, "sources")))
        except FileNotFoundError:
            return
        for entry in entries:
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > CACHE_S:
                os.unlink(entry.path)
