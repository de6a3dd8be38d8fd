"""A manifest that is refused leaves nothing behind, also what is right in it: each case of the
golden file, through the controller's own socket.
"""

from __future__ import annotations

from pathlib import Path

from tests.golden.manifest.test_manifest_messages import cases, completed
from tests.unit.engine.test_engine_api import JOB, served


async def test_nothing_is_stored_of_files_of_which_one_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for case in cases():
            # A file without an object is no harm to others; what names no line is about all of it.
            beside = [] if "job.yaml: " in case.says else [JOB]
            reply = await api.apply(*beside, completed(case.manifest))
            assert (reply["ok"], reply.get("code")) == (False, 2), (case.title, reply)
            assert reply["errors"], case.title
            assert api.fleet.store.resources.list() == [], case.title
