"""A command in a sandbox of Daytona whose input is written and output read, in a session of its
own.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    error_words,
    is_conflict,
    is_not_found,
    retryable_call,
    sdk_errors,
)
from fleetctl.providers.daytona.runs.daytona_streams import Put, read_ahead
from fleetctl.providers.remote.sandboxes import exec_channel
from fleetctl.providers.remote.sandboxes.exec_channel import WRITE_CHARACTERS

PIECES_AHEAD = 256


async def begin_command(
    sandbox: sdk.AsyncSandbox,
    session: str,
    argv: Sequence[str],
    *,
    directory: str = "",
) -> str:
    """The id of the command, which begins in the session; it is a child of the session's shell,
    which must live on. Raises what the SDK raises.
    """
    text = shlex.join(argv)
    if directory:
        text = f"cd {shlex.quote(directory)} && {text}"
    request = sdk.SessionExecuteRequest(
        command=shlex.join(["sh", "-c", text]),
        run_async=True,
        suppress_input_echo=True,
    )
    return (await sandbox.process.execute_session_command(session, request)).cmd_id


class DaytonaExecChannel:
    def __init__(
        self,
        sandbox: sdk.AsyncSandbox,
        session: str,
        command: str,
        *,
        deadline_s: float,
        hear_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        """command: its id. deadline_s: seconds for one call. hear_error: called with the command's
        standard error.
        """
        self._process = sandbox.process
        self._session = session
        self._command = command
        self._deadline_s = deadline_s
        self.heard = 0  # characters of its standard output
        self._hear_error = hear_error

    async def send(self, text: str) -> None:
        what = "the sandbox cannot be written to"
        try:
            async with retryable_call(what, deadline_s=self._deadline_s):
                for lines in _in_lines(text):
                    await self._process.send_session_command_input(
                        self._session, self._command, lines
                    )
        except FleetctlError as error:
            raise Unavailable(str(error)) from error
        except sdk.DaytonaError as error:
            if is_not_found(error) or is_conflict(error):
                raise Unavailable(f"{what}: it has ended") from error
            raise

    async def pieces(self) -> AsyncGenerator[str, None]:
        """Yields the new output. A stream begins at the first byte."""
        streamed = 0  # characters of this stream

        async def read(put: Put[str]) -> None:
            async def take(text: str) -> None:
                nonlocal streamed
                fresh = text[max(0, self.heard - streamed) :]
                streamed += len(text)
                if fresh:
                    self.heard += len(fresh)
                    await put(fresh)

            await self._process.get_session_command_logs_async(
                self._session, self._command, take, self._hear_error
            )

        async with aclosing(read_ahead(read, ahead=PIECES_AHEAD)) as fresh:
            try:
                async for piece in fresh:
                    yield piece
            except sdk_errors() as error:
                raise ConnectionError(error_words(error)) from error

    async def close(self) -> None:
        """Ends the session, and with it the command and the file that holds its output."""
        what = f"session `{self._session}` cannot be ended"
        try:
            async with retryable_call(what, deadline_s=self._deadline_s):
                await self._process.delete_session(self._session)
        except FleetctlError as error:
            raise Unavailable(str(error)) from error
        except sdk.DaytonaNotFoundError as error:
            if not is_not_found(error):
                raise


def _in_lines(text: str) -> Iterator[str]:
    """Splits a text into whole lines, as many at once as one call takes. Never a part of a line,
    however long it is: Daytona adds a newline to each input, and would make two of it.
    """
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if lines and sum(map(len, lines)) + len(line) > WRITE_CHARACTERS:
            yield "".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield "".join(lines)


_: type[exec_channel.ExecChannel] = DaytonaExecChannel
