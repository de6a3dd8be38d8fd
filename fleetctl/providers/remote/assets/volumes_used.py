"""Which volumes this store has used at a provider: names alone, as empty files.

Volumes carry no tag, and may be shared with other programs. Written by the provider when a volume
is ensured; read by `orphans`, which tells of those that no object names any more.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.providers.paths import checked, make_private

DIRECTORY = "volumes-used"


def note(provider: Path, volume: str) -> None:
    """provider: the directory of its account."""
    (make_private(provider / DIRECTORY) / checked(volume)).touch(mode=0o600)


def forget(provider: Path, volume: str) -> None:
    (provider / DIRECTORY / checked(volume)).unlink(missing_ok=True)


def used(provider: Path) -> list[str]:
    """The names of the volumes, sorted."""
    place = provider / DIRECTORY
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []
