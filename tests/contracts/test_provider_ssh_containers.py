"""Provider `ssh` against the suite of all providers where each task has an image of a registry, in
containers of a real podman.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command
from tests.contracts.ssh_worlds import ContainerWorld
from tests.machines.ssh_server import SshServer

pytestmark = pytest.mark.needs("sshd", "podman")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd") / "server") as one:
        yield one


class TestSshContainers(ProviderSuite):
    sort = "ssh"
    whole, second = False, True
    test_a_task_reaches_the_hosts_of_its_network_alone = None  # refused

    @pytest.fixture(autouse=True)
    def _server(self, server: SshServer) -> None:
        self.server = server

    def world(self, tmp_path: Path) -> World:
        return ContainerWorld(tmp_path, self.server)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})
