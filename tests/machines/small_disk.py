"""A small disk for the directory of a machine, which a test fills and empties again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.needs import EVERYTHING, RIGHTS, VARIABLE


@contextmanager
def mount_small_disk(place: Path) -> Iterator[Path]:
    """Mounts it at `place`; a test without the right to do so is left out."""
    place.mkdir()
    options = f"size=40m,mode=700,uid={os.geteuid()}"
    mount = [*RIGHTS, "mount", "-t", "tmpfs", "-o", options, "none", str(place)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        message = f"it needs the right to mount a disk: {mounted.stderr}"
        (pytest.fail if os.environ.get(VARIABLE) == EVERYTHING else pytest.skip)(message)
    try:
        yield place
    finally:
        subprocess.run([*RIGHTS, "umount", "--lazy", str(place)], check=True)


def fill_disk(path: Path) -> None:
    """Writes a file until no byte more has room."""
    with path.open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(bytes(4096))
