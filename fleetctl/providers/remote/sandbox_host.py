"""The interface between fleetctl and a place of sandboxes that another project's package adds: five
verbs, and two more where it has volumes. Implemented outside; called by sandbox_backend.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from fleetctl.providers.remote.sandboxes.fates import Fate
from fleetctl.specs.blocks.template import Template


@dataclass(frozen=True, slots=True)
class SandboxOrder:
    """A sandbox that is wanted. name: a function of the run and its store, at most 64 letters,
    digits, `.`, `_` and `-`. tags: whose it is; kept with it, and listed. template: its size.
    """

    name: str
    tags: Mapping[str, str]
    template: Template


@dataclass(frozen=True, slots=True)
class HostedSandbox:
    """A living sandbox, as a list shows it."""

    handle: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GuestCommand:
    """A command that runs in a sandbox: `python3 GUEST WORDS`, whose text is guest_program().

    words: its arguments, without `--dir DIRECTORY`, which names a directory of the sandbox's own
    and follows the first of them. stdin: all of its input. env: secrets, for this command alone.
    """

    words: Sequence[str]
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


class SandboxHost(Protocol):
    """Each verb may be called again, raises Unavailable where its effect is unknown, and Refused
    where it can never succeed.
    """

    async def create(self, order: SandboxOrder) -> str:
        """Makes the sandbox, or finds the one of that name; returns its handle, which no other
        sandbox ever has. No program of a task runs in it yet.
        """
        ...

    async def list(self) -> Sequence[HostedSandbox]:
        """Returns the living sandboxes, of every store."""
        ...

    async def fate(self, handle: str) -> Fate | None:
        """Returns how it ended; None while it lives, Cause.UNKNOWN where nothing is known of it."""
        ...

    async def end(self, handle: str) -> None:
        """Ends it with all its processes; returns once that is certain. No error when it is
        over.
        """
        ...

    def execute(self, handle: str, command: GuestCommand) -> AsyncGenerator[bytes, None]:
        """Yields the standard output of a command in the sandbox as it comes. Raises SandboxOver
        where the sandbox is gone, and GuestEnded for an exit code that is not 0. Closing the
        generator may end the command, and no process that it has left behind.
        """
        ...


@runtime_checkable
class VolumeHost(Protocol):
    """A host with directories that outlive its sandboxes. Optional."""

    async def ensure_volume(self, name: str) -> str:
        """Makes it exist; returns its path in every sandbox."""
        ...

    async def remove_volume(self, name: str) -> None:
        """Removes it with all that is in it. No error when it is gone."""
        ...
