"""The emulator's dicts under the real SDK, from outside and from inside a container."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import modal
import pytest

from tests.emulators.driving.modal import Driver
from tests.emulators.modal.running import ModalEmulator
from tests.emulators.suite.test_modal_functions import deploy


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with ModalEmulator() as running:
        yield running


@pytest.fixture
def driver(emulator: ModalEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    with Driver(emulator, request.node.name) as driver:
        yield driver


def table(driver: Driver) -> modal.Dict:
    found = modal.Dict.from_name(driver.name, create_if_missing=True, client=driver.client)
    return found.hydrate()


def test_what_is_put_is_there_for_every_client(driver: Driver) -> None:
    found = table(driver)
    found["a"] = {"b": [1]}
    found.update({"c": 2})
    other = driver.emulator.client()
    again = modal.Dict.from_name(driver.name, client=other)
    assert (again["a"], again.get("c"), again.get("x", 9), again.len()) == ({"b": [1]}, 2, 9, 2)
    assert sorted(again.keys()) == ["a", "c"]
    assert again.pop("c") == 2
    assert (again.contains("c"), "a" in again) == (False, True)
    again.clear()
    assert found.len() == 0
    other.close()


def test_of_many_that_put_a_key_first_one_wins(driver: Driver) -> None:
    found, won = table(driver), []

    def put(number: int) -> None:
        if found.put("latch", number, skip_if_exists=True):
            won.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [found["latch"]]


def test_a_container_writes_what_we_read(driver: Driver) -> None:
    found, name = table(driver), driver.name

    def work(name: str) -> bool:
        import modal

        latch = modal.Dict.from_name(name)
        return latch.put("latch", modal.current_function_call_id(), skip_if_exists=True)

    function = deploy(driver, work)
    call = function.spawn(name)
    assert call.get() is True
    assert found["latch"] == call.object_id
    assert function.remote(name) is False


def test_a_deleted_one_is_gone(driver: Driver) -> None:
    found = table(driver)
    found["a"] = 1
    assert driver.emulator.state()["dicts"][driver.name] == 1
    assert driver.name in [one.name for one in modal.Dict.objects.list(client=driver.client)]
    with modal.Dict.ephemeral(client=driver.client) as temporary:
        temporary["x"] = 1
        assert temporary["x"] == 1
    modal.Dict.objects.delete(driver.name, client=driver.client)
    with pytest.raises(modal.exception.NotFoundError):
        modal.Dict.from_name(driver.name, client=driver.client).hydrate()
