"""The file tree that runs see: the host's, read-only, with our own directories at their paths.

Built inside a fresh mount namespace by spaces.py. No file is created on the host: where a mount
point is missing, its directory is replaced by a tmpfs that shows the same entries plus the new one.
"""

from __future__ import annotations

import os
import stat

from . import syscalls

SHADOW_ENTRIES_MAX = 4096  # each entry becomes one mount; beyond this the set-up would take seconds
OWN = ("proc", "tmp")  # top-level entries that runs get fresh


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
        self._own(os.path.dirname(path))
        if os.path.lexists(self.top + path):
            os.unlink(self.top + path)  # an entry of our shadow; the host's own is untouched
        os.symlink(target, self.top + path)

    def place(self, path: str) -> None:
        """Makes sure that `path` is a directory in the tree."""
        if os.path.isdir(self.top + path):
            return
        parent = os.path.dirname(path)
        self._own(parent)
        if os.path.islink(self.top + path):
            os.unlink(self.top + path)  # it leads nowhere; the host's own stays as it is
        if not os.path.isdir(self.top + path):
            os.mkdir(self.top + path)
            self._made.add(path.rstrip("/"))

    def _own(self, path: str) -> None:
        """Makes `path` a directory in which we can make entries."""
        path = path.rstrip("/")
        if path in self._made:
            return
        if not os.path.isdir(self.top + path):
            self._own(os.path.dirname(path))
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
