"""Archives of a source, as any `tar` unpacks them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fleetctl.providers.sources.archive import archive_of
from fleetctl.specs.blocks.template import Source

NAMES = (b"plain.txt", b"l1\xe9.txt", "größe".encode(), b"a" * 200, b"two\nlines", b"-rf")


def test_names_of_any_bytes_come_whole_and_tar_prints_nothing(tmp_path: Path) -> None:
    source, there = os.fsencode(tmp_path / "src"), tmp_path / "there"
    os.mkdir(source)
    for name in NAMES:
        with open(os.path.join(source, name), "wb") as file:
            file.write(name)
    (tmp_path / "job").mkdir()
    archive = archive_of(Source(path=str(tmp_path / "src")), tmp_path / "job")
    there.mkdir()
    words = ["tar", "-xzf", str(archive), "-C", str(there)]
    done = subprocess.run(words, check=True, capture_output=True, timeout=300)
    assert (done.stdout, done.stderr) == (b"", b"")
    found = {
        name: (there / os.fsdecode(name)).read_bytes() for name in os.listdir(os.fsencode(there))
    }
    assert found == {name: name for name in NAMES}
