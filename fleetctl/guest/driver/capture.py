"""Takes the output of code: every byte on descriptors 1 and 2, from whichever process.

Part of the guest; used by the driver alone. Files rather than pipes, so that a library that prints
much while it holds the interpreter can never wait for a reader that cannot run.
"""

from __future__ import annotations

import fcntl
import io
import os
import sys
import tempfile
import threading

OUTPUT_BYTES_MAX = 2 * 1024 * 1024  # of each stream and execution; the beginning is kept
SPILL_BYTES = 64 * 1024 * 1024  # a file that grew beyond this is emptied
LOOK_S = 0.2  # how often files are looked at: a print loop writes some 20 MB meanwhile


class Capture:
    """Owns descriptors 1 and 2 for the life of the process."""

    def __init__(self) -> None:
        self._streams = (_Stream(1), _Stream(2))
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(
                    encoding="utf-8",
                    errors="backslashreplace",
                    line_buffering=True,
                )
        self._guard = threading.Thread(target=self._look, daemon=True)
        self._guard.start()

    def take(self) -> tuple[str, str]:
        """Returns (stdout, stderr) since the last call."""
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                if stream is not None:
                    stream.flush()
            except (OSError, ValueError):
                continue  # code has closed or replaced it; earlier output is in the file
        out, errors = (stream.take() for stream in self._streams)
        return out, errors

    def _look(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            for stream in self._streams:
                stream.spill()


class _Stream:
    def __init__(self, number: int) -> None:
        self._file = tempfile.TemporaryFile(prefix="fleetctl-")
        self._handle = self._file.fileno()
        # With O_APPEND, writers go on at the new end after the file was emptied.
        flags = fcntl.fcntl(self._handle, fcntl.F_GETFL)
        fcntl.fcntl(self._handle, fcntl.F_SETFL, flags | os.O_APPEND)
        os.dup2(self._handle, number)
        self._lock = threading.Lock()
        self._head = b""
        self._bytes = 0

    def spill(self) -> None:
        """Keeps the disk from filling up: drops all but the beginning of too large a file."""
        if os.fstat(self._handle).st_size > SPILL_BYTES:
            with self._lock:
                self._empty()

    def take(self) -> str:
        with self._lock:
            self._empty()
            text = self._head.decode("utf-8", "replace")
            total = self._bytes
            self._head = b""
            self._bytes = 0
        if total > OUTPUT_BYTES_MAX:
            text += f"\n[output cut: {total - OUTPUT_BYTES_MAX} more bytes]\n"
        return text

    def _empty(self) -> None:
        size = os.fstat(self._handle).st_size
        wanted = OUTPUT_BYTES_MAX - len(self._head)
        if wanted > 0 and size:
            self._head += os.pread(self._handle, min(wanted, size), 0)
        os.ftruncate(self._handle, 0)
        self._bytes += size
