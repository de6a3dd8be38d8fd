"""Small and read-only disks for tests, made in a user namespace of their own: no root, no trace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
_SMALL = 'mount -t tmpfs -o "size=$2" none "$1" && shift 2 && exec "$@"'


def on_a_read_only_disk(
    directory: Path, command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run `command` where `directory` cannot be written, not by root either."""
    return _in_namespace(_READ_ONLY, [str(directory), *command])


def on_a_small_disk(
    directory: Path, size: str, command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run `command` where `directory` is an empty disk of `size`, such as `2m`."""
    return _in_namespace(_SMALL, [str(directory), size, *command])


def _in_namespace(script: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
