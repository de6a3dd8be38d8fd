"""The RPCs of environments: names below which apps, volumes and secrets are kept apart.

Every name leads to one, as if it had been made before; deleting it deletes all that is in it.
"""

from __future__ import annotations

from typing import Protocol

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .state import App, World

MAIN = "main"


class Host(Protocol):
    """What the rest of the servicer does for it."""

    world: World

    async def stop_app(self, app: App) -> None: ...


class Environments:
    world: World

    async def EnvironmentGetOrCreate(
        self, request: api_pb2.EnvironmentGetOrCreateRequest
    ) -> api_pb2.EnvironmentGetOrCreateResponse:
        settings = api_pb2.EnvironmentSettings(
            image_builder_version=self.world.settings.builder_version
        )
        name = request.deployment_name or MAIN
        return api_pb2.EnvironmentGetOrCreateResponse(
            environment_id="en-" + name,
            metadata=api_pb2.EnvironmentMetadata(name=name, settings=settings),
        )

    async def EnvironmentList(self, request: Empty) -> api_pb2.EnvironmentListResponse:
        items = [api_pb2.EnvironmentListItem(name=MAIN, default=True)]
        others = {app.environment for app in self.world.apps.values()} - {"", MAIN}
        items += [api_pb2.EnvironmentListItem(name=name) for name in sorted(others)]
        return api_pb2.EnvironmentListResponse(items=items)

    async def EnvironmentCreate(self, request: api_pb2.EnvironmentCreateRequest) -> Empty:
        if not request.name:
            raise GRPCError(Status.INVALID_ARGUMENT, "An environment needs a name")
        return Empty()

    async def EnvironmentDelete(self: Host, request: api_pb2.EnvironmentDeleteRequest) -> Empty:
        world, name = self.world, request.name
        for app in list(world.apps.values()):
            if app.environment == name:
                await self.stop_app(app)
        for volume in [one for one in world.volumes.by_id.values() if one.environment == name]:
            world.volumes.delete(volume.volume_id)
        for secret in [one for one in world.secrets.values() if one.environment == name]:
            del world.secrets[secret.secret_id]
        return Empty()
