"""The store's directory: private, on a disk that can be trusted, locked by one process, and
remembered. Called when a store opens.

No rows are held here, only files around the databases: permissions, lock, marker, ballast. SQLite's
log needs working locks and memory shared between processes. Network and FUSE filesystems give one,
the other or neither, and corrupt the file on the day that two machines meet in it; so they are
refused.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common import state_paths as places
from fleetctl.common.errors import StoreError
from fleetctl.common.state_paths import open_private, refuse_foreign
from fleetctl.stores.sqlite_errors import disk_full

# Enough to record the end of some thousand runs; a guess that costs hardly any space.
BALLAST_BYTES = 1 << 20
BALLAST_RETRY_S = 60.0
LOCK_TRIES = 5  # a holder may just be leaving
# A process that checks for a holder shares the lock for some microseconds, or for seconds where the
# machine suspends that process; that is not a holder.
ASKED_TRIES = 1000
LOCK_RETRY_S = 0.01
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

MOUNTINFO = Path("/proc/self/mountinfo")
OVERRIDE = "FLEETCTL_UNSAFE_FS"
_NETWORK = ("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "davfs", "afs", "coda")
_CLUSTER = ("ceph", "lustre", "gfs2", "ocfs2", "beegfs", "gpfs", "orangefs", "glusterfs")
_FROM_THE_HOST = ("9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs")
_SHARED = frozenset((*_NETWORK, *_CLUSTER, *_FROM_THE_HOST))


def prepare_directory(home: Path) -> Path:
    """Makes `home` and its store directory (mode 0700, ours) and returns the latter. Raises
    StoreError.
    """
    store = home / places.STORE
    try:
        home.mkdir(
            mode=0o700,
            parents=True,
            exist_ok=True,
        )
        refuse_foreign(home)
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
        _probe_directory(store)
    except OSError as error:
        raise _unwritable_error(home, error) from error
    return store


def _probe_directory(store: Path) -> None:
    """Creates a file: permission bits neither show read-only mounts nor bind root."""
    probe = store / ".probe"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    probe.unlink()


def _unwritable_error(home: Path, error: OSError) -> StoreError:
    return StoreError(
        f"the state directory `{home}` cannot be written: {error.strerror}",
        hint="make it writable, or set FLEETCTL_HOME to a directory that is",
    )


@dataclass(frozen=True, slots=True)
class StoreLock:
    """The held lock on a store directory. The file names its holder for users; the kernel holds the
    lock.
    """

    fd: int

    def release(self) -> None:
        """Leaves the file empty, which marks a clean end. A killed holder leaves its line."""
        os.ftruncate(self.fd, 0)
        os.close(self.fd)


def lock_store(home: Path) -> StoreLock:
    """Takes the one writer's lock, or raises StoreError that names the holder, at once."""
    path = home / places.LOCK
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unwritable_error(home, error) from error
        if not _acquire_lock(fd):
            holder = os.pread(fd, 200, 0).decode("utf-8", "replace").split()
            os.close(fd)
            raise _locked_error(path, holder[0] if holder else "") from None
        if _still_there(fd, path):
            _sign_lock(fd, home)
            return StoreLock(fd)
        # The file was removed between our open and our lock, so our lock is useless.
        os.close(fd)


def _acquire_lock(fd: int) -> bool:
    held = 0
    for _ in range(ASKED_TRIES):
        if _try_lock(fd, fcntl.LOCK_EX):
            return True
        if _try_lock(fd, fcntl.LOCK_SH):
            fcntl.flock(fd, fcntl.LOCK_UN)  # there is no writer: another process only checks
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


def _sign_lock(fd: int, home: Path) -> None:
    """Writes our process into the file. The line has a fixed length, so that it covers that of a
    killed holder.
    """
    line = f"{os.getpid():<10} {_boot_id():<36} {_process_start():<20}\n".encode()
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
        raise _unwritable_error(home, error) from error


def _still_there(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _locked_error(path: Path, pid: str) -> StoreError:
    by = f"process `{pid}`" if pid else "another process"
    return StoreError(
        f"{by} holds `{path}`; one controller at a time may write the store",
        hint="run `fleetctl status` to see it, `fleetctl down` to stop it",
    )


def _boot_id() -> str:
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return "-"


def _process_start() -> str:
    """Returns when this process began, in the kernel's ticks: with the boot, its pid is
    unmistakable.
    """
    try:
        return Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return "-"


@dataclass(frozen=True, slots=True)
class StoreMarker:
    """The state directory's record of its store: its id, and the newest epoch."""

    store_id: str
    epoch: int


def read_marker(home: Path) -> StoreMarker | None:
    try:
        words = (home / places.STORE_MARKER).read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return None
    if len(words) == 2 and words[1].isdecimal():
        return StoreMarker(words[0], int(words[1]))
    # Damaged, yet it proves that a store existed; an id that no store has makes the opening refuse.
    return StoreMarker(words[0] if words else "", 0)


def write_marker(home: Path, marker: StoreMarker) -> None:
    """Writes the marker, durable when it returns; a crash leaves the old text or the new one.
    Raises StoreError.
    """
    try:
        _write_durably(home, home / places.STORE_MARKER, f"{marker.store_id} {marker.epoch}\n")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise disk_full(home) from error
        raise _unwritable_error(home, error) from error


def _write_durably(
    home: Path,
    path: Path,
    text: str,
) -> None:
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "w", encoding="utf-8", opener=open_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    for directory in (home / places.STORE, home):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)


CHANGES_LOST = (
    "the newest changes of the store were lost, since its log was cut or damaged; the providers"
    " were asked what began since"
)


def changes_lost(home: Path) -> bool:
    """Returns true if providers must be asked because of lost changes, and not because of a
    restore.
    """
    try:
        found = json.loads((home / places.RESTORED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "lost" in found


def note_lost(home: Path, changes: int) -> None:
    """Records for the next controller that recent runs are not in its store, as after a restore;
    see daemon/adopt.py. changes: how many are lost; 0 if unknown. Raises StoreError.
    """
    text = json.dumps({"lost": changes, "found_at_s": time.time()})
    try:
        _write_durably(home, home / places.RESTORED, text)
    except OSError as error:
        raise _unwritable_error(home, error) from error


class ChangesMark:
    """Counts a store's changes, beside its database: a log of the store that is cut or damaged is
    silently read as far as it is sound, and then the database has fewer changes.

    Written after each durable commit, without waiting for the disk: the count may be too low after
    a loss of power, never too high.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / places.CHANGES
        self._fd = -1

    def read(self, store_id: str) -> int:
        """Reads the count of the store of this id; 0 if unknown."""
        try:
            words = self._path.read_text(encoding="ascii", errors="replace").split()
        except OSError:
            return 0
        known = len(words) == 2 and words[0] == store_id and words[1].isdecimal()
        if known:
            return int(words[1])
        return 0

    def write(self, store_id: str, changes: int) -> None:
        """Writes the count; one that the disk refuses is written with a later change."""
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self._path, flags, 0o600)
            os.pwrite(self._fd, f"{store_id} {changes:<20}\n".encode(), 0)
        except OSError:
            return

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


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
        """Reserves the space again once there is plenty; cheap to call after every transaction."""
        if self._there or now_s < self._retry_at_s:
            return
        self._retry_at_s = now_s + BALLAST_RETRY_S
        free = os.statvfs(self._path.parent)
        if free.f_bavail * free.f_frsize < 4 * BALLAST_BYTES:
            return
        fresh = self._path.with_name("ballast.new")
        try:
            with open(fresh, "wb", opener=open_private) as file:
                # Random, because some filesystems keep no space for zeros.
                file.write(os.urandom(BALLAST_BYTES))
            fresh.replace(self._path)
            self._there = True
        except OSError:
            # Another process took the space in between. A store without ballast still works.
            fresh.unlink(missing_ok=True)


def refuse_shared_filesystem(directory: Path) -> None:
    """Raises StoreError unless `directory` is on a local filesystem or `FLEETCTL_UNSAFE_FS=1` is
    set.

    Elsewhere than on Linux the filesystem is unknown and never refused.
    """
    if os.environ.get(OVERRIDE) == "1" or not sys.platform.startswith("linux"):
        return
    kind = filesystem_of(directory, MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape"))
    if kind in _SHARED or kind.split(".")[0] in ("fuse", "fuseblk"):
        raise StoreError(
            f"`{directory}` is on a `{kind}` filesystem; the store needs a local one, such as ext4",
            hint="set FLEETCTL_HOME to a directory on a local disk, "
            f"or {OVERRIDE}=1 to risk losing the store",
        )


def filesystem_of(directory: Path, mountinfo: str) -> str:
    """Returns the type of the filesystem that holds `directory`, or "" when no line of `mountinfo`
    covers it.
    """
    wanted = os.path.join(os.path.realpath(directory), "")
    longest = ""
    kind = ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = os.path.join(_unescape_field(fields[4]), "")
        # If two mounts share one point, the later line is the visible one.
        if wanted.startswith(point) and len(point) >= len(longest):
            longest = point
            kind = source.split(" ")[0]
    return kind


def _unescape_field(field: str) -> str:
    """Decodes a path: the kernel writes blanks in a path as `\040`, and so on."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
