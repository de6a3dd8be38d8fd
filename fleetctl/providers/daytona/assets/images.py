"""Snapshots that are ready to start sandboxes from: one for each image and size, built once, with
the guest in it.

Called by the provider before a start.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Coroutine
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.tasks import cancel
from fleetctl.guest.ship.assemble import posix_source, remote_source
from fleetctl.providers.daytona.assets import layers, snapshots
from fleetctl.providers.daytona.assets.snapshots import Scope
from fleetctl.providers.daytona.connection import credentials, rest_api
from fleetctl.providers.daytona.connection.errors import (
    asking,
    certain,
    is_conflict,
    is_not_found,
    is_of_the_sdk,
    words,
)
from fleetctl.providers.daytona.runs.machines import Machine, machine
from fleetctl.providers.remote.assets import recipes
from fleetctl.providers.remote.assets.build_waits import (
    RETRY_AFTER_S,
    building,
    has_failed,
    patiently,
)
from fleetctl.providers.remote.assets.recipes import Recipe
from fleetctl.providers.rundir.builds import BuildLog, link
from fleetctl.specs.blocks.template import Image, Template

if TYPE_CHECKING:
    import daytona

ASK_S = 30.0
BUILD_S = 3600.0  # Daytona's own limit of a build
TAIL_LINES = 5  # of a failed build's log, in the message
LOOK_S = 1.0  # at what somebody else builds
COLLECT_EVERY_S = 3600.0
JOBS = "jobs"  # where the objects that need an image link its log
_FAILED = ("error", "build_failed")
_OWN_WORDS = ("Creating snapshot ", "Created snapshot ")  # of the SDK, in a build's log

log = logging.getLogger("fleetctl.providers")

Building = asyncio.Task[str]


class Images:
    """What one provider has found, built and is building. home: the state directory's `daytona`.
    store: whose snapshots these are.
    """

    def __init__(self, home: Path, *, store: str, account: str = "daytona") -> None:
        self._home = home
        self._store, self._account = store, account
        self._jobs = home / JOBS
        self._known: dict[str, Building] = {}
        self._fresh: dict[str, str] = {}  # what a template asks for -> key of its building
        self._collected_s: float | None = None
        # The same, while that is found out.
        self._looking: dict[str, asyncio.Task[tuple[str, Building]]] = {}

    async def ready(self, client: daytona.AsyncDaytona, template: Template, job: Path) -> str:
        """The name of a snapshot for a template. job: the directory of the resource's journals and
        logs, where the build log is linked. Raises Refused with the end of the build's log, and
        Unavailable while it is being built or when the world is at fault.
        """
        image = template.image or Image()
        if image.snapshot is not None:
            if template.sandbox_resources != type(template.sandbox_resources)():
                raise Refused(
                    f"resources are asked for beside image.snapshot `{image.snapshot}`,"
                    " and a snapshot has its own",
                    hint="leave resources out, or say what to install in place of the snapshot",
                )
            make = partial(_found, client, image.snapshot)
            return await patiently(self._once(f"named {image.snapshot}", make))
        # All runs of a template ask the same: the answer must cost next to nothing.
        asked = f"{job}\n{image.model_dump_json()}\n{template.sandbox_resources.model_dump_json()}"
        asked += f"\n{template.python is None}{template.source is not None}"
        found = self._known.get(self._fresh.get(asked, ""))
        if found is None or has_failed(found):
            self._fresh[asked], found = await self._begun(asked, client, template, job)
        return await patiently(found)

    def forget(self, job: Path, snapshot: str | None = None) -> None:
        """Look again at the next start: the resource's scratch space is gone, or a snapshot is."""
        for asked in [asked for asked in self._fresh if asked.startswith(f"{job}\n")]:
            key = self._fresh.pop(asked)
            if snapshot is not None:
                self._known.pop(key, None)
        self._known.pop(f"named {snapshot}", None)

    async def collect(self, client: daytona.AsyncDaytona) -> None:
        """Delete what nobody has needed for long. Cheap: looks once in COLLECT_EVERY_S."""
        now_s = time.monotonic()
        if self._collected_s is not None and now_s - self._collected_s < COLLECT_EVERY_S:
            return
        self._collected_s = now_s
        try:
            await snapshots.collect(client, self._scope(client), self._jobs, now_s=time.time())
        except FleetctlError as error:
            log.info("snapshots not collected", extra={"error": str(error)})

    def _scope(self, client: daytona.AsyncDaytona) -> Scope:
        return Scope(self._store, self._account, credentials.of_client(client).target)

    async def close(self) -> None:
        """Stop waiting for builds. Those that began go on at Daytona and are found again."""
        waiting = [*self._looking.values(), *self._known.values()]
        await cancel(waiting)

    async def _begun(
        self, asked: str, client: daytona.AsyncDaytona, template: Template, job: Path
    ) -> tuple[str, Building]:
        """Once for all that ask meanwhile, as the first runs of a resource do."""
        task = self._looking.get(asked)
        if task is None:
            task = self._looking[asked] = building(self._begin(client, template, job))
            task.add_done_callback(lambda _: self._looking.pop(asked))
        return await asyncio.shield(task)

    async def _begin(
        self, client: daytona.AsyncDaytona, template: Template, job: Path
    ) -> tuple[str, Building]:
        """The key of its building, and that."""
        recipe = await asyncio.to_thread(recipes.recipe, template)
        size = machine(template.sandbox_resources)
        key = _key(recipe, size)
        log = self._home / "builds" / f"{key}.log"
        link(job, log)
        return key, self._once(key, partial(self._make, client, recipe, size, log))

    def _once(self, key: str, make: Callable[[], Coroutine[None, None, str]]) -> Building:
        """The task that finds or makes it; a failed one is made again."""
        task = self._known.get(key)
        if task is None or has_failed(task):
            task = self._known[key] = building(make())
        return task

    async def _make(
        self, client: daytona.AsyncDaytona, recipe: Recipe, size: Machine, log: Path
    ) -> str:
        scope = self._scope(client)
        name = scope.name(log.stem)
        with BuildLog(log) as written:
            if await _stands(client, name):
                written.settle(f"[fleetctl: {recipe.told}: built before, nothing to do]\n")
                return name
            scratch = self._home / "packages" / log.stem
            try:
                image = await asyncio.to_thread(layers.image, recipe, scratch)
                await _build(client, name, image, size, written)
            except Unavailable as error:
                if error.reason == "Quota":
                    await snapshots.make_room(client, scope, self._jobs)
                raise
            finally:
                await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        return name


async def _found(client: daytona.AsyncDaytona, name: str) -> str:
    """A snapshot that somebody else made."""
    if not await _stands(client, name):
        raise Refused(
            f"image.snapshot is `{name}`, which Daytona does not have",
            hint="look at app.daytona.io/dashboard/snapshots",
        )
    return name


async def _stands(client: daytona.AsyncDaytona, name: str) -> bool:
    """Whether sandboxes can be started from it; waits while somebody builds it. What failed, or
    is being removed, goes first.
    """
    what = f"snapshot `{name}` cannot be looked up"
    async with asyncio.timeout(BUILD_S):
        while True:
            try:
                async with asking(what, deadline_s=ASK_S):
                    found = await client.snapshot.get(name)
                    state = str(getattr(found.state, "value", found.state))
                    if state == "active":
                        return True
                    if state == "inactive":
                        await client.snapshot.activate(found)
                        return True
                    if state in _FAILED and snapshots.store_of(name):
                        await client.snapshot.delete(found)
                    elif state in _FAILED:
                        raise Refused(
                            f"snapshot `{name}` is broken: {found.error_reason}",
                            hint="make it anew at app.daytona.io/dashboard/snapshots",
                        )
            except Exception as error:
                if is_not_found(error):
                    return False
                if not is_conflict(error):
                    raise
            await asyncio.sleep(LOOK_S)


async def _build(
    client: daytona.AsyncDaytona, name: str, image: daytona.Image, size: Machine, log: BuildLog
) -> None:
    import daytona
    from daytona import GpuType

    params = daytona.CreateSnapshotParams(
        name=name,
        image=image,
        resources=daytona.Resources(
            cpu=size.cpu,
            memory=size.memory,
            disk=size.disk,
            gpu=size.gpu,
            gpu_type=None if size.gpu_type is None else GpuType(size.gpu_type),
        ),
    )
    hearing = _Hearing(log)
    try:
        async with asyncio.timeout(BUILD_S):
            await client.snapshot.create(params, on_logs=hearing.take)
    except TimeoutError as error:
        raise Unavailable("the image was not built within an hour") from error
    except Exception as error:
        if is_conflict(error) and await _stands(client, name):
            return  # somebody else was first
        if not is_of_the_sdk(error):
            raise
        await hearing.make_up(client, name)
        raise await _why(client, name, error, log) from error
    await hearing.make_up(client, name)


class _Hearing:
    """What the SDK tells of a build: words of its own about states, and lines of the build's log if
    it looked while there was something to stream.
    """

    def __init__(self, log: BuildLog) -> None:
        self._log = log
        self._streamed = False

    def take(self, text: str) -> None:
        self._streamed |= not text.startswith(_OWN_WORDS)
        self._log.write(f"{text}\n")

    async def make_up(self, client: daytona.AsyncDaytona, name: str) -> None:
        if not self._streamed:
            self._log.write(await rest_api.build_log(client, name))


async def _why(
    client: daytona.AsyncDaytona, name: str, error: Exception, log: BuildLog
) -> FleetctlError:
    """What a build ended with. A snapshot of which Daytona itself says that it failed is removed;
    any other is left: its build may go on, and the next start finds it under the same name.
    """
    what = "the image cannot be built"
    again = Unavailable(f"{what}: {words(error)}", retry_after_s=RETRY_AFTER_S)
    if getattr(error, "status_code", None) is not None:
        return certain(error, what) or again
    try:
        async with asking(what, deadline_s=ASK_S):
            found = await client.snapshot.get(name)
            if str(getattr(found.state, "value", found.state)) not in _FAILED:
                return again
            await client.snapshot.delete(found)
    except Exception as gone:
        if not (is_not_found(gone) or is_conflict(gone)):
            raise
        return again
    reason = found.error_reason or words(error)
    log.settle(reason + "\n")
    lines = [line.strip() for line in (log.tail() or reason).splitlines() if line.strip()]
    output = [line for line in lines if not line.startswith(_OWN_WORDS)][-TAIL_LINES:]
    return Refused(f"{what}: {'; '.join(output)}", hint=f"the whole log is `{log.path}`")


def _key(recipe: Recipe, size: Machine) -> str:
    facts = [layers.FORMAT, recipe.key, _guests(), size.cpu, size.memory, size.disk]
    facts += [size.gpu, size.gpu_type]
    return sha256(repr(facts).encode()).hexdigest()[:16]


@cache
def _guests() -> str:
    return sha256((remote_source(compiled=False) + posix_source()).encode()).hexdigest()
