"""The few system calls that Python 3.9 lacks, through ctypes. Linux only; called by the
supervisor's set-up.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Optional

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

MS_NOSUID = 2
MS_NODEV = 4
MS_BIND = 4096
MS_REC = 16384
MS_UNBINDABLE = 1 << 17
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "arm64": 41}
_CLONE = {"x86_64": 56, "aarch64": 220, "arm64": 220}
_MOUNT_SETATTR = 442  # from here on, all architectures share their numbers

_libc = ctypes.CDLL(None, use_errno=True)
_holding = ctypes.PyDLL(None, use_errno=True)


class MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def unshare(flags: int) -> None:
    _raise_errno(_libc.unshare(flags), "unshare")


def fork_into_namespaces() -> int:
    """Forks as os.fork does, but the child is pid 1 of new user, mount, pid and ipc namespaces: two
    forks less than by unshare. Raises OSError where that cannot be had.

    For a process with one thread. The fork's handlers run only when it forks in turn.
    """
    number = _CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(f"clone is not known for {os.uname().machine}")
    spaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC
    # With the lock of the interpreter held throughout, so that both have it afterwards.
    result = int(
        _holding.syscall(
            number,
            ctypes.c_ulong(spaces | signal.SIGCHLD),
            0,
            0,
            0,
            0,
        )
    )
    _raise_errno(result, "clone")
    return result


def mount(
    source: str,
    target: str,
    kind: Optional[str],
    flags: int,
    data: str = "",
) -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind) if kind else None,
        ctypes.c_ulong(flags),
        os.fsencode(data) if data else None,
    )
    _raise_errno(result, f"mount {target}")


def make_read_only(target: str) -> None:
    """The mount at `target` and all below it. Raises OSError where the kernel is older than
    5.12.
    """
    attr = MountAttr(attr_set=_MOUNT_ATTR_RDONLY)
    result = _libc.syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(target),
        _AT_RECURSIVE,
        ctypes.byref(attr),
        ctypes.sizeof(attr),
    )
    _raise_errno(result, f"mount_setattr {target}")


def pivot_root(new_root: str) -> None:
    """Makes `new_root` the root and unmounts the old one."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root is not known for {os.uname().machine}")
    os.chdir(new_root)
    # With both arguments the same, the old root lands on top of the new one, and is detached from
    # there.
    _raise_errno(_libc.syscall(number, b".", b"."), "pivot_root")
    _raise_errno(_libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")


def prctl(option: int, value: int) -> None:
    _raise_errno(
        _libc.prctl(
            option,
            ctypes.c_ulong(value),
            0,
            0,
            0,
        ),
        f"prctl {option}",
    )


def drop_capabilities() -> None:
    """Gives up every capability, also those that running a program as uid 0 would bring back."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # the first number that this kernel does not know
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _raise_errno(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def syscall(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    _raise_errno(result, f"system call {number}")
    return result


def _raise_errno(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
