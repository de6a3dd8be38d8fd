"""Latches of function calls: one Dict at Modal for each resource, in which the first call of a run
writes that it begins. Atomic at the server, so a run whose spawn was lost or repeated begins once.

A spawn has no name of ours; this is also where the call of a run is found whose id was lost.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from fleetctl.providers.modal.connection.client import Connection
from fleetctl.providers.modal.connection.errors import asking, is_not_found

if TYPE_CHECKING:
    import modal

VOID = "void"  # as in fleetctl_body.py: nobody may begin the run any more
ASK_S = 30.0
KNOWN_MAX = 10_000


class Latches:
    def __init__(self, connection: Connection, store_id: str) -> None:
        self._connection = connection
        self._store_id = store_id
        self._known: dict[str, modal.Dict] = {}

    def name(self, uid: str) -> str:
        digest = blake2b(f"{self._store_id}/{uid}".encode(), digest_size=16).hexdigest()
        return f"fleetctl-latch-{digest}"

    async def ensure(self, uid: str) -> str:
        """Make the resource's table; its name."""
        await self._table(uid, create=True)
        return self.name(uid)

    async def void(self, uid: str, run: str) -> str:
        """Make sure that the run does not begin after this. The call that had begun it before; ""
        when none had.
        """
        await self._put(uid, run, VOID, skip_if_exists=True)
        # Read back, whatever the answer said: an earlier try of the same put may have set it.
        holder = await self.holder(uid, run)
        return "" if holder == VOID else holder

    async def holder(self, uid: str, run: str) -> str:
        """The call that has begun the run, VOID, or ""."""
        value = await self._value(uid, run)
        from fleetctl.providers.modal.functions import plain

        held = plain.unpickled(value) if value is not None else ""
        return str(held).partition(" ")[0]

    async def said(self, uid: str, run: str) -> bytes:
        """The frames of a run that goes on, as far as its call has told them; not all of them where
        there are many.
        """
        value = await self._value(uid, f"{run}.said")
        from fleetctl.providers.modal.functions import plain

        return (plain.story(value) or b"") if value is not None else b""

    async def forget_said(self, uid: str, run: str) -> None:
        """Remove what a node said: it is kept here by now."""
        table = await self._table(uid, create=False)
        if table is None:
            return
        try:
            async with asking("what a node said cannot be removed", deadline_s=ASK_S):
                await table.pop.aio(f"{run}.said", None)
        except Exception as error:
            if not is_not_found(error):
                raise

    async def _value(self, uid: str, key: str) -> bytes | None:
        """A value as its serialized bytes; None where there is none."""
        table = await self._table(uid, create=False)
        if table is None:
            return None
        client = await self._connection.client()
        from modal import _serialization

        from fleetctl.providers.modal.functions import plain

        try:
            async with asking(f"the latch `{key}` cannot be read", deadline_s=ASK_S):
                value: bytes | None = await plain.entry.aio(
                    client, table.object_id, _serialization.serialize(key)
                )
                return value
        except Exception as error:
            if not is_not_found(error):
                raise
            self._known.pop(uid, None)
            return None

    async def ask_stop(self, uid: str, run: str, grace_s: float) -> None:
        """A call that runs looks for this every few seconds."""
        await self._put(uid, f"{run}.stop", grace_s)

    async def remove(self, uid: str) -> None:
        """Delete the table of a resource: without it no late call of the resource begins anything.
        Idempotent.
        """
        self._known.pop(uid, None)
        client = await self._connection.client()
        import modal

        async with asking("the latches cannot be removed", deadline_s=ASK_S):
            await modal.Dict.objects.delete.aio(self.name(uid), allow_missing=True, client=client)

    async def _put(
        self, uid: str, key: str, value: object, *, skip_if_exists: bool = False
    ) -> None:
        for last in (False, True):
            table = await self._table(uid, create=True)
            assert table is not None
            try:
                async with asking(f"the latch `{key}` cannot be set", deadline_s=ASK_S):
                    await table.put.aio(key, value, skip_if_exists=skip_if_exists)
            except Exception as error:
                if last or not is_not_found(error):
                    raise
                self._known.pop(uid, None)  # somebody deleted it since
            else:
                return

    async def _table(self, uid: str, *, create: bool) -> modal.Dict | None:
        """The table of a resource; None when there is none and none is to be made."""
        if uid in self._known:
            return self._known[uid]
        client = await self._connection.client()
        import modal

        found = modal.Dict.from_name(self.name(uid), create_if_missing=create, client=client)
        try:
            async with asking("the latches cannot be looked up", deadline_s=ASK_S):
                await found.hydrate.aio()
        except Exception as error:
            if is_not_found(error):
                return None
            raise
        while len(self._known) >= KNOWN_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[uid] = found
        return found
