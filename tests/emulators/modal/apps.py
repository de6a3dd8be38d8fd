"""The RPCs around sandboxes: who I am, apps and secrets."""

from __future__ import annotations

import re

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from . import ids
from .calls import metadata
from .environments import MAIN
from .state import App, Secret, World

CREATE_IF_MISSING = api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING
_NAME = re.compile(r"[a-zA-Z0-9-_.]{1,64}")


class Apps:
    world: World

    async def ClientHello(self, request: Empty) -> api_pb2.ClientHelloResponse:
        return api_pb2.ClientHelloResponse(
            image_builder_version=self.world.settings.builder_version
        )

    async def AuthTokenGet(
        self, request: api_pb2.AuthTokenGetRequest
    ) -> api_pb2.AuthTokenGetResponse:
        return api_pb2.AuthTokenGetResponse(token=ids.jwt("client"))

    async def AppGetOrCreate(
        self, request: api_pb2.AppGetOrCreateRequest
    ) -> api_pb2.AppGetOrCreateResponse:
        check_name(request.app_name, "App")
        app = self.world.app_named(request.app_name, request.environment_name)
        if app is None:
            if request.object_creation_type != CREATE_IF_MISSING:
                raise GRPCError(
                    Status.NOT_FOUND,
                    f"App '{request.app_name}' not found in environment "
                    f"'{request.environment_name or 'main'}'",
                )
            app = self.world.new_app(request.app_name, request.environment_name)
        return api_pb2.AppGetOrCreateResponse(app_id=app.app_id)

    async def AppList(self, request: api_pb2.AppListRequest) -> api_pb2.AppListResponse:
        return api_pb2.AppListResponse(
            apps=[
                api_pb2.AppListResponse.AppListItem(
                    app_id=app.app_id,
                    description=app.name,
                    name=app.name,
                    created_at=app.created_at_s,
                    stopped_at=app.stopped_at_s,
                    state=getattr(api_pb2, "APP_STATE_" + app.state.upper()),
                    n_running_tasks=len(self.world.sandboxes.live(app.app_id)),
                )
                for app in self.world.apps.values()
                if (app.environment or MAIN) == (request.environment_name or MAIN)
            ]
        )

    async def AppStop(self, request: api_pb2.AppStopRequest) -> Empty:
        app = self.app_of(request.app_id)
        await self.stop_app(app)
        return Empty()

    async def stop_app(self, app: App) -> None:
        """Ends all that runs in it and frees its name."""
        if app.state == "stopped":
            return
        app.state, app.stopped_at_s = "stopped", self.world.sandboxes.next_instant()
        for sandbox in self.world.sandboxes.live(app.app_id):
            await self.world.sandboxes.terminate(sandbox)
        if self.world.functions is not None:
            await self.world.functions.stop_app(app.app_id)

    async def AppSetTags(self, request: api_pb2.AppSetTagsRequest) -> Empty:
        self.app_of(request.app_id).tags = dict(request.tags)
        return Empty()

    async def AppGetTags(self, request: api_pb2.AppGetTagsRequest) -> api_pb2.AppGetTagsResponse:
        return api_pb2.AppGetTagsResponse(tags=self.app_of(request.app_id).tags)

    def app_of(self, app_id: str) -> App:
        app = self.world.app(app_id)
        if app is None:
            raise GRPCError(Status.NOT_FOUND, f"App '{app_id}' not found")
        return app

    def calling_box(self) -> str:
        """The owner of the box whose own client makes this call; it has a token of its own."""
        owner = self.world.boxes.get(metadata.get({}).get("x-modal-token-id", ""))
        if owner is None:
            raise GRPCError(Status.PERMISSION_DENIED, "only a container may call this")
        return owner


class Secrets:
    world: World

    async def SecretGetOrCreate(
        self, request: api_pb2.SecretGetOrCreateRequest
    ) -> api_pb2.SecretGetOrCreateResponse:
        secret = self._secret(request)
        missing = [key for key in request.required_keys if key not in secret.values]
        if missing:
            raise GRPCError(
                Status.FAILED_PRECONDITION,
                f"Secret is missing key(s): {', '.join(sorted(missing))}",
            )
        return api_pb2.SecretGetOrCreateResponse(
            secret_id=secret.secret_id, metadata=_secret_metadata(secret)
        )

    def _secret(self, request: api_pb2.SecretGetOrCreateRequest) -> Secret:
        how, values = request.object_creation_type, dict(request.env_dict)
        found = self._secret_named(request.deployment_name, request.environment_name)
        if how == api_pb2.OBJECT_CREATION_TYPE_UNSPECIFIED:
            if found is None:
                raise GRPCError(Status.NOT_FOUND, f"Secret '{request.deployment_name}' not found")
            return found
        if found is not None:
            if how == api_pb2.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
                raise GRPCError(
                    Status.ALREADY_EXISTS, f"Secret '{request.deployment_name}' already exists"
                )
            if how == api_pb2.OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS:
                found.values = values
            return found
        secret = Secret(
            ids.base62_id("st"), request.deployment_name, request.environment_name, values
        )
        self.world.secrets[secret.secret_id] = secret
        return secret

    def _secret_named(self, name: str, environment: str) -> Secret | None:
        for secret in self.world.secrets.values():
            if name and (secret.name, secret.environment) == (name, environment):
                return secret
        return None

    async def SecretList(self, request: api_pb2.SecretListRequest) -> api_pb2.SecretListResponse:
        items = [
            api_pb2.SecretListItem(
                label=secret.name, secret_id=secret.secret_id, created_at=secret.created_at_s
            )
            for secret in self.world.secrets.values()
            if secret.name and secret.environment == request.environment_name
        ]
        return api_pb2.SecretListResponse(items=items)

    async def SecretDelete(self, request: api_pb2.SecretDeleteRequest) -> Empty:
        self.secret_of(request.secret_id)
        del self.world.secrets[request.secret_id]
        return Empty()

    def secret_of(self, secret_id: str) -> Secret:
        secret = self.world.secrets.get(secret_id)
        if secret is None:
            raise GRPCError(Status.NOT_FOUND, f"Secret '{secret_id}' not found")
        return secret

    def values_of(
        self, secret_ids: list[str], sources: list[api_pb2.SecretSource]
    ) -> dict[str, str]:
        """The variables of an environment, later ones winning."""
        values: dict[str, str] = {}
        for secret_id in secret_ids:
            values |= self.secret_of(secret_id).values
        for source in sources:
            if source.WhichOneof("source") == "secret_id":
                values |= self.secret_of(source.secret_id).values
            else:
                values |= dict(source.env.contents)
        return values


def check_name(name: str, kind: str) -> None:
    if not _NAME.fullmatch(name):
        raise GRPCError(Status.INVALID_ARGUMENT, f"Invalid {kind} name: '{name}'")


def _secret_metadata(secret: Secret) -> api_pb2.SecretMetadata:
    return api_pb2.SecretMetadata(
        name=secret.name,
        keys=sorted(secret.values),
        environment_name=secret.environment,
        creation_info=api_pb2.CreationInfo(created_at=secret.created_at_s, created_by="emulated"),
    )
