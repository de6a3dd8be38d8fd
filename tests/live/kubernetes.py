"""`make live-kubernetes`: the suite of all providers against the cluster of the current context.

Everything is made in a namespace of its own, which is deleted at the end with all that is in it;
nothing that was there before is looked at or touched. Volumes are claims of the cluster's own
storage class. With `--emulated` the cluster is the one of tests/emulators.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from unittest import mock

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import connect_cluster
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.guards import BEYOND

SUITE = "tests/live/kubernetes_suite.py"
SUITE_S = 3600.0  # a cluster may have to pull images and to add nodes
DELETE_S = 300.0
LOOK_S = 1.0
EMULATED = "--emulated"
NAMESPACE_VARIABLE = "FLEETCTL_LIVE_NAMESPACE"


def main(words: list[str]) -> int:
    """The exit code. words: handed on to pytest."""
    if EMULATED not in words:
        return _play(words)
    with KubernetesEmulator() as emulator, mock.patch.dict(os.environ, emulator.env):
        print("cluster: the emulated one", flush=True)
        return _play([it for it in words if it != EMULATED])


def _play(words: list[str]) -> int:
    try:
        with namespace() as name:
            variables = {**os.environ, NAMESPACE_VARIABLE: name}
            pytest = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider"]
            command = [*pytest, BEYOND, SUITE, *words]
            return subprocess.run(command, env=variables, timeout=SUITE_S).returncode
    except subprocess.TimeoutExpired:
        print(f"error: the suite took more than {SUITE_S:.0f} s", file=sys.stderr)
        return 1
    except FleetctlError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error}{hint}", file=sys.stderr)
        return 2


@contextmanager
def namespace() -> Iterator[str]:
    """The name of a new one; at the end it is gone, and nothing of it runs."""
    name = f"fleetctl-live-{token_hex(4)}"
    asyncio.run(_made(name))
    print(f"all is made in namespace `{name}`", flush=True)
    try:
        yield name
    finally:
        asyncio.run(_deleted(name))
        print(f"namespace `{name}` is deleted, with all that was in it", flush=True)


async def _made(name: str) -> None:
    connection = await connect_cluster()
    try:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await connection.request("POST", "/api/v1/namespaces", body=body)
    finally:
        await connection.close()


async def _deleted(name: str) -> None:
    """Once the cluster says that it is gone. Raises TimeoutError."""
    connection, path = await connect_cluster(), f"/api/v1/namespaces/{name}"
    try:
        async with asyncio.timeout(DELETE_S):
            await connection.request("DELETE", path)
            while True:
                await connection.request("GET", path)
                await asyncio.sleep(LOOK_S)
    except ApiError as error:
        if not error.not_found:
            raise
    finally:
        await connection.close()
