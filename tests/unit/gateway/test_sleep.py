"""When a server that is a Function may be asked, and how it is told; no clock but the test's."""

from fleetctl.gateway.rules.servers import (
    ASLEEP,
    AWAKE,
    BLOCKED,
    BROKEN,
    ContainerSleep,
    UpstreamServer,
)
from fleetctl.gateway.rules.servers import START_REST_S as REST_S

ROW = {"name": "function/vllm", "startupSeconds": 600, "scaledownSeconds": 60}


def sleeping() -> ContainerSleep:
    sleep = ContainerSleep()
    sleep.declare(ROW)
    return sleep


def test_it_is_taken_to_be_awake_until_shortly_before_its_container_may_go() -> None:
    sleep = sleeping()
    assert sleep.state(0.0) == ASLEEP
    sleep.note_awake(100.0)
    assert sleep.state(154.0) == AWAKE
    assert sleep.state(156.0) == ASLEEP
    sleep.asking = 1  # a long call holds its container
    assert sleep.state(1000.0) == AWAKE


def test_one_that_is_kept_warm_does_not_fall_asleep() -> None:
    sleep = sleeping()
    sleep.declare({**ROW, "warm": True})
    sleep.note_awake(0.0)
    assert sleep.state(10_000.0) == AWAKE


def test_what_waits_says_which_container_is_started() -> None:
    sleep = sleeping()
    sleep.starting_since_s = 0.0
    assert sleep.describe(1.0) == "starting a container of function/vllm"


def test_a_start_that_failed_rests_longer_each_time_and_says_why() -> None:
    sleep = sleeping()
    sleep.broke("it exited with code 1", 0.0)
    assert sleep.state(REST_S - 1) == BROKEN
    assert "it exited with code 1" in sleep.describe(1.0)
    assert sleep.state(REST_S + 1) == ASLEEP
    sleep.broke("it exited with code 1", 100.0)
    assert sleep.state(100.0 + 2 * REST_S - 1) == BROKEN
    sleep.note_awake(500.0)
    assert sleep.why == "" and sleep.rest_s == 0.0


def test_a_container_that_is_gone_is_no_failure_of_the_server() -> None:
    server = UpstreamServer("https://x.modal.run", 8, sleep=sleeping())
    assert server.sleep is not None
    server.sleep.note_awake(0.0)
    server.refused(1.0)
    for status in (None, 502, 503):
        server.failed(1.0, caller=f"job/{status}", status=status, last=False)
    assert not server.resting and server.room == 8
    assert server.sleep.state(1.0) == ASLEEP
    # What the model itself answers is, as any server's.
    for n in range(3):
        server.failed(1.0, caller=f"job/{n}", status=500, last=False)
    assert server.resting


def test_one_whose_budget_is_used_up_is_not_asked() -> None:
    sleep = sleeping()
    sleep.note_awake(0.0)
    sleep.declare({**ROW, "blocked": "BudgetExhausted: nothing left"})
    assert sleep.state(1.0) == BLOCKED
    assert sleep.describe(1.0) == "BudgetExhausted: nothing left"
