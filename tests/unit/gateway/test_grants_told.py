"""Who may call, as a controller tells it: what changed alone, and all where that is not enough."""

from pathlib import Path

from fleetctl.gateway.gateway_client import EndpointGrant, GatewayProcess
from tests.emulators.llm.server import Model
from tests.unit.gateway.hosted import Hosted, hosting
from tests.unit.gateway.test_process import in_loop


def _grants(*runs: str) -> list[EndpointGrant]:
    return [
        EndpointGrant(run, run, "uid", f"batchjob/{run}", "default", ("small",)) for run in runs
    ]


async def _who_may(gateway: Hosted, *runs: str) -> str:
    return "".join([run for run in runs if (await gateway.ask(run)).status == 200])


@in_loop
async def test_runs_that_begin_and_end_change_who_may_call(tmp_path: Path) -> None:
    async with hosting(tmp_path, Model()) as gateway:
        controller = GatewayProcess(tmp_path)
        await controller.grant(_grants("a", "b"), ())
        assert await _who_may(gateway, "a", "b", "c") == "ab"
        totals = await controller.grant(_grants("b", "c"), ())
        assert await _who_may(gateway, "a", "b", "c") == "bc"
        assert totals.keys() == {"uid"}
        await controller.grant((), ())
        assert await _who_may(gateway, "a", "b", "c") == ""
        await controller.close(leave=True)


@in_loop
async def test_a_gateway_that_holds_others_hears_of_all(tmp_path: Path) -> None:
    async with hosting(tmp_path, model := Model()) as gateway:
        controller, another = GatewayProcess(tmp_path), GatewayProcess(tmp_path)
        await controller.grant(_grants("a", "b"), ())
        await another.grant(_grants("x"), ())  # as if a reply to the first had been lost
        await controller.grant(_grants("a", "b", "c"), ())
        assert await _who_may(gateway, "a", "b", "c", "x") == "abc"
        await gateway.stop()
        await gateway.start()  # it begins anew, and knows nobody
        await gateway.declare([model])
        await controller.grant(_grants("b", "c"), ())
        assert await _who_may(gateway, "a", "b", "c") == "bc"
        await controller.close(leave=True)
        await another.close(leave=True)
