"""The file tree that runs see: the host's, read-only, with our own directories at their paths, and
short names for those that lie deep below the state directory.

The tree is built inside a fresh mount namespace by spaces.py. No file is created on the host: where
a mount point is missing, its directory is replaced by a tmpfs that shows the same entries plus the
new one.

Short names keep the paths of Unix sockets within 107 bytes, 103 on macOS. The kernel counts the
text that it is given, so a symlink in /tmp suffices. Python's multiprocessing adds 32 bytes to
$TMPDIR and Ray 66, so $TMPDIR may have 41.
"""

from __future__ import annotations

import os
import stat

from fleetctl.guest.journal.digest import sha256

from . import syscalls

SHADOW_ENTRIES_MAX = 4096  # each entry becomes one mount; beyond this the set-up would take seconds
OWN = ("proc", "tmp")  # top-level entries that runs get fresh

TOP = "/tmp"  # in namespaces the runs' own; else what is made there is checked
DIGITS = 10


class MountTree:
    """A root under construction at `top`; paths are those that runs will see."""

    def __init__(self, top: str) -> None:
        self.top = top
        self._made: set[str] = {""}  # directories of ours (tmpfs), where entries can be made freely
        syscalls.mount(
            "tmpfs",
            top,
            "tmpfs",
            syscalls.MS_NOSUID | syscalls.MS_NODEV,
            "mode=0755",
        )
        # So that binding a host directory that holds `top` does not copy the tree into itself.
        syscalls.mount("none", top, None, syscalls.MS_UNBINDABLE)
        for name in os.listdir("/"):
            if name not in OWN:
                self._show("/" + name, writable=name == "dev")
        for name in OWN:
            os.mkdir(os.path.join(top, name))

    def tmpfs(self, path: str, mode: str = "0755") -> None:
        """An empty directory of our own at `path`, hiding what is there."""
        self.place(path)
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount(
            "tmpfs",
            self.top + path,
            "tmpfs",
            flags,
            f"mode={mode}",
        )
        self._made.add(path)

    def proc(self) -> None:
        syscalls.mount("proc", self.top + "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV)

    def bind(
        self,
        source: str,
        path: str,
        *,
        read_only: bool,
    ) -> None:
        """Shows the host's directory `source` at `path`."""
        self.place(path)
        syscalls.mount(source, self.top + path, None, syscalls.MS_BIND | syscalls.MS_REC)
        if read_only:
            _read_only(self.top + path)

    def link(self, path: str, target: str) -> None:
        """A symlink at `path`; where a directory is in the way, the target is shown there
        instead.
        """
        if os.path.isdir(self.top + path) and not os.path.islink(self.top + path):
            syscalls.mount(
                self.top + target, self.top + path, None, syscalls.MS_BIND | syscalls.MS_REC
            )
            return
        self._make_directory(os.path.dirname(path))
        if os.path.lexists(self.top + path):
            os.unlink(self.top + path)  # an entry of our shadow; the host's own is untouched
        os.symlink(target, self.top + path)

    def place(self, path: str) -> None:
        """Makes sure that `path` is a directory in the tree."""
        if os.path.isdir(self.top + path):
            return
        parent = os.path.dirname(path)
        self._make_directory(parent)
        if os.path.islink(self.top + path):
            os.unlink(self.top + path)  # it leads nowhere; the host's own stays as it is
        if not os.path.isdir(self.top + path):
            os.mkdir(self.top + path)
            self._made.add(path.rstrip("/"))

    def _make_directory(self, path: str) -> None:
        """Makes `path` a directory in which we can make entries."""
        path = path.rstrip("/")
        if path in self._made:
            return
        if not os.path.isdir(self.top + path):
            self._make_directory(os.path.dirname(path))
            os.mkdir(self.top + path)
            self._made.add(path)
            return
        self._shadow(path)

    def _shadow(self, path: str) -> None:
        """Replaces a host directory by a tmpfs that shows its entries."""
        try:
            real = os.open(self.top + path, os.O_RDONLY | os.O_DIRECTORY)
        except PermissionError:
            self._empty(path)  # a directory that we may not read shows no entries either way
            return
        try:
            names = os.listdir(real)
            if len(names) > SHADOW_ENTRIES_MAX:
                limit = f"at most {SHADOW_ENTRIES_MAX} can be shadowed"
                raise OSError(f"{path} has {len(names)} entries; {limit}")
            self._empty(path)
            for name in names:
                source = f"/proc/self/fd/{real}/{name}"
                self._show(os.path.join(path, name), source=source, writable=False)
        finally:
            os.close(real)

    def _empty(self, path: str) -> None:
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount(
            "tmpfs",
            self.top + path,
            "tmpfs",
            flags,
            "mode=0755",
        )
        self._made.add(path)

    def _show(
        self,
        path: str,
        *,
        source: str = "",
        writable: bool,
    ) -> None:
        """Shows the host's entry at the same path: a bind of directories and files, a copy of
        symlinks.
        """
        source = source or path
        target = self.top + path
        try:
            kind = os.lstat(source).st_mode
        except OSError:
            return  # vanished, or not ours to see
        if stat.S_ISLNK(kind):
            os.symlink(os.readlink(source), target)
            return
        if stat.S_ISDIR(kind):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)
        if not writable:
            _read_only(target)


def _read_only(target: str) -> None:
    syscalls.make_read_only(target)


def prepare_names(supervisor: str) -> str:
    """Returns a directory for the names of this supervisor's runs; "" where it cannot be made.

    supervisor: the supervisor's own directory, which names it: the next supervisor there finds it
    again.
    """
    path = _names_dir(supervisor)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:  # of a supervisor that was killed, or of somebody who wants to be us
        return path if _is_ours(path) else ""
    except OSError:
        return ""
    return path


def short_name(
    directory: str,
    work: str,
    temporary: str,
) -> str:
    """Returns a short name of `temporary`, or its own where no short one can be made. Fixed when a
    run took it away: the next run in the same work directory counts on it.
    """
    short = f"{directory}/{os.path.basename(work)}"
    try:
        if directory and not (os.path.islink(short) and os.readlink(short) == temporary):
            if os.path.lexists(short):
                os.unlink(short)
            os.symlink(temporary, short)
    except OSError:
        return temporary
    if directory:
        return short
    return temporary


def remove_names(supervisor: str) -> None:
    """Removes the names that `prepare_names` and `short_name` made, if any."""
    path = _names_dir(supervisor)
    try:
        if not _is_ours(path):
            return
        for one in os.listdir(path):
            os.unlink(f"{path}/{one}")
        os.rmdir(path)
    except OSError:
        return  # a run has put a file there; only a name is wasted


def _names_dir(supervisor: str) -> str:
    return f"{TOP}/f{sha256(supervisor.encode()).hexdigest()[:DIGITS]}"


def _is_ours(path: str) -> bool:
    """A directory, not a link to one, that only we can write to."""
    found = os.lstat(path)
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
    return private and found.st_uid == os.geteuid()
