"""The marker that says which store a home had, and its newest epoch: what a power cut leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.common import state_paths as places
from fleetctl.stores import state_dir


def test_a_marker_reaches_the_disk_before_it_is_seen_and_then_its_directory_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durability cannot be seen without a power cut, so what is synced, in its order, stands for
    it.
    """
    (tmp_path / places.STORE).mkdir()
    marker = tmp_path / places.STORE_MARKER
    synced: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        seen = marker.read_text() if marker.exists() else "nothing"
        what = "the directory" if path == marker.parent else path.name
        synced.append(f"{what} holding {path.read_text()}" if path.is_file() else f"{what}: {seen}")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    state_dir.write_marker(tmp_path, state_dir.StoreMarker("store-1", 7))
    assert synced[0].endswith("holding store-1 7\n")
    assert "the directory: store-1 7\n" in synced[1:]
