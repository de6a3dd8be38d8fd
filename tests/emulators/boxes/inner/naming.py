"""What /proc tells of a process: its command line, its variables and its name, set without an exec.

Runs in the nursery and its forks. A kernel that is built without PR_SET_MM_MAP goes on to show what
the nursery was started with.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PR_SET_NAME, PR_SET_MM, PR_SET_MM_MAP = 15, 35, 14
NAME_BYTES_MAX = 15

# Fields of /proc/self/stat (see proc_pid_stat(5)) in the order of `struct prctl_mm_map`.
_FIELDS = {"code": 26, "code_end": 27, "data": 45, "data_end": 46, "heap": 47, "stack": 28}
_HEAP_END, _STACK, _WORDS, _FIELDS_IN_ALL = 5, 6, 7, 13
_EXE_AS_IT_IS = 0xFFFFFFFF << 32
_libc = ctypes.CDLL(None)
_libc.sbrk.restype = ctypes.c_void_p
_libc.sbrk.argtypes = [ctypes.c_ssize_t]
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
# Made here: to make a type takes more memory than all else in `rename`.
_table = (ctypes.c_uint64 * _FIELDS_IN_ALL)()
_words: list[object] = []  # the kernel reads it, so it must stay where it is


def look() -> None:
    """Once, in the nursery: a fork has everything at the same places."""
    with open("/proc/self/stat") as file:
        told = file.read().rpartition(")")[2].split()
    *memory, stack = (int(told[field - 3]) for field in _FIELDS.values())
    _table[:_HEAP_END], _table[_STACK] = memory, stack
    _table[_FIELDS_IN_ALL - 1] = _EXE_AS_IT_IS


def rename(argv: Sequence[str], env: Mapping[str, str], name: str) -> None:
    """As an exec of the file `name` would."""
    words = "\0".join([*argv, ""]).encode("utf-8", "surrogateescape")
    variables = "".join([f"{key}={value}\0" for key, value in env.items()])
    whole = bytearray(words + variables.encode("utf-8", "surrogateescape"))
    begin = _place(whole)
    middle, end = begin + len(words), begin + len(whole)
    _table[_HEAP_END] = _libc.sbrk(0)
    _table[_WORDS : _WORDS + 4] = (begin, middle, middle, end)
    _libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(_table), ctypes.sizeof(_table), 0)
    short = bytearray(name.encode("utf-8", "surrogateescape")[:NAME_BYTES_MAX] + b"\0")
    _libc.prctl(PR_SET_NAME, _place(short), 0, 0, 0)


def _place(data: bytearray) -> int:
    """Its address, which stays."""
    pinned = ctypes.c_char.from_buffer(data)
    _words.append(pinned)
    return ctypes.addressof(pinned)
