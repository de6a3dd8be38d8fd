"""Images that are ready to start sandboxes from: built once, with the guest and the source in them.

Called by the provider before a start. Images belong to one client of the SDK and are never shared
with another.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.tasks import cancel_tasks
from fleetctl.guest.ship.assemble import posix_source, quick_source, quick_table, remote_source
from fleetctl.providers.modal.assets import modal_layers, modal_source
from fleetctl.providers.modal.assets.modal_layers import LocalDirectory
from fleetctl.providers.modal.connection.modal_errors import (
    error_words,
    not_found_error,
    retryable_call,
)
from fleetctl.providers.paths import make_private
from fleetctl.providers.remote.assets import recipes
from fleetctl.providers.remote.assets.build_waits import (
    RETRY_AFTER_S,
    await_build,
    has_failed,
    start_build,
)
from fleetctl.providers.remote.assets.recipes import Recipe
from fleetctl.providers.rundir.build_logs import BuildLog, link_log
from fleetctl.providers.sources.archive import rest_of
from fleetctl.providers.sources.frozen_copy import freeze_source
from fleetctl.specs.blocks.template import Source, Template

if TYPE_CHECKING:
    import modal
    import modal.exception

GUEST_PATH = f"{modal_layers.GUEST_DIR}/guest.py"
QUICK_PATH = f"{modal_layers.GUEST_DIR}/quick.py"
POSIX_GUEST_PATH = f"{modal_layers.GUEST_DIR}/guest.sh"
FUNCTION_PARTS = ("attempt", "nest", "volumes", "gang")
BUILD_S = 3600.0  # for one image; Modal's own limit is below
UPLOAD_S = 900.0  # of the guest and the source
TAIL_LINES = 5  # of a failed build's log, in the message
REMEMBERED_MAX = 256  # images per client; the oldest is looked up again

Building = asyncio.Task["modal.Image"]


class ModalImages:
    """The images that a provider has built and is building. home: `modal` of the state
    directory.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: WeakKeyDictionary[modal.Client, dict[str, Building]] = WeakKeyDictionary()

    async def ready(
        self,
        client: modal.Client,
        app: modal.App,
        template: Template,
        job: Path,
    ) -> modal.Image:
        """The built image of a template, for `Sandbox.create`.

        job: the directory of the resource's journals and logs. Its build log is linked there, and
        its source is kept there, so that all runs of a template see the same. Raises Refused with
        the end of the build's log, and Unavailable while it is being built or when the world is at
        fault.
        """
        # All runs of a template ask the same, so the answer must be cheap.
        parts = [template.image, template.source]
        texts = map(repr, parts)  # a path may be no UTF-8
        key = "\n".join([str(job), *texts, str(template.python is not None)])
        make = partial(
            self._make,
            client,
            app,
            template,
            job,
        )
        return await await_build(self._once(client, key, make))

    def forget(self, job: Path) -> None:
        """The resource's scratch space is gone: a next run takes its source as it is then."""
        for known in self._known.values():
            for key in [key for key in known if key.startswith(f"{job}\n")]:
                del known[key]

    def doubt(self, client: modal.Client) -> None:
        """Modal does not know something that was there: all that is built is asked for again, which
        takes a call for each layer that is still there, and a build for one that is gone.
        """
        known = self._known.get(client, {})
        for key in [key for key, task in known.items() if task.done()]:
            del known[key]

    async def close(self) -> None:
        """Stops waiting for builds. Those that began go on at Modal and are found again."""
        waiting = [one for known in self._known.values() for one in known.values()]
        await cancel_tasks(waiting)

    async def _make(
        self,
        client: modal.Client,
        app: modal.App,
        template: Template,
        job: Path,
    ) -> modal.Image:
        recipe = await asyncio.to_thread(recipes.build_recipe, template)
        log = self._home / "builds" / f"{recipe.key}.log"
        link_log(job, log)
        places = await asyncio.to_thread(self._places, template.source, job)
        base = self._once(client, recipe.key, partial(_build_image, app, recipe, log))
        try:
            return await _add_directories(client, app, await asyncio.shield(base), places)
        except not_found_error() as error:
            self.doubt(client)
            raise Unavailable(
                f"the image is gone at Modal and is made again: {error_words(error)}",
                reason="Building",
                retry_after_s=RETRY_AFTER_S,
            ) from error

    def _once(
        self,
        client: modal.Client,
        key: str,
        make: Callable[[], Coroutine[None, None, modal.Image]],
    ) -> Building:
        """The task that makes this image; a failed one is made again."""
        known = self._known.setdefault(client, {})
        task = known.get(key)
        if task is None or has_failed(task):
            known.pop(key, None)
            while len(known) >= REMEMBERED_MAX:
                known.pop(next(iter(known)))
            task = known[key] = start_build(make())
        return task

    def _places(self, source: Source | None, job: Path) -> dict[str, LocalDirectory]:
        """Directories of this machine by their paths in the sandbox."""
        places = {modal_layers.GUEST_DIR: LocalDirectory(_guest_directory(self._home))}
        if source is not None and source.path is not None:
            tree = freeze_source(source, job)
            rest, names = rest_of(tree)
            places[modal_source.source_directory(source)] = LocalDirectory(tree, names)
            if names:
                places[modal_source.REST_DIR] = LocalDirectory(rest)
        return places


async def _build_image(
    app: modal.App,
    recipe: Recipe,
    log: Path,
) -> modal.Image:
    from modal import exception as sdk

    from fleetctl.providers.modal.assets.build_output import capture_output

    image = modal_layers.base_image(recipe)
    with BuildLog(log) as written, capture_output(written.write):
        async with retryable_call("the image cannot be built", deadline_s=BUILD_S):
            try:
                await image.build.aio(app)
            except sdk.ImageBuildError as error:
                raise _build_failure(error, written) from error
            except sdk.NotFoundError as error:
                raise Refused(
                    f"the image cannot be built: {error_words(error)}",
                    hint="change the template's image",
                ) from error
        written.settle(f"[fleetctl: {recipe.told}: built before, nothing to do]\n")
    return image


async def _add_directories(
    client: modal.Client,
    app: modal.App,
    image: modal.Image,
    places: dict[str, LocalDirectory],
) -> modal.Image:
    import modal

    # By its id, which takes one call; its layers would be asked for again, each.
    known = modal.Image.from_id(image.object_id, client=client)
    whole = modal_layers.with_files(known, places)
    async with retryable_call("the files of the image cannot be uploaded", deadline_s=UPLOAD_S):
        await whole.build.aio(app)
    return whole


def _build_failure(error: modal.exception.ImageBuildError, log: BuildLog) -> FleetctlError:
    text = str(error)
    if "external shut-down" in text:
        return Unavailable("Modal stopped the build of the image", retry_after_s=RETRY_AFTER_S)
    log.settle(text + "\n")
    why = [line.strip() for line in log.tail().splitlines() if line.strip()][-TAIL_LINES:]
    # The SDK's last line explains how a step ended, unless it only points to a command of its own.
    last = text.strip().splitlines()[-1].strip()
    if last not in why and "modal image logs" not in last:
        why.append(last)
    message = "; ".join(why)
    return Refused(f"the image cannot be built: {message}", hint=f"the whole log is `{log.path}`")


def function_part(name: str) -> bytes:
    """Text of what the body of a function finds beside the guest as `<name>.py`."""
    shipped = Path(__file__).parents[1] / "functions" / "container"
    return (shipped / f"fleetctl_{name}.py").read_bytes()


def _guest_directory(home: Path) -> Path:
    """A directory with both guests and what functions need beside, named by what is in it."""
    texts = {"guest.py": remote_source(), "guest.sh": posix_source(), "quick.py": quick_source()}
    files = {name: text.encode() for name, text in texts.items()} | {"guest.bin": quick_table()}
    files |= {f"{name}.py": function_part(name) for name in FUNCTION_PARTS}
    digest = sha256(b"".join(files.values())).hexdigest()[:16]
    target = make_private(home / "guest") / digest
    if not target.exists():
        making = target.with_name(f".{digest}.{os.getpid()}.{threading.get_ident()}")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        for name, data in files.items():
            (making / name).write_bytes(data)
            (making / name).chmod(0o755)
        try:
            making.rename(target)
        except OSError:
            shutil.rmtree(making)
    return target
