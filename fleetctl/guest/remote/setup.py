"""Prepares a sandbox before its first task: directories, and links to volumes. Called by
attempt.py.
"""

from __future__ import annotations

import os

from fleetctl.guest.remote import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def prepare(order: dict[str, Any]) -> None:
    """Prepares the sandbox. Raises OSError with a message for the user."""
    for path in (place.FILES, place.WORK):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
    for volume in order["volumes"]:
        for link in volume["links"]:
            _link_volume(link, volume["mount"])


def _link_volume(path: str, mount: str) -> None:
    """Makes `path` lead to a volume. Replaces an empty directory of the image."""
    if os.path.islink(path) and os.readlink(path) == mount:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        os.symlink(mount, path)
    except OSError as error:
        raise OSError(
            f"`{path}` cannot become a link to the volume at `{mount}`: {error.strerror};"
            " in the image it must be missing or an empty directory"
        ) from None
