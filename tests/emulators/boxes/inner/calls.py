"""The system calls of Linux that Python 3.11 lacks. Runs in the nursery: standard library only."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWUTS = 0x20000000, 0x04000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
PR_SET_CHILD_SUBREAPER = 36

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p]
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    _check(_libc.setns(descriptor, kind), "setns")


def subreaper() -> None:
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def sethostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind) if kind else None,
        flags,
        os.fsencode(data) if data else None,
    )
    _check(result, f"mount {kind} {source} at {target} {data}")


def bind(source: str, target: str, *, read_only: bool) -> None:
    mount(source, target, "", MS_BIND | MS_REC)
    if read_only:
        # Flags that the source's mount has locked must be named again, or the kernel refuses.
        flags = MS_REMOUNT | MS_BIND | MS_RDONLY | (os.statvfs(target).f_flag & 0x40E)
        mount("none", target, "", flags)


def pivot_root(new_root: str) -> None:
    """Make the mount at `new_root` the root, and let go of the old one."""
    os.chdir(new_root)
    number = _PIVOT_ROOT[os.uname().machine]
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
