"""Remembers the volumes that this store has used at a provider: names alone, as empty files.

Volumes carry no tag, and may be shared with other programs. Written by the provider when a volume
is ensured; read by `orphans`, which lists the volumes that no object names any more.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.providers.paths import checked_name, make_private

DIRECTORY = "volumes-used"


def note_used(provider: Path, volume: str) -> None:
    """provider: the directory of its account."""
    (make_private(provider / DIRECTORY) / checked_name(volume)).touch(mode=0o600)


def forget_used(provider: Path, volume: str) -> None:
    (provider / DIRECTORY / checked_name(volume)).unlink(missing_ok=True)


def list_used(provider: Path) -> list[str]:
    """The names of the volumes, sorted."""
    place = provider / DIRECTORY
    if place.is_dir():
        return sorted(path.name for path in place.iterdir())
    return []
