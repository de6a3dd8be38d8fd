"""Our connection and informer at the emulated API server: what they hold is what it has, also after
watches that were cut, histories that were compacted and a server that was away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes import informer as informers
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import (
    MERGE_PATCH,
    ApiConnection,
    connect_cluster,
    find_proxy,
)
from fleetctl.kubernetes.informer import Informer
from tests.emulators.kubernetes.running import KubernetesEmulator

MAPS = "/api/v1/namespaces/default/configmaps"
HANG_S, LOOK_S = 300.0, 0.01


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with KubernetesEmulator() as one:
        yield one


class Watched:
    """An informer of config maps with a label of its own, and all that it told."""

    def __init__(self, connection: ApiConnection, label: str) -> None:
        self.connection, self.label = connection, label
        self.told: list[tuple[str, str]] = []
        self.informer = Informer(
            connection, MAPS, changed=self._changed, label_selector=f"of={label}"
        )

    def _changed(self, sort: str, found: dict[str, Any], known: dict[str, Any] | None) -> None:
        assert (known is None) == (sort == "ADDED")
        self.told.append((sort, found["metadata"]["name"]))

    async def create(self, name: str) -> None:
        body = {"metadata": {"name": name, "labels": {"of": self.label}}}
        await self.connection.request("POST", MAPS, body=body)

    async def delete(self, name: str) -> None:
        await self.connection.request("DELETE", f"{MAPS}/{name}")

    async def until(self, *names: str) -> None:
        async with asyncio.timeout(HANG_S):
            while {name for _, name in self.informer.objects} != set(names):
                await asyncio.sleep(LOOK_S)


def played(
    cluster: KubernetesEmulator, label: str, story: Callable[[Watched], Awaitable[None]]
) -> Watched:
    async def play() -> Watched:
        connection = await connect_cluster(kubeconfig=str(cluster.kubeconfig))
        one = Watched(connection, label)
        running = asyncio.ensure_future(one.informer.run())
        try:
            await story(one)
        finally:
            running.cancel()
            await connection.close()
        return one

    return asyncio.run(play())


def test_a_list_comes_in_pages_and_changes_follow_it(
    cluster: KubernetesEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informers, "PAGE_OBJECTS", 2)

    async def story(one: Watched) -> None:
        for number in range(5):
            await one.create(f"a{number}")
        await one.until(*(f"a{number}" for number in range(5)))
        await one.delete("a0")
        await one.connection.request(
            "PATCH", f"{MAPS}/a1", body={"data": {"x": "1"}}, content_type=MERGE_PATCH
        )
        await one.create("a5")
        await one.until(*(f"a{number}" for number in range(1, 6)))

    one = played(cluster, "pages", story)
    assert one.told[-3:] == [("DELETED", "a0"), ("MODIFIED", "a1"), ("ADDED", "a5")]
    assert len(one.told) == 8


def test_a_deletion_that_no_event_told_is_found_by_the_next_list(
    cluster: KubernetesEmulator,
) -> None:
    async def story(one: Watched) -> None:
        await one.create("b0")
        await one.create("b1")
        await one.until("b0", "b1")
        fault = cluster.fault(verb="watch", resource="configmaps", code=503, count=1000)
        cluster.cut_watches("configmaps")
        await one.delete("b0")
        await one.create("b2")
        cluster.compact()
        cluster.remove_faults(fault)
        await one.until("b1", "b2")

    one = played(cluster, "compacted", story)
    assert sorted(one.told[-2:]) == [("ADDED", "b2"), ("DELETED", "b0")]


def test_a_server_that_was_away_is_heard_again(cluster: KubernetesEmulator) -> None:
    async def story(one: Watched) -> None:
        await one.create("c0")
        await one.until("c0")
        await asyncio.to_thread(cluster.away, on=True)
        async with asyncio.timeout(HANG_S):
            while one.informer.trouble is None:
                await asyncio.sleep(LOOK_S)
        with pytest.raises(Unavailable):
            await one.connection.request("GET", MAPS, tries=1)
        await asyncio.to_thread(cluster.away, on=False)
        await one.create("c1")
        await one.until("c0", "c1")
        assert one.informer.trouble is None

    played(cluster, "away", story)


def test_answers_are_told_apart_and_what_passes_is_asked_again(cluster: KubernetesEmulator) -> None:
    async def story(one: Watched) -> None:
        await one.create("d0")
        with pytest.raises(ApiError) as exists:
            await one.create("d0")
        assert exists.value.exists
        with pytest.raises(ApiError) as missing:
            await one.connection.request("GET", f"{MAPS}/nobody")
        assert missing.value.not_found
        stale = {"metadata": {"name": "d0", "resourceVersion": "1"}}
        with pytest.raises(ApiError) as conflict:
            await one.connection.request("PUT", f"{MAPS}/d0", body=stale)
        assert conflict.value.conflict
        cluster.fault(verb="get", resource="configmaps", code=429, retry_after_s=0, count=2)
        found = await one.connection.request("GET", f"{MAPS}/d0")
        assert found["metadata"]["name"] == "d0"
        # What may have been done is not done again: only who asked knows how to look.
        cluster.fault(verb="create", resource="configmaps", lost=True, count=1)
        with pytest.raises(Unavailable) as lost:
            await one.create("d1")
        assert lost.value.perhaps_made
        await one.until("d0", "d1")
        cluster.remove_faults()

    played(cluster, "answers", story)


def test_a_kubeconfig_that_cannot_be_used_is_refused_with_its_name(
    cluster: KubernetesEmulator,
) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(connect_cluster(kubeconfig=str(cluster.kubeconfig), context="nowhere"))
    assert "context `nowhere`" in str(refused.value)
    assert str(cluster.kubeconfig) in str(refused.value)


class Tunnels:
    """An HTTP proxy that leads every tunnel to one server of this machine. asked: for which."""

    def __init__(self, port: int) -> None:
        self.asked: list[bytes] = []
        self._port = port

    async def open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split(b"\r\n")[0])
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_carry(reader, back), _carry(there, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_requests_and_streams_go_through_the_proxy_of_the_environment(
    cluster: KubernetesEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a password for the server in ~/.netrc is nobody's here, as with kubectl."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    port = int(cluster.url.rpartition(":")[2])
    config["clusters"][0]["cluster"]["server"] = f"https://kubernetes.default.svc:{port}"
    (tmp_path / "config").write_text(json.dumps(config))
    netrc = tmp_path / "netrc"
    netrc.write_text("machine kubernetes.default.svc login a password b\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    async def play() -> list[bytes]:
        tunnels = Tunnels(port)
        async with await asyncio.start_server(tunnels.open, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{address[1]}")
            connection = await connect_cluster(kubeconfig=str(tmp_path / "config"))
            try:
                assert (await connection.request("GET", MAPS))["kind"] == "ConfigMapList"
                with pytest.raises(ApiError) as absent:
                    await connection.websocket(
                        "/api/v1/namespaces/default/pods/none/exec",
                        "command=true&stdout=true",
                        ["v5.channel.k8s.io"],
                    )
                assert absent.value.not_found
            finally:
                await connection.close()
        return tunnels.asked

    wanted = f"CONNECT kubernetes.default.svc:{port} HTTP/1.1".encode()
    assert set(asyncio.run(play())) == {wanted}


@pytest.mark.parametrize(
    ("server", "found"),
    [
        ("https://cluster.example.org:6443", "http://proxy.example.org:3128"),
        ("https://near.example.org", None),
        ("https://127.0.0.1:6443", None),
        ("https://localhost:6443", None),
        ("https://[::1]:6443", None),
    ],
)
def test_a_server_of_this_machine_needs_no_proxy(
    server: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setenv("NO_PROXY", "near.example.org")
    assert find_proxy(server) == found
