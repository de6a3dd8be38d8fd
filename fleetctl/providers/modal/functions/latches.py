"""Latches of function calls: one Dict at Modal for each resource, in which the first call of a run
writes that it begins. Atomic at the server, so a run whose spawn was lost or repeated begins once.

A spawn has no name of ours; this is also where the call of a run is found whose id was lost.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from fleetctl.providers.modal.connection.modal_connection import ModalConnection
from fleetctl.providers.modal.connection.modal_errors import (
    is_not_found,
    not_found_error,
    retryable_call,
)
from fleetctl.providers.remote.service_calls import ToleratedAnswer

if TYPE_CHECKING:
    import modal

VOID = "void"  # as in fleetctl_body.py: the run must not begin any more
ASK_S = 30.0
KNOWN_MAX = 10_000


class Latches:
    def __init__(self, connection: ModalConnection, store_id: str) -> None:
        self._connection = connection
        self._store_id = store_id
        self._known: dict[str, modal.Dict] = {}

    def name(self, uid: str) -> str:
        digest = blake2b(f"{self._store_id}/{uid}".encode(), digest_size=16).hexdigest()
        return f"fleetctl-latch-{digest}"

    async def ensure(self, uid: str) -> str:
        """Makes the resource's table; returns its name."""
        await self._table(uid, create=True)
        return self.name(uid)

    async def void(self, uid: str, run: str) -> str:
        """Makes sure that the run does not begin after this. Returns the call that had begun it
        before, or "".
        """
        await self._put(uid, run, VOID, skip_if_exists=True)
        # Read back after any answer: an earlier try of the same put may have set it.
        holder = await self.holder(uid, run)
        if holder == VOID:
            return ""
        return holder

    async def holder(self, uid: str, run: str) -> str:
        """The call that has begun the run, VOID, or ""."""
        value = await self._value(uid, run)
        from fleetctl.providers.modal.functions import plain_pickle

        held = plain_pickle.unpickle_plain(value) if value is not None else ""
        return str(held).partition(" ")[0]

    async def said(self, uid: str, run: str) -> bytes:
        """Returns the frames of a run that goes on, as far as its call has sent them; long output
        is cut.
        """
        value = await self._value(uid, f"{run}.said")
        from fleetctl.providers.modal.functions import plain_pickle

        if value is not None:
            return plain_pickle.unpickle_frames(value) or b""
        return b""

    async def forget_said(self, uid: str, run: str) -> None:
        """Removes a node's frames: they are stored here by now."""
        table = await self._table(uid, create=False)
        if table is None:
            return
        with ToleratedAnswer(is_not_found):
            async with retryable_call("the messages of a node cannot be removed", deadline_s=ASK_S):
                await table.pop.aio(f"{run}.said", None)

    async def _value(self, uid: str, key: str) -> bytes | None:
        """Returns a value as its serialized bytes; None without a value."""
        table = await self._table(uid, create=False)
        if table is None:
            return None
        client = await self._connection.client()
        from modal import _serialization

        from fleetctl.providers.modal.functions import plain_pickle

        try:
            async with retryable_call(f"the latch `{key}` cannot be read", deadline_s=ASK_S):
                value: bytes | None = await plain_pickle.read_entry.aio(
                    client, table.object_id, _serialization.serialize(key)
                )
                return value
        except not_found_error():
            self._known.pop(uid, None)
            return None

    async def ask_stop(
        self,
        uid: str,
        run: str,
        grace_s: float,
    ) -> None:
        """A call that runs looks for this every few seconds."""
        await self._put(uid, f"{run}.stop", grace_s)

    async def remove(self, uid: str) -> None:
        """Deletes the table of a resource: without it no late call of the resource begins anything.
        Idempotent.
        """
        self._known.pop(uid, None)
        client = await self._connection.client()
        import modal

        async with retryable_call("the latches cannot be removed", deadline_s=ASK_S):
            await modal.Dict.objects.delete.aio(self.name(uid), allow_missing=True, client=client)

    async def _put(
        self,
        uid: str,
        key: str,
        value: object,
        *,
        skip_if_exists: bool = False,
    ) -> None:
        for last in (False, True):
            table = await self._table(uid, create=True)
            assert table is not None
            try:
                async with retryable_call(f"the latch `{key}` cannot be set", deadline_s=ASK_S):
                    await table.put.aio(key, value, skip_if_exists=skip_if_exists)
            except not_found_error():
                if last:
                    raise
                self._known.pop(uid, None)  # somebody deleted it since
            else:
                return

    async def _table(self, uid: str, *, create: bool) -> modal.Dict | None:
        """Returns the table of a resource; None without a table, when it is not to be created."""
        if uid in self._known:
            return self._known[uid]
        client = await self._connection.client()
        import modal

        found = modal.Dict.from_name(self.name(uid), create_if_missing=create, client=client)
        there = False
        with ToleratedAnswer(is_not_found):
            async with retryable_call("the latches cannot be looked up", deadline_s=ASK_S):
                await found.hydrate.aio()
            there = True
        if not there:
            return None
        while len(self._known) >= KNOWN_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[uid] = found
        return found
