"""Volumes at the emulated Modal: made and written to by others, and what they really hold."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import modal

from tests.servers.modal_fleet import Fleet


@contextmanager
def _client(fleet: Fleet) -> Iterator[Any]:
    client = fleet.emulator.client()
    try:
        yield client
    finally:
        client.close()


def made(fleet: Fleet, name: str, version: int) -> None:
    """An empty one. Blocks."""
    with _client(fleet) as client:
        modal.Volume.objects.delete(name, allow_missing=True, client=client)
        modal.Volume.objects.create(name, version=version, client=client)


def put(fleet: Fleet, name: str, path: str) -> None:
    """Blocks."""
    with _client(fleet) as client:
        volume = modal.Volume.from_name(name, client=client)
        with volume.batch_upload(force=True) as batch:
            batch.put_file(io.BytesIO(b"new"), path)


def committed(fleet: Fleet, name: str) -> dict[str, str]:
    """The texts of the files that Modal has of a volume."""
    [volume] = [one for one in fleet.emulator.state()["volumes"] if one["name"] == name]
    return {path: Path(volume["directory"], path).read_text() for path in volume["files"]}
