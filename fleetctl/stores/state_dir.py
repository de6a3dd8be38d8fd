"""The store's directory: private, local, locked by one process, and remembered. Called when the
store opens.

Holds no rows. Everything here is about files around the databases: permissions, lock, marker,
ballast.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common import home as places
from fleetctl.common.errors import StoreError
from fleetctl.stores.errors import disk_full
from fleetctl.stores.filesystem import refuse_shared_filesystem

# Enough to record the end of some thousand runs; a guess that costs nobody anything.
BALLAST_BYTES = 1 << 20
BALLAST_RETRY_S = 60.0
LOCK_TRIES = 5  # a holder may just be leaving
# Whoever asks if there is a holder shares the lock for some microseconds, or for seconds where the
# machine lets that process stand still; that is not a holder.
ASKED_TRIES = 1000
LOCK_RETRY_S = 0.01
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def prepare(home: Path) -> Path:
    """Make `home` and its store directory (mode 0700, ours) and return the latter. Raises
    StoreError.
    """
    store = home / places.STORE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_shared_filesystem(home)
        store.mkdir(mode=0o700, exist_ok=True)
        found = store.stat()
        if found.st_uid != os.geteuid():
            raise StoreError(
                f"`{store}` belongs to user `{found.st_uid}`, not to you (`{os.geteuid()}`)",
                hint="set FLEETCTL_HOME to a directory of your own",
            )
        if found.st_mode & 0o077:
            store.chmod(0o700)
        _probe(store)
    except OSError as error:
        raise _unwritable(home, error) from error
    return store


def _probe(store: Path) -> None:
    """Make a file: permission bits neither tell of read-only mounts nor bind root."""
    probe = store / ".probe"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    probe.unlink()


def _unwritable(home: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the state directory `{home}` cannot be written: {error.strerror}",
        hint="make it writable, or set FLEETCTL_HOME to a directory that is",
    )


@dataclass(frozen=True, slots=True)
class Lock:
    """The held lock on a store directory. The file names its holder for people; the kernel holds
    the lock.
    """

    fd: int

    def release(self) -> None:
        """Leaves the file empty, which says: in good order. A killed holder leaves its line."""
        os.ftruncate(self.fd, 0)
        os.close(self.fd)


def lock(home: Path) -> Lock:
    """Take the one writer's lock, or raise StoreError that names the holder, at once."""
    path = home / places.LOCK
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unwritable(home, error) from error
        if not _locked(fd):
            holder = os.pread(fd, 200, 0).decode("utf-8", "replace").split()
            os.close(fd)
            raise _held(path, holder[0] if holder else "") from None
        if _still_there(fd, path):
            _sign(fd, home)
            return Lock(fd)
        # Someone removed the file between our open and our lock: what we hold guards nothing.
        os.close(fd)


def _locked(fd: int) -> bool:
    held = 0
    for _ in range(ASKED_TRIES):
        if _try_lock(fd, fcntl.LOCK_EX):
            return True
        if _try_lock(fd, fcntl.LOCK_SH):
            fcntl.flock(fd, fcntl.LOCK_UN)  # nobody writes: somebody asks
        elif (held := held + 1) == LOCK_TRIES:
            return False
        time.sleep(LOCK_RETRY_S)
    return False


def _try_lock(fd: int, sort: int) -> bool:
    try:
        fcntl.flock(fd, sort | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(fd: int, home: Path) -> None:
    """Write who we are. The line is of one length, so that it covers that of a killed holder."""
    line = f"{os.getpid():<10} {_boot_id():<36} {_begun():<20}\n".encode()
    try:
        try:
            os.pwrite(fd, line, 0)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # A controller that cannot start cannot stop anything either.
            (home / places.BALLAST).unlink(missing_ok=True)
            os.pwrite(fd, line, 0)
    except OSError as error:
        os.close(fd)
        raise _unwritable(home, error) from error


def _still_there(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _held(path: Path, pid: str) -> StoreError:
    by = f"process `{pid}`" if pid else "another process"
    return StoreError(
        f"{by} holds `{path}`; one controller at a time may write the store",
        hint="run `fleetctl status` to see it, `fleetctl down` to stop it",
    )


def _boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else "-"


def _begun() -> str:
    """When this process began, in the kernel's ticks: with the boot, its pid is unmistakable."""
    try:
        return Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return "-"


@dataclass(frozen=True, slots=True)
class Marker:
    """What the home remembers of its store: which one it was, and the newest epoch."""

    store_id: str
    epoch: int


def read_marker(home: Path) -> Marker | None:
    try:
        words = (home / places.STORE_MARKER).read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return None
    if len(words) == 2 and words[1].isdecimal():
        return Marker(words[0], int(words[1]))
    # Damaged, yet it says that a store existed; an id that no store has makes the opening refuse.
    return Marker(words[0] if words else "", 0)


def write_marker(home: Path, marker: Marker) -> None:
    """Durable when it returns; a crash leaves the old text or the new one. Raises StoreError."""
    try:
        _write_durably(home, home / places.STORE_MARKER, f"{marker.store_id} {marker.epoch}\n")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise disk_full(home) from error
        raise _unwritable(home, error) from error


def _write_durably(home: Path, path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    for directory in (home / places.STORE, home):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)


class Ballast:
    """Space kept aside, given up when the disk is full: stops and outcomes still find room."""

    def __init__(self, home: Path) -> None:
        self._path = home / places.BALLAST
        self._there = self._path.exists()
        self._retry_at_s = 0.0

    def drop(self, *, now_s: float) -> None:
        self._path.unlink(missing_ok=True)
        self._there = False
        self._retry_at_s = now_s + BALLAST_RETRY_S

    def refill(self, *, now_s: float) -> None:
        """Set the space aside again once there is plenty; cheap to call after every transaction."""
        if self._there or now_s < self._retry_at_s:
            return
        self._retry_at_s = now_s + BALLAST_RETRY_S
        free = os.statvfs(self._path.parent)
        if free.f_bavail * free.f_frsize < 4 * BALLAST_BYTES:
            return
        fresh = self._path.with_name("ballast.new")
        try:
            with open(fresh, "wb") as file:
                # Random, because some filesystems keep no space for zeros.
                file.write(os.urandom(BALLAST_BYTES))
            fresh.replace(self._path)
            self._there = True
        except OSError:
            # The space went to somebody else in between. A store without ballast still works.
            fresh.unlink(missing_ok=True)
