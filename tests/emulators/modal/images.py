"""Images: layers of Dockerfile commands over each other, each built once for its content."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from tests.emulators.boxes import base_path

from . import basis, dockerfile
from .dockerfile import ImageConfig
from .ids import base62_id
from .image_build import BuildFailed, Order, build, uv_cache

SUCCESS = api_pb2.GenericResult.GENERIC_STATUS_SUCCESS
FAILURE = api_pb2.GenericResult.GENERIC_STATUS_FAILURE
LOG_TAIL_LINES = 20


@dataclass(slots=True)
class Image:
    """`roots` are the trees that a box over it sees, topmost first."""

    image_id: str
    key: str
    roots: list[Path]
    config: ImageConfig
    commands: list[str] = field(default_factory=list)
    state: str = "building"  # building, ready, failed
    problem: str = ""
    log: list[tuple[float, str]] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)  # replaced at each growth

    def say(self, text: str) -> None:
        self.log.append((time.time(), text))
        self._wake()

    def finish(self, problem: str = "") -> None:
        self.state, self.problem = ("failed", problem) if problem else ("ready", "")
        self._wake()

    def _wake(self) -> None:
        self.grown.set()
        self.grown = asyncio.Event()

    @property
    def result(self) -> api_pb2.GenericResult:
        if self.state == "building":
            return api_pb2.GenericResult()
        if self.state == "ready":
            return api_pb2.GenericResult(status=SUCCESS)
        return api_pb2.GenericResult(status=FAILURE, exception=self.problem, exitcode=1)

    @property
    def metadata(self) -> api_pb2.ImageMetadata:
        return api_pb2.ImageMetadata(workdir=self.config.workdir, python_version_info="3.11")


class ImageStore:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.by_id: dict[str, Image] = {}
        self.by_key: dict[str, Image] = {}  # not the failed ones: those are built anew
        self.tags: dict[tuple[str, str], str] = {}  # (environment, name) -> image id
        self.builds: set[asyncio.Task[None]] = set()
        self.built_count = 0
        self.cache = uv_cache()
        self._basis: Path | None = None

    @property
    def basis(self) -> Path:
        if self._basis is None:
            self._basis = basis.lay_out(self.directory / "basis")
        return self._basis

    def get(self, image_id: str) -> Image:
        image = self.by_id.get(image_id)
        if image is None:
            raise GRPCError(Status.NOT_FOUND, f"Image '{image_id}' not found")
        return image

    def ready(self, image_id: str) -> Image:
        """An image that boxes can run on; none at all is the bare basis."""
        if not image_id:
            config = ImageConfig(env={"PATH": f"{basis.SYSTEM_PATH}:{base_path()}"})
            return Image("", "", [self.basis], config, state="ready")
        image = self.get(image_id)
        if image.state != "ready":
            raise GRPCError(Status.FAILED_PRECONDITION, f"Image '{image_id}' is not built")
        return image

    def add(self, key: str, base: Image, commands: list[str]) -> Image:
        image = Image(base62_id("im"), key, list(base.roots), base.config.copy(), commands)
        self.by_id[image.image_id] = image
        if key:
            self.by_key[key] = image
        return image

    def snapshot(self, source: Path, base: Image) -> Image:
        """A new image of what a box has written over `base`."""
        image = self.add("", base, ["(snapshot)"])
        target = self.directory / image.image_id / "root"
        shutil.copytree(source, target, symlinks=True, copy_function=_copy_entry)
        image.roots.insert(0, target)
        image.finish()
        return image

    async def build(self, image: Image, order: Order) -> None:
        self.built_count += 1
        try:
            added = await build(order)
        except BuildFailed as error:
            self.by_key.pop(image.key, None)
            tail = "".join(text for _at, text in image.log).splitlines()[-LOG_TAIL_LINES:]
            image.finish("\n".join([*tail, str(error)]))
            return
        if added is not None:
            image.roots.insert(0, added)
        image.finish()

    def truth(self) -> list[dict[str, Any]]:
        return [
            {
                "image_id": image.image_id,
                "state": image.state,
                "commands": image.commands,
                "problem": image.problem,
            }
            for image in self.by_id.values()
        ]


def _copy_entry(source: str, target: str) -> None:
    """Whiteouts, sockets and pipes have no bytes that could be copied."""
    if Path(source).is_file():
        shutil.copy2(source, target)


class Images:
    async def ImageGetOrCreate(
        self, request: api_pb2.ImageGetOrCreateRequest
    ) -> api_pb2.ImageGetOrCreateResponse:
        store: ImageStore = self.world.images
        definition = request.image
        bases = [store.ready(each.image_id) for each in definition.base_images]
        if request.build_function_id or definition.HasField("build_function"):
            raise GRPCError(Status.UNIMPLEMENTED, "the emulator does not run functions in builds")
        raw = definition.SerializeToString(deterministic=True)
        key = hashlib.sha256(raw + request.builder_version.encode()).hexdigest()
        image = store.by_key.get(key)
        if image is None or request.force_build or request.ignore_cache:
            base = bases[0] if bases else store.ready("")
            image = store.add(key, base, list(definition.dockerfile_commands))
            self._begin_build(image, base, definition)
            await asyncio.sleep(0)
        return self._image_reply(image)

    def _image_reply(self, image: Image) -> api_pb2.ImageGetOrCreateResponse:
        """A result only when it is built: then the client does not join."""
        ready = image.state == "ready"
        return api_pb2.ImageGetOrCreateResponse(
            image_id=image.image_id,
            result=image.result if ready else None,
            metadata=image.metadata if ready else None,
        )

    def _begin_build(self, image: Image, base: Image, definition: api_pb2.Image) -> None:
        store: ImageStore = self.world.images
        directory = store.directory / image.image_id
        context = directory / "context"
        context.mkdir(parents=True)
        if definition.context_mount_id:
            tree = self.world.uploads.tree(definition.context_mount_id)
            shutil.copytree(tree, context, symlinks=True, dirs_exist_ok=True)
        for file in definition.context_files:
            place = context / file.filename.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.data)
        order = Order(
            steps=dockerfile.parse(definition.dockerfile_commands),
            config=image.config,
            directory=directory,
            base=list(base.roots),
            context=context,
            env=self.values_of(list(definition.secret_ids), []),
            build_args=dict(definition.build_args),
            cache=store.cache,
            log=image.say,
        )
        task = asyncio.create_task(store.build(image, order))
        store.builds.add(task)
        task.add_done_callback(store.builds.discard)

    async def ImageJoinStreaming(
        self, request: api_pb2.ImageJoinStreamingRequest
    ) -> AsyncIterator[api_pb2.ImageJoinStreamingResponse]:
        """Log lines since `last_entry_id`, then the result; ends at the timeout without one."""
        image = self.world.images.get(request.image_id)
        told = int(request.last_entry_id or 0)
        deadline = time.monotonic() + (request.timeout or 60)
        while True:
            grown = image.grown
            while told < len(image.log):
                at_s, text = image.log[told]
                told += 1
                yield api_pb2.ImageJoinStreamingResponse(
                    entry_id=str(told),
                    task_logs=[
                        api_pb2.TaskLogs(
                            data=text,
                            timestamp=at_s,
                            file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT,
                        )
                    ],
                )
            if image.state != "building":
                yield api_pb2.ImageJoinStreamingResponse(
                    result=image.result, metadata=image.metadata, eof=True
                )
                return
            try:
                await asyncio.wait_for(grown.wait(), deadline - time.monotonic())
            except TimeoutError:
                return

    async def ImageFromId(self, request: api_pb2.ImageFromIdRequest) -> api_pb2.ImageFromIdResponse:
        image = self.world.images.get(request.image_id)
        return api_pb2.ImageFromIdResponse(image_id=image.image_id, metadata=image.metadata)

    async def ImagePublish(self, request: api_pb2.ImagePublishRequest) -> Empty:
        image = self.world.images.get(request.image_id)
        self.world.images.tags[request.environment_name, request.tag] = image.image_id
        return Empty()

    async def ImageGetByTag(
        self, request: api_pb2.ImageGetByTagRequest
    ) -> api_pb2.ImageGetByTagResponse:
        image_id = self.world.images.tags.get((request.environment_name, request.tag))
        if image_id is None:
            raise GRPCError(Status.NOT_FOUND, f"Image '{request.tag}' not found")
        return api_pb2.ImageGetByTagResponse(image_id=image_id)

    async def ImageDelete(self, request: api_pb2.ImageDeleteRequest) -> Empty:
        store: ImageStore = self.world.images
        image = store.get(request.image_id)
        del store.by_id[image.image_id]
        store.by_key.pop(image.key, None)
        return Empty()
