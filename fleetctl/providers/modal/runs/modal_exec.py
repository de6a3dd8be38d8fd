"""Commands beside a task at Modal, through the SDK's own exec."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.sandbox_access import ENDED_HINT, Entering, ExecStreams, ExecTarget
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, WorkspaceMemory
from fleetctl.providers.modal.connection.modal_errors import retryable_call
from fleetctl.providers.modal.runs.modal_streams import STATE_DIR
from fleetctl.providers.remote.sandboxes import exec_channel

if TYPE_CHECKING:
    import modal

CALL_S = 30.0
LIFE_S = 86_400  # of a command, as of a sandbox; without one the SDK waits for a dead machine


class ModalEntering:
    """Has a connection of its own, made at the first call; refuses a workspace that is not the
    store's.
    """

    terminal = True
    binary = True

    def __init__(self, home: Path, account: Account) -> None:
        memory = WorkspaceMemory(account.directory(home))
        self._connection = ModalConnection("entering", account=lambda: account, memory=memory)

    async def execute(
        self,
        place: ExecTarget,
        argv: tuple[str, ...],
        streams: ExecStreams,
    ) -> int:
        process = await self._begin_process(place, argv, streams)
        async with retryable_call(
            f"the command beside run `{place.run}` was lost", deadline_s=LIFE_S
        ):
            feeding = asyncio.ensure_future(_feed_input(process, streams.stdin))
            try:
                await asyncio.gather(
                    _show_output(process.stdout, streams.out),
                    _show_output(process.stderr, streams.err),
                )
                return int(await process.wait.aio())
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)

    async def link(self, place: ExecTarget, port: int) -> str:
        """A tunnel must be asked for when a sandbox is made, before anybody knows the port."""
        del place, port
        return ""

    async def close(self) -> None:
        await self._connection.close()

    async def _begin_process(
        self,
        place: ExecTarget,
        argv: tuple[str, ...],
        streams: ExecStreams,
    ) -> modal.container_process.ContainerProcess[bytes]:
        client = await self._connection.client()
        import modal
        from modal import exception as sdk

        what = f"a command beside run `{place.run}` cannot be started"
        try:
            async with retryable_call(what, deadline_s=CALL_S):
                sandbox = await modal.Sandbox.from_id.aio(place.handle, client=client)
                return await sandbox.exec.aio(
                    *exec_channel.exec_command(place, argv, work=f"{STATE_DIR}/work"),
                    timeout=LIFE_S,
                    env=dict(exec_channel.exec_variables(place)),
                    text=False,
                    pty=streams.tty is not None,
                )
        except (sdk.NotFoundError, sdk.ConflictError) as error:
            raise Refused(
                f"the sandbox of run `{place.run}` is gone, so no command can join it",
                hint=ENDED_HINT,
            ) from error


async def _feed_input(
    process: modal.container_process.ContainerProcess[bytes], data: AsyncIterator[bytes] | None
) -> None:
    from modal import exception as sdk

    # It reads no more, which is its own affair.
    with suppress(sdk.Error, OSError, ValueError):
        if data is not None:
            async for piece in data:
                process.stdin.write(piece)
                await process.stdin.drain.aio()
        process.stdin.write_eof()
        await process.stdin.drain.aio()


async def _show_output(source: AsyncIterable[bytes], show: Callable[[bytes], None]) -> None:
    async for data in source:
        show(data)


_: type[Entering] = ModalEntering
