"""Volumes at their paths in tier `process`: symlinks that sessions on this machine share.

Used by session.py. A path that leads to one volume cannot lead to another at the same time, and
stays until the last session that uses it has ended.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import Any, Iterator

from fleetctl.guest.supervision.processes import is_held

from . import spaces

RECORD = "links.json"  # in a session's directory: [[path, target], ...]


def make_links(config: dict[str, Any], directory: str) -> list[str]:
    """Makes the links of volumes; returns a sentence for each path that cannot be made. Raises
    OSError for a path that another session links to another volume: code would write into that.
    """
    with _lock_links(directory):
        taken = dict(_used_by_others(directory))
        for volume in config["volumes"]:
            path = volume["mount_path"]
            if taken.get(path, volume["dir"]) != volume["dir"]:
                raise OSError(
                    f"{path} leads to another volume while another interpreter runs, and without"
                    " namespaces this machine cannot show each its own"
                )
        remarks = spaces.without_mounts(config)
        with open(os.path.join(directory, RECORD), "w", encoding="utf-8") as file:
            json.dump(config["made_links"], file)
    return remarks


def release_links(config: dict[str, Any], directory: str) -> None:
    """Removes links without other users."""
    if "made_links" not in config:
        return
    with _lock_links(directory):
        os.unlink(os.path.join(directory, RECORD))
        used = {path for path, _ in _used_by_others(directory)}
        config["made_links"] = [link for link in config["made_links"] if link[0] not in used]
        spaces.remove_links(config)


def _used_by_others(directory: str) -> Iterator[tuple[str, str]]:
    top = os.path.dirname(directory)
    for name in os.listdir(top):
        room = os.path.join(top, name)
        try:
            with open(os.path.join(room, RECORD), encoding="utf-8") as file:
                links = json.load(file)
        except (OSError, ValueError):
            continue  # it has no record, or is going
        if room != directory and is_held(os.path.join(room, "lock")):
            yield from ((path, target) for path, target in links)


@contextmanager
def _lock_links(directory: str) -> Iterator[None]:
    path = os.path.join(os.path.dirname(directory), "links.lock")
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
