"""A store that is put back from a backup while work goes on at a cloud: what began after the backup
is taken over, and does not begin again. With provider `local`: tests/unit/cli/test_cli_restore.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.provider_worlds import eventually
from tests.servers.test_orphans_adopt import (
    let_end,
    manifest,
    orphans,
    results,
    said,
    with_controller,
)
from tests.servers.verb_worlds import ON_TWO, PROVIDERS, VerbWorld, service

pytestmark = ON_TWO


@pytest.fixture(scope="module", params=PROVIDERS[1:])
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    with service(request.param):
        yield request.param


def test_what_lives_at_a_provider_and_not_in_the_backup_is_taken_over(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))

    async def tale(world: VerbWorld) -> None:
        async def begun(index: int) -> bool:
            words = ("logs", "job/kept", "--index", str(index))
            return "begun" in (await world.fleetctl(*words))[1]

        async def none_is_left() -> bool:
            return await orphans(world) == []

        desired = manifest(world, parallelism=1, maxInfraRetries=3)
        (tmp_path / "kept.json").write_text(json.dumps(desired))
        await said(world, "apply", "-f", str(tmp_path / "kept.json"))
        await eventually(lambda: begun(0), "task 0 began")
        await said(world, "backup", str(tmp_path / "copy"))
        await let_end(world, "job/kept", 0)
        await eventually(lambda: begun(1), "task 1 began")
        await said(world, "down")
        await said(world, "restore", str(tmp_path / "copy"), "--yes")
        await said(world, "up", "--detach")
        await eventually(none_is_left, "the sandbox of task 1 has a record")
        # How task 0 ended nobody knows, for its sandbox is gone: it runs again.
        await let_end(world, "job/kept", 0)
        await let_end(world, "job/kept", 1)
        await said(world, "wait", "job/kept", "--timeout", "400s")
        first, second = await results(world, "job/kept")
        assert second == ("Succeeded", 1, {"n": 7})
        assert first[0] == "Succeeded"
        out = await said(world, "logs", "job/kept", "--index", "1")
        assert out.count("begun") == 1

    with_controller(tmp_path / "home", provider, tale)
