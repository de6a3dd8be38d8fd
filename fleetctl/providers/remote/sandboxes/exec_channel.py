"""A command in a sandbox elsewhere, whose input is written and output read: beside a task, or as
the driver of an interpreter's session.

Each provider with remote sandboxes has an ExecChannel of its own. RemoteSession is the part of a
session that knows its age and its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Protocol

from fleetctl.common.errors import FleetctlError
from fleetctl.providers.contract.sandbox_access import ExecTarget

WRITE_CHARACTERS = 1 << 20  # in one call: Modal's SDK takes 2 MiB at once

# The command gets the task's own directory and variables, if one of its processes shows them; else
# the source's directory, or the one that tasks begin in. Secrets of a task that started no process
# of its own are those of the guest that began it. Values go from one environment to the next inside
# the sandbox: never through a command line, and never here. FLEETCTL_RUN is set last: it marks the
# processes of a task.
_SCRIPT = r"""
run=$1 source=$2 work=$3 secrets=$4
shift 4
cd "${source:-$work}" 2>/dev/null || cd "$work" 2>/dev/null || cd /
newline=$(printf '\001')
take() {
    while IFS= read -r line; do
        name=${line%%=*} value=${line#*=}
        case $name in
            ''|[0-9]*|*[!A-Za-z0-9_]*|PWD|OLDPWD|SHLVL|TERM|_) continue ;;
        esac
        case " ${2:-$name} " in *" $name "*) ;; *) continue ;; esac
        case $value in
            *"$newline"*) value=$(printf '%s.' "$value" | tr '\001' '\n') && value=${value%.} ;;
        esac
        export "$name=$value"
    done <<END
$(tr '\n\0' '\001\n' <"$1" 2>/dev/null)
END
}
missing() {
    for name in $secrets; do
        eval "[ -n \"\${$name+set}\" ]" || printf '%s ' "$name"
    done
}
for about in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$about" 2>/dev/null | grep -qx "FLEETCTL_RUN=$run"; then
        take "$about"
        cd -P "${about%environ}cwd" 2>/dev/null && break
    fi
done 2>/dev/null
for about in /proc/[0-9]*/environ; do
    left=$(missing)
    [ -n "$left" ] || break
    take "$about" "$left"
done 2>/dev/null
export FLEETCTL_RUN="$run"
exec "$@"
"""

LAST_WORDS_CHARACTERS = 2000  # of what the driver wrote on its standard error


class ExecChannel(Protocol):
    async def send(self, text: str) -> None:
        """Writes to its standard input (ASCII), one caller at a time. Raises Unavailable when it is
        over or cannot be reached: how much of the text arrived is then unknown.
        """
        ...

    def pieces(self) -> AsyncGenerator[str, None]:
        """Yields pieces of the command's standard output until it ends. A second call continues at
        the same position, if possible. Raises ConnectionError when the stream is lost.
        """
        ...

    async def close(self) -> None:
        """Lets the command end. Raises Unavailable when that cannot be asked."""
        ...


class LineSplitter:
    """Makes lines of pieces."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.characters = 0  # of the line that is not whole yet

    def take(self, piece: str) -> list[str]:
        """The lines that the piece completes, without empty ones."""
        first, *rest = piece.split("\n")
        self._parts.append(first)
        self.characters += len(first)
        if not rest:
            return []
        whole = ["".join(self._parts), *rest[:-1]]
        self._parts, self.characters = [rest[-1]], len(rest[-1])
        return [line.strip() for line in whole if line.strip()]


def exec_command(
    place: ExecTarget,
    argv: tuple[str, ...],
    *,
    work: str,
) -> list[str]:
    """Returns the command that runs `argv` beside a task, with its variables. work: the
    directory that tasks begin in.
    """
    secrets = " ".join(place.secrets)
    return ["sh", "-c", _SCRIPT, "fleetctl", place.run, place.directory, work, secrets, *argv]


def exec_variables(place: ExecTarget) -> dict[str, str]:
    """Returns the variables for the command, without the one that _SCRIPT itself sets last."""
    return {name: value for name, value in place.env.items() if name != "FLEETCTL_RUN"}


class RemoteSession(ABC):
    place_root = ""
    workspace = ""
    committed_late = ""

    def __init__(self, *, lifetime_s: float) -> None:
        """lifetime_s: how long the driver may live. The provider's own limit counts from the first
        moment of the sandbox and leaves room for that; this one counts from the driver's.
        """
        self._why = ""
        self._last_words = ""
        self._age = asyncio.create_task(self._end_after(lifetime_s))
        self._stopping: asyncio.Task[None] | None = None

    def ending(self) -> str:
        why = self._why or "its sandbox ended"
        if self._last_words:
            return f"{why}; its last words: {self._last_words}"
        return why

    async def stop(self) -> None:
        if self._stopping is None or (self._stopping.done() and self._stopping.exception()):
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        await self._end_sandbox()
        self._age.cancel()

    @abstractmethod
    async def _end_sandbox(self) -> None:
        """Ends the sandbox. Raises Unavailable when that cannot be done now; the caller tries
        again.
        """

    async def _end_after(self, lifetime_s: float) -> None:
        await asyncio.sleep(lifetime_s)
        self._why = f"its lifetime of {lifetime_s:g} s has passed"
        with contextlib.suppress(FleetctlError):  # then the provider ends it a little later
            await self.stop()

    def _hear_error(self, piece: str) -> None:
        """Keeps the end of the driver's standard error."""
        words = " ".join((self._last_words + piece).split())
        self._last_words = words[-LAST_WORDS_CHARACTERS:]

    def _process_ended(self, code: int) -> None:
        """Sets the reason, unless a better one is known already. code: as in a shell."""
        how = f"was ended by signal {code - 128}" if code > 128 else f"exited with code {code}"
        self._why = self._why or f"its process {how}"
