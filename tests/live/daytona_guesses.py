"""Asks the service what its documentation and its SDK leave open, one question a letter.

Called by `make live-daytona`. Uses a dozen of the smallest sandboxes, and ends each.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import daytona
from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams

PATIENCE_S = 120.0
LOOK_S = 0.5
# Longer than the idle limits that proxies have, which nobody has written down.
LONG_S = float(os.environ.get("FLEETCTL_LIVE_LONG_S", "70"))
CORES_TOO_MANY = 4000

Words = Callable[[], Awaitable[Any]]


async def measured(name: str) -> AsyncGenerator[str, None]:
    """Lines for people. What the service does not let us ask is answered by its error. name: what
    all names begin with.
    """
    async with daytona.AsyncDaytona() as client:
        service = Service(client, name)
        questions = [
            ("a", service.lag_of_the_list),
            ("b", service.names_and_what_was_destroyed),
            ("c", service.a_delete_in_the_midst_of_a_start),
            ("d", service.sessions),
            ("e", service.a_call_that_takes_long),
            ("f", service.volumes),
            ("g", service.words_of_a_quota),
            ("h", service.headers_of_rate_limits),
            ("i", service.the_smallest_machine),
            ("j", service.the_end_of_a_ttl),
        ]
        for letter, ask in questions:
            try:
                yield f"({letter}) {await ask()}"
            except Exception as error:  # the answer of a service that we do not know
                yield f"({letter}) not answered: {_words(error)}"


class Service:
    def __init__(self, client: daytona.AsyncDaytona, name: str) -> None:
        self.client = client
        self.name = name
        self.made = 0

    def params(self, **options: Any) -> CreateSandboxFromSnapshotParams:
        self.made += 1
        usual = {"name": f"{self.name}-guess-{self.made}", "ephemeral": True, "ttl_minutes": 6}
        return CreateSandboxFromSnapshotParams(**(usual | options))

    @asynccontextmanager
    async def sandbox(self, **options: Any) -> AsyncIterator[daytona.AsyncSandbox]:
        made = await self.client.create(self.params(**options))
        try:
            yield made
        finally:
            await made.delete(wait=True)

    async def lag_of_the_list(self) -> str:
        async with self.sandbox(labels={"guess": self.name}) as sandbox:
            shown = await self._until_listed(sandbox.name, listed=True)
        hidden = await self._until_listed(sandbox.name, listed=False)
        return f"a list shows a new sandbox after {shown}, and a destroyed one until {hidden}"

    async def _until_listed(self, name: str, *, listed: bool) -> str:
        query = daytona.ListSandboxesQuery(labels={"guess": self.name})
        began_s = time.monotonic()
        while time.monotonic() - began_s < PATIENCE_S:
            found = [one async for one in self.client.list(query) if one.state != "destroyed"]
            if listed == (name in [one.name for one in found]):
                return f"{time.monotonic() - began_s:.1f} s"
            await asyncio.sleep(LOOK_S)
        return f"more than {PATIENCE_S:.0f} s"

    async def names_and_what_was_destroyed(self) -> str:
        params = self.params()
        first = await self.client.create(params)
        taken = await _raised(lambda: self.client.create(params))
        await first.delete(wait=True)
        by_id = await self._told_of(first.id)
        by_name = await self._told_of(first.name)
        again = await self.client.create(params)
        await again.delete(wait=True)
        return (
            f"name taken: {taken}; of a destroyed one a get by id says {by_id}, one by name"
            f" {by_name}; its name is free again at once"
        )

    async def _told_of(self, id_or_name: str) -> str:
        try:
            found = await self.client.get(id_or_name)
        except daytona.DaytonaError as error:
            return f"{error.status_code}"
        return f"`{_state(found)}`"

    async def a_delete_in_the_midst_of_a_start(self) -> str:
        params = self.params()
        making = asyncio.ensure_future(self.client.create(params))
        try:
            found = await self._found(str(params.name))
            state = _state(found)
            reply = await _raised(found.delete)
        finally:
            await asyncio.wait({making})
        if not making.exception():
            await _raised(lambda: making.result().delete(wait=True))
        return f"in `{state}` a delete is answered: {reply}"

    async def _found(self, name: str) -> daytona.AsyncSandbox:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self.client.get(name)
                except daytona.DaytonaNotFoundError:
                    await asyncio.sleep(0)

    async def sessions(self) -> str:
        async with self.sandbox() as sandbox:
            process = sandbox.process
            await process.create_session("guess")
            taken = await _raised(lambda: process.create_session("guess"))
            parts = []
            for command in ("exit 3", "cat", "sh -c 'exit 3'"):
                session = f"guess-{len(parts)}"
                await process.create_session(session)
                request = daytona.SessionExecuteRequest(command=command, run_async=True)
                begun = await process.execute_session_command(session, request)
                await asyncio.sleep(3.0)
                code = (await process.get_session_command(session, begun.cmd_id)).exit_code
                parts.append(f"`{command}` ended with {code}")
        return f"id taken: {taken}; after 3 s {', '.join(parts)} (None is not)"

    async def a_call_that_takes_long(self) -> str:
        async with self.sandbox() as sandbox:
            reply = await _raised(lambda: sandbox.process.exec(f"sleep {LONG_S:g}", timeout=600))
        return f"a call of {LONG_S:g} s is answered: {reply}"

    async def volumes(self) -> str:
        name = f"{self.name}-guess"
        volume = await self.client.volume.create(name)
        began_s, states = time.monotonic(), [_state(volume)]
        while states[-1] != "ready" and time.monotonic() - began_s < PATIENCE_S:
            await asyncio.sleep(LOOK_S / 5)
            volume = await self.client.volume.get(name)
            states += [_state(volume)] if _state(volume) != states[-1] else []
        ready_s = time.monotonic() - began_s
        taken = await _raised(lambda: self.client.volume.create(name))
        mount = daytona.VolumeMount(volume_id=volume.id, mount_path="/home/daytona/guess")
        async with self.sandbox(volumes=[mount]):
            used = await _raised(lambda: self.client.volume.delete(volume))
        return (
            f"ready after {ready_s:.1f} s ({', then '.join(states)}); name taken: {taken};"
            f" deleted while in use: {used}"
        )

    async def words_of_a_quota(self) -> str:
        self.made += 1
        params = CreateSandboxFromImageParams(
            name=f"{self.name}-guess-{self.made}",
            image="debian:12.9",
            resources=daytona.Resources(cpu=CORES_TOO_MANY),
            ephemeral=True,
            ttl_minutes=6,
        )
        return f"{CORES_TOO_MANY} cores: {await _raised(lambda: self.client.create(params))}"

    async def headers_of_rate_limits(self) -> str:
        from daytona_api_client_async import SnapshotsApi

        api = SnapshotsApi(self.client._api_client)
        answer = await api.get_all_snapshots_with_http_info(limit=1)
        headers = [name for name in answer.headers or {} if "rate" in name.lower()]
        return f"headers of rate limits: {', '.join(sorted(headers)) or 'none'}"

    async def the_smallest_machine(self) -> str:
        async with self.sandbox() as sandbox:
            reply = await sandbox.process.exec(
                "id -un; pwd; python3 --version; command -v bash git"
            )
            message = " ".join(reply.result.split())
            return f"{sandbox.cpu} cpu, {sandbox.memory} GiB, {sandbox.disk} GiB of disk: {message}"

    async def the_end_of_a_ttl(self) -> str:
        sandbox = await self.client.create(self.params(ttl_minutes=1, auto_stop_interval=0))
        began_s = time.monotonic()
        while time.monotonic() - began_s < 2 * PATIENCE_S:
            state = await self._told_of(sandbox.id)
            if state in ("404", "`destroyed`"):
                return f"a TTL of 60 s ended a sandbox after {time.monotonic() - began_s:.0f} s"
            await asyncio.sleep(LOOK_S)
        await sandbox.delete(wait=True)
        return f"a TTL of 60 s has not ended a sandbox after {2 * PATIENCE_S:.0f} s"


def _state(one: daytona.AsyncSandbox | daytona.Volume) -> str:
    return str(getattr(one.state, "value", one.state))


async def _raised(act: Words) -> str:
    try:
        answer = await act()
    except Exception as error:  # which one is the answer
        return _words(error)
    code = getattr(answer, "exit_code", None)
    return "no error" if code is None else f"exit code {code}"


def _words(error: Exception) -> str:
    status = getattr(error, "status_code", None)
    said = " ".join(str(error).split())[:200]
    return f"{type(error).__name__} {status or ''}: {said}"
