"""Runs of several nodes over hosts: two real SSH servers on loopback are two machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.common.finding import Finding
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import RunRef
from fleetctl.providers.ssh.ssh_hosts import find_obstacles
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_worlds import World
from tests.contracts.ssh_worlds import SshWorld
from tests.machines.gang_suite import GangSuite, name, script, several, story
from tests.machines.ssh_server import SshServer

pytestmark = pytest.mark.needs("sshd")


class TwoHosts(SshWorld):
    """interface: of both hosts."""

    def __init__(self, directory: Path, server: SshServer, **host: object) -> None:
        super().__init__(directory, server, **host)
        [first] = self.settings["hosts"]  # type: ignore[misc]
        # The same server by another name: another machine with a directory of its own.
        other = {**first, "host": "localhost", "directory": f"{self.root}-2"}
        self.settings["hosts"] = [first, other]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd") / "server") as one:
        line = one.known.read_text()
        one.known.write_text(line + line.replace("[127.0.0.1]", "[localhost]"))
        yield one


class TestSshGangs(GangSuite):
    @pytest.fixture(autouse=True)
    def _server(self, server: SshServer) -> None:
        self.server = server

    def world(self, tmp_path: Path) -> World:
        return TwoHosts(tmp_path, self.server, interface="lo")

    async def lose_node(self, world: World, ref: RunRef, rank: int) -> None:
        assert isinstance(world, SshWorld)
        box = ref.handle.split("+")[rank].rpartition("/")[2].partition("@")[0]
        root = f"{world.root}-2" if rank else world.root
        os.kill(int(Path(root, "boxes", box, "state", "supervisor").read_text()), 9)

    @story
    async def test_nodes_are_on_hosts_of_their_own_and_know_their_interface(
        self, world: World
    ) -> None:
        text = "echo at=$MASTER_ADDR by=$NCCL_SOCKET_IFNAME; sleep 600"
        ref = await world.start(several(script(text)), run=name())
        await world.log_holds(ref, b"at=127.0.0.1 by=lo\n")
        hosts = [it.partition(":")[0] for it in ref.handle.split("+")]
        assert sorted(hosts) == ["127.0.0.1", "localhost"]


def obstacles(template: Template, *hosts: str) -> list[Finding]:
    account = Account("lab", "ssh", settings={"hosts": hosts})
    return list(find_obstacles(template, account, Path("/nowhere"), {}))


def test_more_nodes_than_hosts_are_refused_before_they_are_stored() -> None:
    template = several(script("true"), 3)
    [found] = obstacles(template, "a.lab", "b.lab")
    assert found.what == "`nodes` is 3, and provider `lab` has 2 hosts"
    assert obstacles(template, "a.lab", "b.lab", "c.lab") == []
