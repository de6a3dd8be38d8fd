"""The way of a manifest stays short, in the code and in the page that tells it."""

from __future__ import annotations

import re

from tests.bench.path import FILES_MAX, ROOT, list_entered

TOLD_MAX = 15  # files that a reader of ARCHITECTURE.md has to open for it
_FILE = re.compile(r"`([\w./]+\.py)`")


def test_a_plain_job_enters_few_files_from_its_request_to_its_start() -> None:
    files = sorted({file for file, _ in list_entered()})
    assert len(files) <= FILES_MAX, "\n".join(files)
    assert {"fleetctl/daemon/receive.py", "fleetctl/providers/local/local_provider.py"} <= {*files}


def test_the_way_of_a_manifest_is_told_in_few_files() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    _, _, way = page.partition("## The way of a manifest")
    way, _, _ = way.partition("\n## ")
    steps, _, _ = way.partition("\nA task's call of a model")
    named = {*_FILE.findall(steps)}
    assert named and len(named) <= TOLD_MAX, sorted(named)
    assert all((ROOT / name).is_file() for name in named)
