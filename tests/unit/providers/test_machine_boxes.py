"""The boxes of a machine whose disk is full."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from fleetctl.providers.machines.shipped import boxes as shipped
from fleetctl.providers.machines.shipped.boxes import Boxes

SIZE = {"slots": 1, "cpu": 0, "memory": 0, "gpus": 0}
ORDER = {"tags": {"fleet": "a"}, "cpu": 0, "memory": 0, "gpus": 0, "links": [], "size": SIZE}


def test_a_box_that_found_no_room_is_made_once_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = Boxes(str(tmp_path))

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(shipped.json, "dump", fill)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                boxes.make("one", ORDER, [])
    assert os.listdir(tmp_path / "boxes") == []
    assert boxes.make("one", ORDER, [])["id"]


def test_a_link_stays_for_a_batch_job_on_the_machine_that_still_uses_it(tmp_path: Path) -> None:
    boxes = Boxes(str(tmp_path))
    target = str(tmp_path / "volumes" / "data")
    links = [{"path": str(tmp_path / "data"), "target": target}]
    roomy = {**ORDER, "size": {**SIZE, "slots": 2}}
    for name in ("one", "two"):  # as the login makes them, and their jobs then
        boxes.make(name, roomy, [])
        boxes.change(name, {"mounts": links, "boot": "of another machine"})
        boxes.make_link(links[0]["path"], target, [])
    boxes.remove_links("one", {"links": links})
    assert os.readlink(links[0]["path"]) == target
    (tmp_path / "boxes" / "one" / shipped.LEFT).touch()
    boxes.remove_links("two", {"links": links})
    assert not os.path.lexists(links[0]["path"])


def test_a_supervisor_that_could_not_write_its_file_holds_its_slot_for_a_minute(
    tmp_path: Path,
) -> None:
    boxes = Boxes(str(tmp_path))
    boxes.make("one", ORDER, [])
    lock = tmp_path / "boxes" / "one" / "state" / "supervisor"
    lock.parent.mkdir()
    lock.touch()
    assert boxes.state("one") == "live"  # it may be about to lock it
    then_s = time.time() - shipped.LOCK_S
    os.utime(lock, (then_s, then_s))
    assert boxes.state("one") == "over"
    assert boxes.make("two", ORDER, [])["id"]
