"""The warden of a machine: how long the work of a store goes on without its controller."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.providers.machines.shipped import warden
from fleetctl.providers.machines.shipped.boxes import Boxes
from fleetctl.providers.machines.shipped.warden import Warden, note_lease, renew_lease

SIZE = {"slots": 4, "cpu": 0, "memory": 0, "gpus": 0}
ORDER = {"tags": {"fleet": "a"}, "cpu": 0, "memory": 0, "gpus": 0, "links": [], "size": SIZE}


class Machine:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.now_s = str(root), 0.0
        self.boxes = Boxes(self.root)
        self.boxes.make("one", ORDER, [])
        self.warden = Warden(self.boxes)
        monkeypatch.setattr(warden.time, "monotonic", lambda: self.now_s)

    def after(self, seconds: float) -> str:
        """The state of its box when the warden has looked every five seconds."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += warden.LOOK_S
            self.warden.look()
        return self.boxes.state("one")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_lease_that_is_renewed_never_ends_and_one_that_is_not_does(machine: Machine) -> None:
    note_lease(machine.root, "a", 60.0)
    for number in range(10):
        assert machine.after(50) == "new"
        os.utime(os.path.join(machine.root, "leases", "a"), (number, number))  # any other stamp
    assert machine.after(50) == "new"
    assert machine.after(30) == "expired"


def test_a_lease_that_somebody_removed_ends_work_after_its_usual_time(machine: Machine) -> None:
    note_lease(machine.root, "a", 60.0)
    machine.after(10)
    os.unlink(os.path.join(machine.root, "leases", "a"))
    assert machine.after(warden.LEASE_S - 60) == "new"
    assert machine.after(120) == "expired"


def test_a_controller_that_works_renews_a_lease_that_somebody_removed(machine: Machine) -> None:
    for _ in range(4):
        renew_lease(machine.root, "a", 60.0)
        os.unlink(os.path.join(machine.root, "leases", "a"))
    renew_lease(machine.root, "a", 60.0)
    assert machine.after(50) == "new"
    assert machine.after(30) == "expired"
