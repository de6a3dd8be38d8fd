"""Images that are ready to start sandboxes from: built once from a recipe, with the guest and the
source in them.

Images belong to one client of the SDK and are never shared with another. All files that are built
into an image belong to root, and its processes run as root: Modal takes no notice of the `USER` of
an image.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.guest.ship.assemble import posix_source, quick_source, quick_table, remote_source
from fleetctl.providers.modal.connection.modal_errors import (
    error_words,
    not_found_error,
    retryable_call,
)
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
from fleetctl.providers.sources import clone_command, git
from fleetctl.providers.sources.archive import REST, freeze_source, name_in_sandbox, rest_of
from fleetctl.providers.sources.tree_copy import CopyRules, walk_tree
from fleetctl.providers.uv import index_options, index_variables
from fleetctl.specs.blocks.template import Source, Template

if TYPE_CHECKING:
    import modal
    import modal.exception


GUEST_DIR = "/.fleetctl"

GUEST_PATH = f"{GUEST_DIR}/guest.py"
QUICK_PATH = f"{GUEST_DIR}/quick.py"
POSIX_GUEST_PATH = f"{GUEST_DIR}/guest.sh"
FUNCTION_PARTS = ("attempt", "nest", "volumes", "gang")
BUILD_S = 3600.0  # for one image; Modal's own limit is below
UPLOAD_S = 900.0  # of the guest and the source
TAIL_LINES = 5  # of a failed build's log, in the message
REMEMBERED_MAX = 256  # images per client; the oldest is looked up again

Building = asyncio.Task["modal.Image"]


# A source that is a directory of this machine joins the image, file by file; files that an upload
# cannot carry join as an archive, which the guest unpacks before the first task. A source that is a
# repository is cloned in the sandbox, by commands that the guest runs before the first task, too.

HOME = "/root"  # of sandboxes on Modal
REST_DIR = "/.fleetctl-source"


def base_image(recipe: Recipe) -> modal.Image:
    """The image of a recipe, lazy: it is built when the SDK loads it."""
    import modal

    if recipe.registry is None:
        image = modal.Image.debian_slim(python_version=recipe.python)
    else:
        image = modal.Image.from_registry(recipe.registry, add_python=recipe.python)
    if recipe.env:
        image = image.env(dict(recipe.env))
    if recipe.apt:
        image = image.apt_install(*recipe.apt)
    for package in recipe.packages:
        image = _with_package(image, package)
    wanted = (*(package.wanted for package in recipe.packages), *recipe.pip)
    if wanted:
        given: dict[str, str | None] = {**index_variables(recipe.index)}
        image = image.uv_pip_install(
            *wanted,
            extra_options=shlex.join(index_options(recipe.index)),
            secrets=[modal.Secret.from_dict(given)] if given else None,
        )
    if recipe.run:
        image = image.run_commands(*recipe.run)
    if recipe.must_have_python:
        image = image.run_commands(CHECK_PYTHON)
    # Modal puts an image's entrypoint in front of every command, ours too.
    return image.entrypoint([])


def _with_package(image: modal.Image, package: LocalPackage) -> modal.Image:
    path = Path(package.path)
    if path.is_file():
        return image.add_local_file(path, package.place, copy=True)
    wanted = {relative for _, relative in walk_tree(path, CopyRules.of_project(()))}
    return image.add_local_dir(
        path, package.place, copy=True, ignore=lambda one: one.as_posix() not in wanted
    )


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """A directory of this machine. without: relative paths of what is not uploaded."""

    path: Path
    without: frozenset[str] = frozenset()


def with_files(image: modal.Image, places: Mapping[str, LocalDirectory]) -> modal.Image:
    """Returns the image with directories of this machine, which join when a sandbox starts.

    places: directories by their path in the sandbox.
    """
    for place, directory in places.items():
        image = image.add_local_dir(directory.path, place, ignore=_ignore_names(directory.without))
    return image


def _ignore_names(names: frozenset[str]) -> Callable[[Path], bool]:
    """Ignores files by name. The SDK follows links to directories: their content has the link's
    name.
    """
    return lambda one: any(str(it) in names for it in (one, *one.parents))


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
        return await await_build(self._make_once(client, key, make))

    def forget(self, job: Path) -> None:
        """The resource's scratch space is gone: a next run takes its source as it is then."""
        for known in self._known.values():
            for key in [key for key in known if key.startswith(f"{job}\n")]:
                del known[key]

    def forget_images(self, client: modal.Client) -> None:
        """Modal has forgotten a part that existed: every built part is requested again, which
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
        base = self._make_once(client, recipe.key, partial(_build_image, app, recipe, log))
        try:
            return await _add_directories(client, app, await asyncio.shield(base), places)
        except not_found_error() as error:
            self.forget_images(client)
            raise Unavailable(
                f"the image is gone at Modal and is made again: {error_words(error)}",
                reason="Building",
                retry_after_s=RETRY_AFTER_S,
            ) from error

    def _make_once(
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
        places = {GUEST_DIR: LocalDirectory(_guest_directory(self._home))}
        if source is not None and source.path is not None:
            tree = freeze_source(source, job)
            rest, names = rest_of(tree)
            places[source_directory(source)] = LocalDirectory(tree, names)
            if names:
                places[REST_DIR] = LocalDirectory(rest)
        return places


async def _build_image(
    app: modal.App,
    recipe: Recipe,
    log: Path,
) -> modal.Image:
    from modal import exception as sdk

    from fleetctl.providers.modal.assets.build_output import capture_output

    image = base_image(recipe)
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
    whole = with_files(known, places)
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


def source_directory(source: Source) -> str:
    """Returns the absolute path of the code in the sandbox."""
    if source.mount_path is not None:
        return source.mount_path.rstrip("/") or "/"
    if source.git is not None:
        return f"{HOME}/{git.directory_name(source.git.url)}"
    return f"{HOME}/{name_in_sandbox(source.path or '')}"


def setup_commands(
    template: Template, commit: str | None = None
) -> tuple[list[list[str]], str | None]:
    """Returns (commands to run once a sandbox, the directory of the code or None). Raises Refused.

    commit: as `pinned` returned it; without it the ref is cloned as it stands when the sandbox
        starts.
    The commands read tokens from the environment that the task's secrets set.
    """
    source = template.source
    if source is None:
        return [], None
    place = source_directory(source)
    if source.git is None:
        archive = f"{REST_DIR}/{REST}"
        text = f"[ ! -e {archive} ] || tar -xf {archive} -C {shlex.quote(place)}"
        return [["/bin/sh", "-c", text]], place
    wanted = source.git.model_copy(update={"ref": commit}) if commit else source.git
    return [clone_command.clone_command(wanted, place)], place
