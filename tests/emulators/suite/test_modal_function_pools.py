"""The emulator's function containers: how many, on what GPU, of which deployment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal

import modal
import pytest

from tests.emulators.driving.gates import gate
from tests.emulators.driving.modal import PATIENCE_S, Driver, eventually
from tests.emulators.modal.running import ModalEmulator
from tests.emulators.suite.test_modal_functions import (
    began,
    containers,
    deploy,
    held,
    live,
    truth,
)


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


@pytest.fixture
def driver(emulator: ModalEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    with Driver(emulator, request.node.name) as driver:
        yield driver
    emulator.do("settings", gpu_capacity={})


def _answering(word: str) -> Callable[[float], str]:
    def work(seconds: float = 0.0) -> str:
        import time

        time.sleep(seconds)
        return word

    return work


def test_deployed_containers_are_kept_warm_and_idle_ones_end(driver: Driver) -> None:
    with gate() as door:
        function = deploy(driver, held(door), min_containers=1, scaledown_window=2)
        eventually(lambda: [one["state"] for one in live(driver, function)] == ["idle"])
        calls = [function.spawn() for _ in range(4)]
        eventually(lambda: len(live(driver, function)) > 1)
        door.open()
        assert [call.get() for call in calls] == [b"!"] * 4
    eventually(lambda: len(live(driver, function)) == 1)
    assert {one["reason"] for one in containers(driver, function) if not one["live"]} == {
        "it was idle"
    }


def test_the_autoscaler_is_changed_while_the_function_runs(driver: Driver) -> None:
    function = deploy(driver, _answering("x"), max_containers=1)
    assert function.get_current_stats().num_total_runners == 0
    settings = function.autoscaler.update(min_containers=2, max_containers=3, scaledown_window=2)
    assert (settings.min_containers, settings.max_containers) == (2, 3)
    eventually(lambda: function.get_current_stats().num_total_runners == 2)
    assert function.autoscaler.settings().min_containers == 2
    function.autoscaler.update(min_containers=0)
    eventually(lambda: not live(driver, function))


def test_inputs_wait_for_a_gpu_and_run_once_there_is_one(
    driver: Driver, emulator: ModalEmulator
) -> None:
    emulator.do("settings", gpu_capacity={"H100": 0})
    function = deploy(driver, _answering("fast"), gpu="H100:2")
    call = function.spawn()
    with pytest.raises(TimeoutError):
        call.get(timeout=0.5)
    assert (containers(driver, function), began(driver, call)) == ([], False)
    assert function.get_current_stats().backlog == 1
    emulator.do("settings", gpu_capacity={"H100": 2})
    assert call.get(timeout=PATIENCE_S) == "fast"
    assert [one["gpu"] for one in containers(driver, function)] == ["H100:2"]


def test_a_list_of_gpus_falls_back_to_the_next_that_is_free(
    driver: Driver, emulator: ModalEmulator
) -> None:
    emulator.do("settings", gpu_capacity={"H100": 0, "A100-40GB": 1})
    gpus = ["H100", "A100", "T4"]
    with gate() as door:
        function = deploy(driver, held(door), gpu=gpus, max_containers=2)
        calls = [function.spawn() for _ in range(2)]
        eventually(lambda: all(began(driver, call) for call in calls))
        door.open()
        assert [call.get(timeout=PATIENCE_S) for call in calls] == [b"!", b"!"]
    assert {one["gpu"] for one in containers(driver, function)} == {"A100", "T4"}


def test_options_make_a_variant_with_containers_of_its_own(driver: Driver) -> None:
    function = deploy(driver, _answering("base"), max_containers=1)
    assert function.remote() == "base"
    variant = function.with_options(gpu="T4", timeout=100)
    assert variant.remote() == "base"
    with pytest.raises(modal.exception.FunctionTimeoutError):
        function.with_options(timeout=1).remote(100)
    assert variant.object_id != function.object_id
    assert {one["gpu"] for one in containers(driver, function)} == {""}
    assert {one["gpu"] for one in containers(driver, variant)} == {"T4"}
    again = function.with_options(gpu="T4", timeout=100).hydrate()
    assert again.object_id == variant.object_id


def test_a_new_deployment_takes_over_and_what_runs_ends_as_it_began(driver: Driver) -> None:
    old = deploy(driver, _answering("old"), max_containers=1)
    call = old.spawn(1.5)
    eventually(lambda: began(driver, call))
    new = deploy(driver, _answering("new"), max_containers=1)
    assert new.object_id == old.object_id
    assert new.remote() == "new"
    assert call.get() == "old"
    eventually(lambda: len(live(driver, new)) == 1)
    assert len(truth(driver, call)["began"]) == 1


def test_a_function_that_is_no_longer_deployed_ends(driver: Driver) -> None:
    function = deploy(driver, _answering("x"), min_containers=1)
    eventually(lambda: live(driver, function))
    app = modal.App(driver.name)
    app.function(image=driver.image, serialized=True, name="other")(_answering("y"))
    app.deploy(client=driver.client)
    eventually(lambda: not live(driver, function))
    with pytest.raises(modal.exception.NotFoundError):
        modal.Function.from_name(driver.name, "work", client=driver.client).hydrate()
    other = modal.Function.from_name(driver.name, "other", client=driver.client)
    assert other.remote() == "y"


def test_stopping_the_app_ends_its_containers_and_calls(driver: Driver) -> None:
    function = deploy(driver, _answering("x"), max_containers=1)
    running, waiting = function.spawn(100), function.spawn(100)
    eventually(lambda: began(driver, running))
    driver.app.stop(client=driver.client)
    assert live(driver, function) == []
    assert [truth(driver, one)["outcome"] for one in (running, waiting)] == ["terminated"] * 2
    with pytest.raises(modal.exception.NotFoundError):
        modal.Function.from_name(driver.name, "work", client=driver.client).hydrate()


def test_an_ephemeral_app_ends_with_its_client(driver: Driver) -> None:
    app = modal.App()
    function = app.function(image=driver.image, serialized=True)(_answering("brief"))
    with app.run(client=driver.client):
        assert function.remote() == "brief"
        (container,) = live(driver, function)
    found = driver.emulator.state()["functions"]["containers"]
    assert [one["live"] for one in found if one["task_id"] == container["task_id"]] == [False]


def test_containers_have_their_secrets_and_commit_their_volumes(
    driver: Driver, emulator: ModalEmulator
) -> None:
    volume = driver.volume("inside", version=2)

    def work(text: str) -> tuple[str, str]:
        import os
        import pathlib

        pathlib.Path("/v/note").write_text(text)
        volume.commit()
        pathlib.Path("/v/late").write_text(text)
        return os.environ["WORD"], os.environ["OTHER"]

    function = deploy(
        driver,
        work,
        volumes={"/v": volume},
        secrets=[modal.Secret.from_dict({"WORD": "s3cret"})],
        env={"OTHER": "plain"},
        max_containers=1,
    )
    assert function.remote("hello") == ("s3cret", "plain")
    assert b"".join(volume.read_file("note")) == b"hello"
    with pytest.raises(FileNotFoundError):
        b"".join(volume.read_file("late"))
    (container,) = live(driver, function)
    emulator.do("preempt_container", task_id=container["task_id"])
    eventually(lambda: not live(driver, function))
    assert [entry.path for entry in volume.listdir("/")] == ["note"]


def test_a_failed_deployment_leaves_nothing_running(driver: Driver) -> None:
    app = modal.App(driver.name + "-x")

    def stream() -> Iterator[int]:
        yield 1

    app.function(image=driver.image, serialized=True, min_containers=1)(_answering("x"))
    app.function(image=driver.image, serialized=True, name="stream", is_generator=True)(stream)
    with pytest.raises(modal.exception.UnimplementedError):
        app.deploy(client=driver.client)
    found = [one for one in driver.emulator.state()["apps"] if one["app_id"] == app.app_id]
    assert [one["state"] for one in found] in ([], ["stopped"])


def test_the_account_has_rates_and_a_report(driver: Driver) -> None:
    workspace = modal.Workspace.from_context(client=driver.client)
    rates = workspace.billing.rates()
    assert rates["cpu_hour_cost_sandbox"] == 3 * rates["cpu_hour_cost"]
    assert rates["gpu_hour_cost_h100"] == Decimal("3.95")
    function = deploy(driver, _answering("x"), gpu="T4", cpu=2)
    function.remote(0.2)
    driver.sandbox("sleep", "0.2").wait()
    start = datetime.fromtimestamp(time.time() - 60, timezone.utc)
    (row,) = [
        one for one in workspace.billing.report(start=start) if one.description == driver.name
    ]
    parts = row.cost_by_resource
    assert row.cost == sum(parts.values())
    # Both ran for about as long, so the sandbox's eighth of a core adds little to the two cores.
    gpu_hours = parts["GPU"] / rates["gpu_hour_cost_t4"]
    assert parts["CPU"] > 2 * gpu_hours * rates["cpu_hour_cost"]


Membership = tuple[int, list[str], list[str]]


def _member() -> Callable[[], Membership]:
    def work() -> Membership:
        import modal

        cluster = modal.Cluster.from_context()
        return cluster.container_rank(), cluster.container_ips("ipv4"), cluster.container_ids()

    return work


def test_a_clustered_function_has_all_of_its_containers_or_none(
    driver: Driver, emulator: ModalEmulator
) -> None:
    emulator.do("settings", gpu_capacity={"H100": 16})
    body = modal.clustered(size=3)(_member())
    function = deploy(driver, body, gpu="H100:8", single_use_containers=True)
    call = function.spawn()
    eventually(lambda: function.get_current_stats().backlog == 1)
    assert containers(driver, function) == []  # two of three hosts are free
    emulator.do("settings", gpu_capacity={"H100": 24})
    rank, addresses, ids = call.get(timeout=PATIENCE_S)
    assert (rank, len(set(addresses))) == (0, 3)  # the first alone answers
    members = sorted(containers(driver, function), key=lambda one: one["rank"])
    assert [one["task_id"] for one in members] == ids
    # The first may answer before the others have begun.
    eventually(lambda: len({start["task_id"] for start in truth(driver, call)["began"]}) == 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "CPU-only clusters are not supported"),
        ({"gpu": "H100:4"}, "must request all 8 GPUs of a host"),
    ],
)
def test_a_cluster_has_whole_hosts_with_gpus(
    driver: Driver, options: dict[str, str], words: str
) -> None:
    with pytest.raises(modal.exception.InvalidError, match=words):
        deploy(driver, modal.clustered(size=2)(_member()), **options)
