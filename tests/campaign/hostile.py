"""Malicious archives, repositories and backups. Each is accepted or refused with a message. None
writes outside of its target directory, reads files of this machine or runs code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.campaign.hostile_archives import attack_by_archive
from tests.campaign.hostile_backups import attack_by_backup
from tests.campaign.hostile_repositories import attack_by_repository

Attack = Callable[[Path, Random], str]
ATTACKS: tuple[Attack, ...] = (attack_by_archive, attack_by_repository, attack_by_backup)


def attack(seed: int, *, count: int) -> tuple[int, list[str]]:
    """(how many were tried, a sentence for each that was not answered as it must be)."""
    findings = []
    for number in range(count):
        attacked = ATTACKS[number % len(ATTACKS)]
        with TemporaryDirectory(prefix="fleetctl-hostile-") as folder:
            # Deep enough for `../..` to stay in a directory of ours.
            place = Path(folder, "outside", "a", "b", "c", "place")
            place.mkdir(parents=True)
            before = list_outside(Path(folder), place)
            sentence = attacked(place, Random(f"{seed} {number}"))
            if list_outside(Path(folder), place) != before:
                sentence = f"something outside was changed; {sentence}"
            if sentence:
                findings.append(f"seed {seed}, {attacked.__name__} {number}: {sentence}")
    return count, findings


def list_outside(folder: Path, place: Path) -> dict[str, int]:
    """Returns paths and sizes of files in `folder`, except below `place`."""
    found = {}
    for directory, names, files in os.walk(folder):
        if Path(directory) == place:
            names.clear()
            continue
        for name in (*names, *files):
            path = Path(directory, name)
            found[str(path)] = -1 if path.is_dir() else path.lstat().st_size
    return found
