"""What the pools of functions need of the world: boxes, GPUs, variables, and a place for logs."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from modal_proto import api_pb2

from tests.emulators.boxes import Library

from .driver import driver
from .function_container import PACKAGES_IN_BOX, RUNNER, RUNNER_IN_BOX, Container
from .function_packages import client_packages
from .function_state import Input
from .ids import base62_id
from .logs import LogLine
from .places import Wanted, leave, make_box

if TYPE_CHECKING:
    from .state import World


class Surroundings:
    """Implements function_pool.World."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._tokens: dict[str, str] = {}  # task id -> token of the container's own client

    def new_task_id(self) -> str:
        return base62_id("ta")

    def new_blob(self, data: bytes) -> str:
        return self.world.blobs.add(data)

    def take_gpu(self, gpu: str, times: int) -> bool:
        return self.world.gpus.take(gpu, times)

    def release_gpu(self, gpu: str) -> None:
        self.world.gpus.release(gpu)

    async def launch(self, container: Container, definition: api_pb2.Function) -> None:
        packages = client_packages(self.world.directory)
        wanted = Wanted(
            owner=container.task_id,
            directory=self.world.box_directory / container.task_id,
            image_id=definition.image_id,
            mount_ids=list(definition.mount_ids),
            volume_mounts=list(definition.volume_mounts),
            env=self._env(container, definition),
            files={
                RUNNER_IN_BOX: RUNNER,
                PACKAGES_IN_BOX: packages,
                **driver(self.world.directory, container.gpu),
            },
            library=Library("modal", packages, PACKAGES_IN_BOX, (("MODAL_IS_REMOTE", "1"),)),
        )
        box, _image = make_box(self.world, wanted)
        await container.start(
            box,
            definition={**_definition(definition), "cluster": _membership(container)},
            body=definition.function_serialized,
            packages=packages,
        )

    def after_container(self, container: Container, *, commits: bool) -> None:
        leave(self.world, container.task_id, commits=commits)
        self.world.boxes.pop(self._tokens.pop(container.task_id, ""), None)
        if container.box is not None:
            container.box.remove()

    def log(self, container: Container, one: Input | None, descriptor: int, text: str) -> None:
        app_id = self.world.functions.function(container.function_id).app_id
        for line in text.splitlines(keepends=True):
            self.world.function_logs.append(
                LogLine(
                    at_s=time.time(),
                    text=line,
                    descriptor=descriptor,
                    app_id=app_id,
                    task_id=container.task_id,
                    function_id=container.function_id,
                    function_call_id=one.call.call_id if one else "",
                    input_id=one.input_id if one else "",
                )
            )

    def _env(self, container: Container, definition: api_pb2.Function) -> dict[str, str]:
        """Secrets, and what lets the SDK inside work as a client of its own: a token that tells
        which container calls."""
        token = self._tokens[container.task_id] = "ak-" + secrets.token_hex(11)
        self.world.boxes[token] = container.task_id
        values: dict[str, str] = {}
        for secret_id in definition.secret_ids:
            secret = self.world.secrets.get(secret_id)
            if secret is None:
                raise OSError(f"the secret `{secret_id}` is gone")
            values |= secret.values
        return {
            "MODAL_SERVER_URL": self.world.control_url,
            "MODAL_OVERRIDE_HEADERS": f"x-modal-token-id: {token}, x-modal-token-secret: {token}",
            "MODAL_IS_REMOTE": "1",
            "MODAL_TASK_ID": container.task_id,
            "MODAL_CLOUD_PROVIDER": "CLOUD_PROVIDER_OCI",
            "MODAL_IMAGE_ID": definition.image_id,
            **values,
        }


def _membership(container: Container) -> dict[str, str] | None:
    """What function_runner.join_cluster takes; None for a container that works alone."""
    if len(container.cluster.members) == 1:
        return None
    address = container.cluster.address(container.rank)
    return {"task_id": container.task_id, "address": address}


def _definition(definition: api_pb2.Function) -> dict[str, Any]:
    """What function_runner.load takes. web: port and seconds of a web server."""
    config = definition.webhook_config
    web = [config.web_server_port, config.web_server_startup_timeout] if config.type else None
    return {**_loaded(definition), "web": web}


def _loaded(definition: api_pb2.Function) -> dict[str, str]:
    if definition.definition_type == api_pb2.Function.DEFINITION_TYPE_SERIALIZED:
        return {"op": "load", "kind": "serialized"}
    return {
        "op": "load",
        "kind": "file",
        "module": definition.module_name,
        "function": definition.implementation_name or definition.function_name,
    }
