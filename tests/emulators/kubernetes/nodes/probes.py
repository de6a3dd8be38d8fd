"""Probes of containers: when they are ready, and when they have to be started again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from tests.emulators.boxes import BoxError
from tests.emulators.kubernetes.nodes.containers import Container

Object = dict[str, Any]
HOST = "127.0.0.1"  # pods have this machine's network
Tell = Callable[[str, str], None]


class Probing:
    """Of one life of a container. changed: its readiness is another; fail: why it must end."""

    def __init__(
        self,
        container: Container,
        *,
        changed: Callable[[], None],
        unhealthy: Callable[[str], None],
        fail: Callable[[str], Awaitable[None]],
    ) -> None:
        self._container, spec = container, container.spec
        self._changed, self._unhealthy, self._fail = changed, unhealthy, fail
        container.started = "startupProbe" not in spec
        container.ready = container.started and "readinessProbe" not in spec

    async def run(self) -> None:
        """Until the container has ended."""
        spec = self._container.spec
        if probe := spec.get("startupProbe"):
            if not await self._once(probe, "Startup"):
                return
            self._container.started = True
            self._container.ready = "readinessProbe" not in spec
            self._changed()
        tasks = []
        if probe := spec.get("readinessProbe"):
            tasks.append(self._readiness(probe))
        if probe := spec.get("livenessProbe"):
            tasks.append(self._liveness(probe))
        await asyncio.gather(*tasks)

    async def _once(self, probe: Object, kind: str) -> bool:
        """Until it succeeds; False when it failed too often, or the container has ended."""
        failures = 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while self._container.running:
            if not (why := await self._problem(probe)):
                return True
            failures += 1
            self._unhealthy(f"{kind} probe failed: {why}")
            if failures >= probe.get("failureThreshold", 3):
                await self._fail(f"failed {kind.lower()} probe")
                return False
            await asyncio.sleep(probe.get("periodSeconds", 10))
        return False

    async def _readiness(self, probe: Object) -> None:
        failures = successes = 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while self._container.running:
            why = await self._problem(probe)
            failures, successes = (failures + 1, 0) if why else (0, successes + 1)
            if why:
                self._unhealthy(f"Readiness probe failed: {why}")
            ready = self._container.ready
            if successes >= probe.get("successThreshold", 1):
                ready = True
            elif failures >= probe.get("failureThreshold", 3):
                ready = False
            if ready != self._container.ready:
                self._container.ready = ready
                self._changed()
            # The real kubelet looks more often, too, until a container has been ready once.
            period = probe.get("periodSeconds", 10)
            await asyncio.sleep(period if ready else min(period, 1))

    async def _liveness(self, probe: Object) -> None:
        failures = 0
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while self._container.running:
            why = await self._problem(probe)
            failures = failures + 1 if why else 0
            if why:
                self._unhealthy(f"Liveness probe failed: {why}")
            if failures >= probe.get("failureThreshold", 3):
                await self._fail("failed liveness probe")
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _problem(self, probe: Object) -> str:
        """Why it fails; "" when it succeeds."""
        try:
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                if "exec" in probe:
                    return await self._exec(probe["exec"]["command"])
                if "httpGet" in probe:
                    return await self._get(probe["httpGet"])
                _, writer = await asyncio.open_connection(HOST, self._port(probe["tcpSocket"]))
                writer.close()
                return ""
        except TimeoutError:
            return "context deadline exceeded"
        except OSError as error:
            return f"dial tcp: {error.strerror}"

    async def _exec(self, argv: list[str]) -> str:
        container = self._container
        if container.box is None:
            return "container not running"
        try:
            process = await container.box.spawn(argv, env=container.environment, cwd="/")
        except BoxError as error:
            return f"{argv[0]}: {error.strerror}"
        code = await process.wait()
        return f"command exited with code {code}" if code else ""

    async def _get(self, told: Object) -> str:
        scheme = told.get("scheme", "HTTP").lower()
        url = f"{scheme}://{HOST}:{self._port(told)}{told.get('path', '/')}"
        headers = {it["name"]: it["value"] for it in told.get("httpHeaders", ())}
        try:
            # Nor does the real kubelet look at certificates.
            async with (
                aiohttp.ClientSession() as session,
                session.get(url, headers=headers, ssl=False) as answer,
            ):
                bad = not 200 <= answer.status < 400
                return f"HTTP probe failed with statuscode: {answer.status}" if bad else ""
        except aiohttp.ClientError as error:
            return f'Get "{url}": {error}'

    def _port(self, told: Object) -> int:
        """A number, or the name of one of the container's ports."""
        port = told["port"]
        if isinstance(port, int) or port.isdigit():
            return int(port)
        for one in self._container.spec.get("ports", ()):
            if one.get("name") == port:
                return int(one["containerPort"])
        raise OSError(0, f"couldn't find port: {port}")
