"""Whether a process lives. Tests of several folders ask the kernel, not who started the process."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether the process runs. One that ended and that nobody has waited for yet does not: an
    orphan is waited for by the first process of the machine, whenever that gets to it.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(fields) and fields[0] not in b"ZX"
