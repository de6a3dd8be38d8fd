"""Dicts: tables of bytes at the server. Keys and values are what clients serialized; nobody here
reads them. One client's update is whole before another's begins.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from . import ids

VALUE_BYTES_MAX = 100 * 1024 * 1024
NO_CREATION = api_pb2.OBJECT_CREATION_TYPE_UNSPECIFIED
CREATE_IF_MISSING = api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING


@dataclass(slots=True)
class Table:
    dict_id: str
    name: str
    environment: str
    created_at_s: float = field(default_factory=time.time)
    entries: dict[bytes, bytes] = field(default_factory=dict)


class DictStore:
    def __init__(self) -> None:
        self.by_id: dict[str, Table] = {}

    def named(self, name: str, environment: str) -> Table | None:
        for table in self.by_id.values():
            if name and (table.name, table.environment) == (name, environment):
                return table
        return None

    def get(self, dict_id: str) -> Table:
        table = self.by_id.get(dict_id)
        if table is None:
            raise GRPCError(Status.NOT_FOUND, f"Dict '{dict_id}' not found")
        return table

    def make(self, name: str, environment: str) -> Table:
        table = Table(ids.base62_id("di"), name, environment)
        self.by_id[table.dict_id] = table
        return table

    def truth(self) -> dict[str, int]:
        """How many entries each has, by its name."""
        return {table.name or table.dict_id: len(table.entries) for table in self.by_id.values()}


class Dicts:
    """Needs self.world (state.World)."""

    world: Any

    async def DictGetOrCreate(
        self, request: api_pb2.DictGetOrCreateRequest
    ) -> api_pb2.DictGetOrCreateResponse:
        how, name = request.object_creation_type, request.deployment_name
        store: DictStore = self.world.dicts
        table = store.named(name, request.environment_name)
        if table is None:
            if how == NO_CREATION:
                raise GRPCError(Status.NOT_FOUND, f"Dict '{name}' not found")
            table = store.make(name, request.environment_name)
        elif how not in (NO_CREATION, CREATE_IF_MISSING):
            raise GRPCError(Status.ALREADY_EXISTS, f"Dict '{name}' already exists")
        return api_pb2.DictGetOrCreateResponse(dict_id=table.dict_id, metadata=_metadata(table))

    async def DictGetById(self, request: api_pb2.DictGetByIdRequest) -> api_pb2.DictGetByIdResponse:
        table = self.world.dicts.get(request.dict_id)
        return api_pb2.DictGetByIdResponse(dict_id=table.dict_id, metadata=_metadata(table))

    async def DictList(self, request: api_pb2.DictListRequest) -> api_pb2.DictListResponse:
        before = request.pagination.created_before or float("inf")
        tables = [
            table
            for table in self.world.dicts.by_id.values()
            if table.name
            and table.environment == request.environment_name
            and table.created_at_s < before
        ]
        tables.sort(key=lambda table: -table.created_at_s)
        return api_pb2.DictListResponse(
            environment_name=request.environment_name,
            dicts=[
                api_pb2.DictListResponse.DictInfo(
                    name=table.name,
                    created_at=table.created_at_s,
                    dict_id=table.dict_id,
                    metadata=_metadata(table),
                )
                for table in tables[: request.pagination.max_objects or len(tables)]
            ],
        )

    async def DictDelete(self, request: api_pb2.DictDeleteRequest) -> Empty:
        self.world.dicts.get(request.dict_id)
        del self.world.dicts.by_id[request.dict_id]
        return Empty()

    async def DictHeartbeat(self, request: api_pb2.DictHeartbeatRequest) -> Empty:
        self.world.dicts.get(request.dict_id)
        return Empty()

    # -- entries ------------------------------------------------------------------------------

    async def DictUpdate(self, request: api_pb2.DictUpdateRequest) -> api_pb2.DictUpdateResponse:
        """`created` is False when nothing was written because the key was there."""
        entries = self.world.dicts.get(request.dict_id).entries
        if sum(len(one.value) for one in request.updates) > VALUE_BYTES_MAX:
            raise GRPCError(Status.INVALID_ARGUMENT, "the update is too large")
        if request.if_not_exists and any(one.key in entries for one in request.updates):
            return api_pb2.DictUpdateResponse(created=False)
        entries.update((one.key, one.value) for one in request.updates)
        return api_pb2.DictUpdateResponse(created=True)

    async def DictGet(self, request: api_pb2.DictGetRequest) -> api_pb2.DictGetResponse:
        value = self.world.dicts.get(request.dict_id).entries.get(request.key)
        return api_pb2.DictGetResponse(found=value is not None, value=value)

    async def DictPop(self, request: api_pb2.DictPopRequest) -> api_pb2.DictPopResponse:
        value = self.world.dicts.get(request.dict_id).entries.pop(request.key, None)
        return api_pb2.DictPopResponse(found=value is not None, value=value)

    async def DictContains(
        self, request: api_pb2.DictContainsRequest
    ) -> api_pb2.DictContainsResponse:
        found = request.key in self.world.dicts.get(request.dict_id).entries
        return api_pb2.DictContainsResponse(found=found)

    async def DictLen(self, request: api_pb2.DictLenRequest) -> api_pb2.DictLenResponse:
        return api_pb2.DictLenResponse(len=len(self.world.dicts.get(request.dict_id).entries))

    async def DictClear(self, request: api_pb2.DictClearRequest) -> Empty:
        self.world.dicts.get(request.dict_id).entries.clear()
        return Empty()

    async def DictContents(
        self, request: api_pb2.DictContentsRequest
    ) -> AsyncIterator[api_pb2.DictEntry]:
        for key, value in list(self.world.dicts.get(request.dict_id).entries.items()):
            yield api_pb2.DictEntry(
                key=key if request.keys else b"", value=value if request.values else b""
            )


def _metadata(table: Table) -> api_pb2.DictMetadata:
    made = api_pb2.CreationInfo(created_at=table.created_at_s, created_by="emulated")
    return api_pb2.DictMetadata(name=table.name, creation_info=made)
