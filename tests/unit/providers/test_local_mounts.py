"""Paths that a run's mounts may not have, since what it works in would be hidden below them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.common.finding import Finding, Severity
from fleetctl.providers.contract.sandbox_access import SessionRequest, VolumePlace
from fleetctl.providers.local import local_preflight
from fleetctl.providers.local.local_session import open_session
from fleetctl.specs.blocks.template import Template


def obstacles(asked: Template, home: Path) -> list[Finding]:
    async def collect() -> list[Finding]:
        return [it async for it in local_preflight.find_obstacles(asked, home)]

    return asyncio.run(collect())


def template(**fields: object) -> Template:
    return Template.model_validate({"script": "x", **fields}, by_alias=True, by_name=False)


@pytest.mark.parametrize("above", [".", "..", "../.."])
def test_a_mount_above_the_state_directory_is_refused_before_anything_is_stored(
    tmp_path: Path, above: str
) -> None:
    home, path = tmp_path / "home", str((tmp_path / "home" / above).resolve())
    link = tmp_path / "link"
    link.symlink_to(path)
    for field, wrong in (
        (("volumes", 0, "mountPath"), {"volumes": [{"name": "v", "mountPath": path}]}),
        (("volumes", 0, "mountPath"), {"volumes": [{"name": "v", "mountPath": str(link)}]}),
        (
            ("volumes", 0, "links", 0),
            {"volumes": [{"name": "v", "mountPath": "/data", "links": [path]}]},
        ),
        (("source", "mountPath"), {"source": {"path": ".", "mountPath": path}}),
    ):
        (found,) = obstacles(template(**wrong), home)
        assert found.where == field and found.severity is Severity.NEVER
        assert "holds the state directory" in found.what


def test_other_mounts_are_not(tmp_path: Path) -> None:
    mounts = [
        {"name": "v", "mountPath": str(tmp_path / "hom")},
        {"name": "w", "mountPath": "/data"},
    ]
    assert obstacles(template(volumes=mounts), tmp_path / "home") == []


def test_an_interpreter_is_held_to_the_same(tmp_path: Path) -> None:
    request = SessionRequest("x", "", 60.0, place=VolumePlace(str(tmp_path), None))
    with pytest.raises(Refused, match="holds the state directory"):
        asyncio.run(open_session(tmp_path / "home", request))
