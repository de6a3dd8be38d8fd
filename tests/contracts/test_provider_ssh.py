"""Provider `ssh` against the suite of all providers: Debian's OpenSSH server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.specs.blocks.template import Template
from fleetctl.testing.provider_contract import ProviderContract
from tests.contracts.provider_bare import WithoutPython
from tests.contracts.provider_inputs import ProviderInputs
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command
from tests.contracts.ssh_worlds import ShellWorld, SshWorld
from tests.machines.ssh_server import SshServer

pytestmark = pytest.mark.needs("sshd")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd") / "server") as one:
        yield one


class TestSsh(ProviderSuite):
    sort = "ssh"
    whole = False
    test_a_task_reaches_the_hosts_of_its_network_alone = None  # refused

    @pytest.fixture(autouse=True)
    def _server(self, server: SshServer) -> None:
        self.server = server

    def world(self, tmp_path: Path) -> World:
        return SshWorld(tmp_path, self.server)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd") / "bare", python3=False) as one:
        yield one


class TestSshWithoutPython(WithoutPython, ProviderInputs, ProviderContract):
    whole = False
    # Of a task of `python` itself.
    test_an_exception_fails_the_run_and_its_traceback_shows_the_task_alone = None

    @pytest.fixture(autouse=True)
    def _server(self, bare_server: SshServer) -> None:
        self.server = bare_server

    def world(self, tmp_path: Path) -> World:
        return ShellWorld(tmp_path, self.server)

    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})
