"""Makes a process give up for good: capabilities, new privileges, and (Landlock) writing elsewhere.

Called once by the supervisor after its namespaces stand, so that every run inherits it; or by each
run itself where runs still have to mount directories of their own.
"""

from __future__ import annotations

import ctypes
import os
import stat
from typing import Sequence

from . import syscalls

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
# Before ABI 2 every rename across directories is denied, which breaks git and pip; then it is left
# off.
_ABI_MIN = 2
_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13
_TRUNCATE = 1 << 14  # ABI 3


class _RulesetAttr(ctypes.Structure):
    _fields_ = [("handled_access_fs", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


def drop_privileges() -> None:
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def landlock_abi() -> int:
    """0 when this kernel has no Landlock, or one that is too old to live with."""
    try:
        abi = syscalls.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0
    if abi >= _ABI_MIN:
        return abi
    return 0


def allow_writes_only_to(places: Sequence[int]) -> bool:
    """Applies Landlock to this process and all that it starts. places: open directories. False =
    not here.
    """
    abi = landlock_abi()
    if not abi:
        return False
    handled = _WRITE_FILE | _REMOVE_AND_MAKE | _REFER | (_TRUNCATE if abi >= 3 else 0)
    attr = _RulesetAttr(handled)
    ruleset = syscalls.syscall(_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0)
    try:
        for place in places:
            allowed = handled
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                allowed &= _WRITE_FILE | _TRUNCATE
            rule = _PathBeneath(allowed, place)
            syscalls.syscall(
                _ADD_RULE,
                ruleset,
                _PATH_BENEATH,
                ctypes.byref(rule),
                0,
            )
        syscalls.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True
