"""What /proc tells of a process: its command line, its variables and its name, set without an exec.

Runs in the nursery and its forks. A kernel that is built without PR_SET_MM_MAP goes on to show what
the nursery was started with.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PR_SET_NAME, PR_SET_MM, PR_SET_MM_MAP = 15, 35, 14
NAME_BYTES_MAX = 15

# Fields of /proc/self/stat (see proc_pid_stat(5)) that `struct prctl_mm_map` begins with.
_CODE_AND_DATA, _STACK = (26, 27, 45, 46, 47), 28
_AUXV_AND_EXE_AS_THEY_ARE = (0, 0xFFFFFFFF << 32)
_libc = ctypes.CDLL(None)
_libc.sbrk.restype = ctypes.c_void_p
_libc.sbrk.argtypes = [ctypes.c_ssize_t]
_places: dict[int, int] = {}  # where this process has its memory, by field
_words: list[object] = []  # the kernel reads it, so it must stay where it is


def look() -> None:
    """Once, in the nursery: a fork has everything at the same places."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    _places.update({n: int(fields[n - 3]) for n in (*_CODE_AND_DATA, _STACK)})


def rename(argv: Sequence[str], env: Mapping[str, str], name: str) -> None:
    """As an exec of the file `name` would."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in env.items())
    whole = ctypes.create_string_buffer(words + variables)
    _words.append(whole)
    begin = ctypes.addressof(whole)
    middle, end = begin + len(words), begin + len(words) + len(variables)
    memory = [_places[n] for n in _CODE_AND_DATA] + [_libc.sbrk(0), _places[_STACK]]
    values = (*memory, begin, middle, middle, end, *_AUXV_AND_EXE_AS_THEY_ARE)
    table = (ctypes.c_uint64 * len(values))(*values)
    size = ctypes.c_ulong(ctypes.sizeof(table))
    _libc.prctl(PR_SET_MM, ctypes.c_ulong(PR_SET_MM_MAP), ctypes.byref(table), size, 0)
    _libc.prctl(PR_SET_NAME, ctypes.c_char_p(os.fsencode(name)[:NAME_BYTES_MAX]), 0, 0, 0)
