"""How a sandbox of Modal ended, told apart where that can be: out of memory, preempted, lost."""

from __future__ import annotations

import pytest

from tests.contracts.provider_worlds import eventually
from tests.servers.modal_fleet import Fleet, Play, Tally, begins

WAITS = "\nimport time\ntime.sleep(600)\n"
GPU = {"resources": {"gpu": "T4:1"}}


@pytest.mark.parametrize(
    ("older", "template", "kill", "reason"),
    [
        (False, GPU, True, "OOMKilled"),
        (False, GPU, False, "Preempted"),
        (True, {}, False, "ProviderLost"),
        (True, {}, True, "OOMKilled"),
    ],
    ids=["gpu killed", "gpu preempted", "cpu of the older backend", "the same killed"],
)
def test_why_a_sandbox_was_lost(
    on_modal: Play,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
    older: bool,
    template: dict[str, object],
    kill: bool,
    reason: str,
) -> None:
    if older:
        monkeypatch.setenv("MODAL_SANDBOX_V2", "0")

    async def tale(fleet: Fleet) -> None:
        fleet.apply({"python": tally.python(WAITS), **template}, maxInfraRetries=0)
        await begins(tally)
        await fleet.phase("Running")
        [box] = fleet.live()
        assert box["backend"] == "v1"
        verb = "kill_sandbox" if kill else "preempt"
        fleet.emulator.do(verb, sandbox_id=box["sandbox_id"])

        async def over() -> bool:
            return fleet.status().get("phase") == "Failed"

        await eventually(over, "the job was over")
        assert [run.reason for run in fleet.runs()] == [reason]

    on_modal(tale)
