"""What a sandbox may reach."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleetctl.common.finding import Finding
from fleetctl.providers.contract.account import built_in
from fleetctl.providers.daytona import daytona_check as daytona
from fleetctl.providers.local import local_preflight as local
from fleetctl.providers.modal import modal_check as modal
from fleetctl.specs.blocks.resources import Network
from fleetctl.specs.blocks.template import Template


def test_blocks_and_hosts_are_told_apart() -> None:
    network = Network(allow=("10.0.0.0/8", "pkg.example.org", "fd00::/8", "*.pkg.example.org"))
    assert (network.blocks, network.hosts) == (
        ["10.0.0.0/8", "fd00::/8"],
        ["pkg.example.org", "*.pkg.example.org"],
    )


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "https://pkg.example.org", "a,b.org", "localhost", "*"]
)
def test_what_is_neither_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is not a block"):
        Network(allow=(entry,))


def test_who_cannot_restrict_it_says_so_before_anything_is_stored(tmp_path: Path) -> None:
    plain = {"command": ["true"], "network": {}}

    async def collect() -> list[Finding]:
        asked = Template.model_validate(plain)
        return [it async for it in local.find_obstacles(asked, tmp_path)]

    assert ("network",) in [it.where for it in asyncio.run(collect())]
    function = Template.model_validate({**plain, "runtime": "function"})
    found = modal.find_obstacles(function, built_in("modal"))
    assert ("network",) in [it.where for it in found]
    cloned = {**plain, "source": {"git": {"url": "https://example.org/x.git"}}}
    found = daytona.find_obstacles(Template.model_validate(cloned), built_in("daytona"))
    assert any("`source.git`" in it.fix for it in found)
