"""Archives as a sandbox that means ill could send them to `cp`."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from random import Random

from fleetctl.cli.access.tar import unpack_archive
from fleetctl.common.errors import FleetctlError

NAMES = (
    "a", "a/b", "a/b/c", "./a", ".", "..", "../evil", "a/../../evil", "/evil", "/etc/evil", "a/",
    "a//b", "-rf", "a\nb", "\x1b[2J", "\u202eb", "\udcff", "x" * 255, "x" * 300, "d/" * 120 + "f",
    "d/" * 1500 + "f", "a/.b.1.part", "con", " ", "a b", "\\evil", "..\\evil", "a/b/c/d", "b/a",
)  # fmt: skip
TYPES = (
    *(tarfile.REGTYPE,) * 6, *(tarfile.DIRTYPE,) * 3, tarfile.SYMTYPE, tarfile.LNKTYPE,
    tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.CONTTYPE, b"Z", b"S",
)  # fmt: skip
LINKS = ("/etc/passwd", "..", "../../..", "a", ".", "/", "a/b", "x" * 200)
FORMATS = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
ENTRIES_MAX = 8


def attack_by_archive(place: Path, dice: Random) -> str:
    data, contents = _archive(dice), dice.random() < 0.5
    target = place / dice.choice(("target", "new", "file"))
    (place / "target").mkdir()
    (place / "file").write_text("mine")
    try:
        unpack_archive(io.BytesIO(data), str(target), contents=contents)
    except FleetctlError:
        return ""
    except Exception as error:
        return f"{type(error).__name__} came out: {error!a}"
    return ""


def _archive(dice: Random) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=dice.choice(FORMATS)) as made:
        for _ in range(dice.randint(1, ENTRIES_MAX)):
            name = dice.choice(NAMES)
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = dice.choice(TYPES), dice.choice((0o4755, 0o644, 0, 0o7777))
            entry.linkname = dice.choice(LINKS)
            content = b"x" * dice.choice((0, 1, 511, 512, 10_000))
            entry.size = len(content) if entry.isreg() else 0
            made.addfile(entry, io.BytesIO(content))
    data = bytearray(file.getvalue())
    for _ in range(dice.choice((0, 0, 1, 3))):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data[: dice.randrange(len(data))] if dice.random() < 0.2 else data)
