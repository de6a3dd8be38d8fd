"""Runs commands beside a task in a pod, with a terminal or without one, and forwards its ports.
Called by the CLI through wiring, without a controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.guest.nodes.gang import node_of, strip_node
from fleetctl.kubernetes.answers import ApiError
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.sandbox_access import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    ClusterLink,
    KubernetesConnection,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call, is_not_found
from fleetctl.providers.kubernetes.connection.pod_channel import STDOUT, PodChannel, run
from fleetctl.providers.kubernetes.manifests.entry import STATE_DIR, wrap_command
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.kubernetes.runs.pod_statuses import parse_handle, split_handle
from fleetctl.providers.paths import serves_cluster
from fleetctl.providers.remote.sandboxes import exec_channel

CALL_S = 30.0


class KubernetesEntering:
    """A connection of its own, made at the first call."""

    terminal = True
    binary = True

    def __init__(self, home: Path, account: Account) -> None:
        self._connection = KubernetesConnection(
            account=lambda: account, tenants=serves_cluster(home)
        )

    async def execute(
        self,
        place: ExecTarget,
        argv: tuple[str, ...],
        streams: ExecStreams,
    ) -> int:
        link = await self._connection.link(parse_handle(place.handle).namespace)
        pod = await self._pod(link, place)
        what = f"a command beside run `{place.run}`"
        tty = streams.tty is not None
        try:
            channel = await run(
                link,
                pod,
                _command_words(place, argv),
                container=MAIN,
                stdin=streams.stdin is not None,
                tty=tty,
            )
        except ApiError as error:
            raise Unavailable(f"{what} cannot be started: {error}") from error
        beside = [
            asyncio.ensure_future(_feed_input(channel, streams.stdin)),
            asyncio.ensure_future(_follow_sizes(channel, streams)),
        ]
        try:
            async for stream, data in channel.frames():
                (streams.out if stream == STDOUT else streams.err)(data)
        except ConnectionError as error:
            raise Unavailable(f"{what} was lost: {error}") from error
        finally:
            await cancel_tasks(beside)
            await channel.close()
        if channel.exit_code is None:
            raise Unavailable(f"{what} was lost: {channel.failure or 'the line broke'}")
        return channel.exit_code

    async def link(self, place: ExecTarget, port: int) -> str:
        """Returns "": a command carries the bytes, as the pod's network is the cluster's own."""
        del place, port
        return ""

    async def close(self) -> None:
        await self._connection.close()

    async def _pod(self, link: ClusterLink, place: ExecTarget) -> str:
        """Returns the name of the pod of a run. Raises Refused when the run has ended."""
        job, name = split_handle(place.handle)
        node = node_of(place.run)
        found = None
        try:
            async with cluster_call(f"run `{place.run}` cannot be looked up", deadline_s=CALL_S):
                if name and not node:
                    found = await link.get("pods", name)
                else:
                    made = await link.list("pods", {"labelSelector": f"{JOB_NAME}={job}"})
                    found = next((pod for pod in made if pod_statuses.node_of(pod) == node), None)
        except ApiError as error:
            if not is_not_found(error):
                raise
        if found is None or pod_statuses.is_over(found):
            raise Refused(
                f"the pod of run `{place.run}` is gone, so no command can join it", hint=ENDED_HINT
            )
        return pod_statuses.name_of(found)


def _command_words(place: ExecTarget, argv: tuple[str, ...]) -> list[str]:
    place = replace(place, run=strip_node(place.run))  # each node is in a pod of its own
    given = [f"{name}={value}" for name, value in exec_channel.exec_variables(place).items()]
    words = exec_channel.exec_command(place, argv, work=f"{STATE_DIR}/work")
    return wrap_command(["env", *given, *words])


async def _feed_input(channel: PodChannel, data: AsyncIterator[bytes] | None) -> None:
    if data is None:
        return
    async for piece in data:
        await channel.send(piece)
    await channel.end_input()


async def _follow_sizes(channel: PodChannel, streams: ExecStreams) -> None:
    if streams.tty is not None:
        await channel.resize(*streams.tty)
    if streams.sizes is not None:
        async for rows, columns in streams.sizes:
            await channel.resize(rows, columns)


_: type[Entering] = KubernetesEntering
