"""Snapshots that are ready to start sandboxes from: one for each image and size, built once from a
recipe, with the guest in it.

All that is built here belongs to root, and so does what runs in it: an image of a registry may
name another user, without rights to install packages, and a Dockerfile cannot read that user to
restore it after. Modal does the same and ignores `USER`. A task for another user switches itself,
as in `su jovyan -c ...`, or starts from a snapshot, which is left as it is.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import shlex
import shutil
import textwrap
import time
from collections.abc import Callable, Coroutine
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.guest.ship.assemble import posix_source, quick_source, recompile_source, remote_source
from fleetctl.providers.daytona.assets import daytona_snapshots
from fleetctl.providers.daytona.assets.daytona_snapshots import SnapshotScope
from fleetctl.providers.daytona.connection import daytona_credentials, sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    classify_error,
    error_words,
    is_conflict,
    is_not_found,
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.daytona.runs.daytona_machines import DaytonaMachine, choose_machine
from fleetctl.providers.daytona.runs.daytona_streams import IN_IMAGE
from fleetctl.providers.paths import make_private
from fleetctl.providers.remote import recipes
from fleetctl.providers.remote.recipes import (
    CHECK_PYTHON,
    RETRY_AFTER_S,
    LocalPackage,
    Recipe,
    await_build,
    has_failed,
    start_build,
)
from fleetctl.providers.rundir.build_logs import BuildLog, link_log
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree
from fleetctl.providers.uv import index_options
from fleetctl.specs.blocks.template import Image, Template

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

FORMAT = "2"  # of what this module makes; a change makes other snapshots
# From the SDK's `Image.debian_slim`, which refuses others; a test compares the two lists.
SLIM_SERIES = ("3.9", "3.10", "3.11", "3.12", "3.13")
LINE_CHARACTERS = 48_000  # builders refuse lines of more than 64 KiB


class DaytonaImages:
    """The snapshots that one provider has found, built and is building. home: the state directory's
    `daytona`. store: the owner of these snapshots.
    """

    def __init__(
        self,
        home: Path,
        *,
        store: str,
        account: str = "daytona",
    ) -> None:
        self._home = home
        self._store = store
        self._account = account
        self._jobs = home / JOBS
        self._known: dict[str, Building] = {}
        self._fresh: dict[str, str] = {}  # image and resources of a template -> key of its building
        self._collected_s: float | None = None
        # The same, while that is found out.
        self._looking: dict[str, asyncio.Task[tuple[str, Building]]] = {}

    async def ready(
        self,
        client: sdk.AsyncDaytona,
        template: Template,
        job: Path,
    ) -> str:
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
                    hint="leave resources out, or list what to install instead of the snapshot",
                )
            make = partial(_use_snapshot, client, image.snapshot)
            return await await_build(self._make_once(f"named {image.snapshot}", make))
        # All runs of a template ask the same, so the answer must be cheap.
        asked = f"{job}\n{image.model_dump_json()}\n{template.sandbox_resources.model_dump_json()}"
        asked += f"\n{template.python is None}{template.source is not None}"
        found = self._known.get(self._fresh.get(asked, ""))
        if found is None or has_failed(found):
            self._fresh[asked], found = await self._begin_build(asked, client, template, job)
        return await await_build(found)

    def forget(self, job: Path, snapshot: str | None = None) -> None:
        """Looks again at the next start: the resource's scratch space is gone, or a snapshot is."""
        for asked in [asked for asked in self._fresh if asked.startswith(f"{job}\n")]:
            key = self._fresh.pop(asked)
            if snapshot is not None:
                self._known.pop(key, None)
        self._known.pop(f"named {snapshot}", None)

    async def collect(self, client: sdk.AsyncDaytona) -> None:
        """Deletes the snapshots that were not needed for long. Cheap: looks once in
        COLLECT_EVERY_S.
        """
        now_s = time.monotonic()
        if self._collected_s is not None and now_s - self._collected_s < COLLECT_EVERY_S:
            return
        self._collected_s = now_s
        try:
            await daytona_snapshots.collect_unused(
                client, self._scope(client), self._jobs, now_s=time.time()
            )
        except FleetctlError as error:
            log.info("snapshots not collected", extra={"error": str(error)})

    def _scope(self, client: sdk.AsyncDaytona) -> SnapshotScope:
        return SnapshotScope(
            self._store, self._account, daytona_credentials.of_client(client).target
        )

    async def close(self) -> None:
        """Stops waiting for builds. Those that began go on at Daytona and are found again."""
        waiting = [*self._looking.values(), *self._known.values()]
        await cancel_tasks(waiting)

    async def _begin_build(
        self,
        asked: str,
        client: sdk.AsyncDaytona,
        template: Template,
        job: Path,
    ) -> tuple[str, Building]:
        """Begins a build once for all concurrent callers, such as the first runs of a resource."""
        task = self._looking.get(asked)
        if task is None:
            task = self._looking[asked] = start_build(self._begin(client, template, job))
            task.add_done_callback(lambda _: self._looking.pop(asked))
        return await asyncio.shield(task)

    async def _begin(
        self,
        client: sdk.AsyncDaytona,
        template: Template,
        job: Path,
    ) -> tuple[str, Building]:
        """The key of its building, and that."""
        recipe = await asyncio.to_thread(recipes.build_recipe, template)
        size = choose_machine(template.sandbox_resources)
        key = _snapshot_key(recipe, size)
        log = self._home / "builds" / f"{key}.log"
        link_log(job, log)
        return key, self._make_once(
            key,
            partial(
                self._make,
                client,
                recipe,
                size,
                log,
            ),
        )

    def _make_once(self, key: str, make: Callable[[], Coroutine[None, None, str]]) -> Building:
        """The task that finds or makes it; a failed one is made again."""
        task = self._known.get(key)
        if task is None or has_failed(task):
            task = self._known[key] = start_build(make())
        return task

    async def _make(
        self,
        client: sdk.AsyncDaytona,
        recipe: Recipe,
        size: DaytonaMachine,
        log: Path,
    ) -> str:
        scope = self._scope(client)
        name = scope.name(log.stem)
        with BuildLog(log) as written:
            if await _is_ready(client, name):
                written.settle(f"[fleetctl: {recipe.told}: built before, nothing to do]\n")
                return name
            scratch = self._home / "packages" / log.stem
            try:
                image = await asyncio.to_thread(build_image, recipe, scratch)
                await _build_snapshot(
                    client,
                    name,
                    image,
                    size,
                    written,
                )
            except Unavailable as error:
                if error.reason == "Quota":
                    await daytona_snapshots.evict_oldest(client, scope, self._jobs)
                raise
            finally:
                await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        return name


async def _use_snapshot(client: sdk.AsyncDaytona, name: str) -> str:
    """A snapshot that somebody else made."""
    if not await _is_ready(client, name):
        raise Refused(
            f"image.snapshot is `{name}`, which Daytona does not have",
            hint="look at app.daytona.io/dashboard/snapshots",
        )
    return name


async def _is_ready(client: sdk.AsyncDaytona, name: str) -> bool:
    """Returns whether sandboxes can be started from it; waits while another builder makes it. A
    snapshot that failed, or is being removed, is deleted first.
    """
    what = f"snapshot `{name}` cannot be looked up"
    async with asyncio.timeout(BUILD_S):
        while True:
            try:
                async with retryable_call(what, deadline_s=ASK_S):
                    found = await client.snapshot.get(name)
                    state = str(getattr(found.state, "value", found.state))
                    if state == "active":
                        return True
                    if state == "inactive":
                        await client.snapshot.activate(found)
                        return True
                    if state in _FAILED and daytona_snapshots.store_of(name):
                        await client.snapshot.delete(found)
                    elif state in _FAILED:
                        raise Refused(
                            f"snapshot `{name}` is broken: {found.error_reason}",
                            hint="create it again at app.daytona.io/dashboard/snapshots",
                        )
            except sdk.DaytonaError as error:
                if is_not_found(error):
                    return False
                if not is_conflict(error):
                    raise
            await asyncio.sleep(LOOK_S)


async def _build_snapshot(
    client: sdk.AsyncDaytona,
    name: str,
    image: sdk.Image,
    size: DaytonaMachine,
    log: BuildLog,
) -> None:
    params = sdk.CreateSnapshotParams(
        name=name,
        image=image,
        resources=sdk.Resources(
            cpu=size.cpu,
            memory=size.memory,
            disk=size.disk,
            gpu=size.gpu,
            gpu_type=None if size.gpu_type is None else sdk.GpuType(size.gpu_type),
        ),
    )
    hearing = _BuildOutput(log)
    try:
        async with asyncio.timeout(BUILD_S):
            await client.snapshot.create(params, on_logs=hearing.take)
    except TimeoutError as error:
        raise Unavailable("the image was not built within an hour") from error
    except sdk_errors() as error:
        if is_conflict(error) and await _is_ready(client, name):
            return  # somebody else was first
        await hearing.make_up(client, name)
        raise await _explain_failure(client, name, error, log) from error
    await hearing.make_up(client, name)


class _BuildOutput:
    """Reads the SDK's output of a build: words of its own about states, and lines of the build's
    log if it looked while there was something to stream.
    """

    def __init__(self, log: BuildLog) -> None:
        self._log = log
        self._streamed = False

    def take(self, text: str) -> None:
        self._streamed |= not text.startswith(_OWN_WORDS)
        self._log.write(f"{text}\n")

    async def make_up(self, client: sdk.AsyncDaytona, name: str) -> None:
        if not self._streamed:
            self._log.write(await daytona_credentials.build_log(client, name))


async def _explain_failure(
    client: sdk.AsyncDaytona,
    name: str,
    error: Exception,
    log: BuildLog,
) -> FleetctlError:
    """Returns the error of a build. A snapshot that Daytona itself reports as failed is removed;
    any other is left: its build may go on, and the next start finds it under the same name.
    """
    what = "the image cannot be built"
    again = Unavailable(f"{what}: {error_words(error)}", retry_after_s=RETRY_AFTER_S)
    if getattr(error, "status_code", None) is not None:
        return classify_error(error, what) or again
    try:
        async with retryable_call(what, deadline_s=ASK_S):
            found = await client.snapshot.get(name)
            if str(getattr(found.state, "value", found.state)) not in _FAILED:
                return again
            await client.snapshot.delete(found)
    except sdk.DaytonaError as gone:
        if not (is_not_found(gone) or is_conflict(gone)):
            raise
        return again
    reason = found.error_reason or error_words(error)
    log.settle(reason + "\n")
    lines = [line.strip() for line in (log.tail() or reason).splitlines() if line.strip()]
    output = [line for line in lines if not line.startswith(_OWN_WORDS)][-TAIL_LINES:]
    return Refused(f"{what}: {'; '.join(output)}", hint=f"the whole log is `{log.path}`")


def _snapshot_key(recipe: Recipe, size: DaytonaMachine) -> str:
    facts = [FORMAT, recipe.key, _hash_guests(), size.cpu, size.memory, size.disk]
    facts += [size.gpu, size.gpu_type]
    return sha256(repr(facts).encode()).hexdigest()[:16]


@cache
def _hash_guests() -> str:
    return sha256((remote_source(compiled=False) + posix_source()).encode()).hexdigest()


def build_image(recipe: Recipe, scratch: Path) -> sdk.Image:
    """Builds the SDK's description of an image from a recipe. scratch: where copies of local
    packages may lie until the image is built.
    """
    built = _base_image(recipe)
    if recipe.env:
        built = built.env(dict(recipe.env))
    if recipe.apt:
        names = " ".join(recipe.apt)
        built = built.run_commands(
            f"apt-get update && apt-get install -y --no-install-recommends {names}"
            " && rm -rf /var/lib/apt/lists/*"
        )
    for package in recipe.packages:
        built = _with_package(built, package, scratch)
    wanted = (*(package.wanted for package in recipe.packages), *recipe.pip)
    if wanted:
        built = built.pip_install(*wanted, extra_options=shlex.join(index_options(recipe.index)))
    if recipe.run:
        built = built.run_commands(*recipe.run)
    if recipe.must_have_python:
        built = built.run_commands(CHECK_PYTHON)
    return _with_guest(built).entrypoint(["sleep", "infinity"])


def _base_image(recipe: Recipe) -> sdk.Image:
    if recipe.registry is not None:
        if recipe.python is not None:
            raise Refused(
                f"image.python is `{recipe.python}` beside the registry image `{recipe.registry}`,"
                " and Daytona adds no Python to images",
                hint="name an image that has it",
            )
        return sdk.Image.base(recipe.registry).dockerfile_commands(["USER root"])
    version = recipe.python or ""
    if (recipe.pip or recipe.packages) and version in SLIM_SERIES:
        return sdk.Image.debian_slim(version)  # type: ignore[arg-type]  # with compilers
    return sdk.Image.base(f"python:{version}-slim-bookworm")


def _with_package(
    built: sdk.Image,
    package: LocalPackage,
    scratch: Path,
) -> sdk.Image:
    path = Path(package.path)
    if path.is_file():
        return built.add_local_file(path, package.place)
    copy = make_private(scratch) / package.digest[:16]
    shutil.rmtree(copy, ignore_errors=True)
    copy_tree(path, copy, CopyRules.of_project(()))
    return built.add_local_dir(copy, package.place)


def _with_guest(built: sdk.Image) -> sdk.Image:
    """The image with the guest, which is written as text of the commands: a build's context would
    need a store of its own.

    The guest in Python is compiled here, by the Python that will run it.
    """
    commands = [f"mkdir -p {IN_IMAGE}"]
    program = f"{IN_IMAGE}/recompile.py"
    files = {
        f"{IN_IMAGE}/guest.py": remote_source(compiled=False),
        f"{IN_IMAGE}/guest.sh": posix_source(),
        f"{IN_IMAGE}/quick.py": quick_source(),
        program: recompile_source(),
    }
    for path, text in files.items():
        commands += _write_file(path, text)
    commands.append(
        f"if command -v python3 >/dev/null; then python3 -I {program} {IN_IMAGE}/guest.py; fi"
        f" && rm {program}"
    )
    return built.run_commands(*commands)


def _write_file(path: str, text: str) -> list[str]:
    lines = textwrap.wrap(base64.b64encode(text.encode()).decode(), LINE_CHARACTERS)
    commands = [f"echo {line} | base64 -d >>{path}" for line in lines]
    return [f"rm -f {path}", *commands]
