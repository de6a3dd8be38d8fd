"""A whole backend over a SandboxHost, the interface that another project's package implements:
names, two-phase starts, adoption, the mirror of journals.

Built by another project's package; called by the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from dataclasses import field as data_field
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.guest.ship.assemble import remote_source
from fleetctl.guest.ship.library import order_input
from fleetctl.providers.contract.account import Account, AccountNow
from fleetctl.providers.contract.base import (
    Backend,
    Foreseeing,
    Notify,
    Owned,
    RunRequest,
    no_network,
    no_pods,
)
from fleetctl.providers.contract.orphans import GONE_HINT, Orphan, Orphans
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.remote import remote_provider
from fleetctl.providers.remote.remote_provider import RemoteProvider
from fleetctl.providers.remote.runs.guest_order import SandboxContext, guest_order
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.exec_channel import ExecChannel
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreates
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Fate, RunWork, StreamOffsets
from fleetctl.specs.blocks.template import Template

PATIENCE_S = 20.0  # for a sandbox to be made, before the engine is to ask again
AGAIN_S = 30.0
GIVE_UP_S = 10.0
Obstacles = Callable[[Template, Account], Iterable[Finding]]
Price = Callable[[Template], float | None]


def guest_program() -> str:
    """Returns the program that runs tasks in sandboxes, for Python 3.9 and later; its text changes
    with fleetctl, so that a host keeps it by its hash.
    """
    return remote_source()


def no_obstacles(_template: Template, _account: Account) -> Iterable[Finding]:
    return ()


class SandboxBackend(RemoteProvider):
    """A Backend of the sandboxes of a host.

    contract: its promises. obstacles: why it cannot run a template, at paths of the template,
    beside the reasons of every such backend. usd_per_s: the price of a template; None while it is
    unknown.
    """

    no_functions = "it has none"

    def __init__(
        self,
        home: Path,
        *,
        store_id: str,
        notify: Notify,
        account: AccountNow,
        host: SandboxHost,
        contract: Contract,
        obstacles: Obstacles = no_obstacles,
        usd_per_s: Price = lambda _: None,
    ) -> None:
        super().__init__(home, store_id=store_id, notify=notify, account=account, pace=None)
        # Its handle comes first, so that no lost reply begins a run twice.
        self.contract = replace(contract, two_phase=True)
        self._host = host
        self._host_obstacles = obstacles
        self._price = usd_per_s

    def _open(self) -> None:
        """Does no work: a host is asked without a connection of ours."""

    async def start(self, request: RunRequest) -> str:
        for it in self._obstacles(request.template, self._account()):
            raise Refused(it.what, hint=it.fix)
        return await self._start(request)

    async def owned(self) -> Sequence[Owned]:
        if not remote_provider.any_left(self._jobs):
            return []  # without a run here, the sweep must cost no call
        return await self._sandboxes.owned()

    async def ensure_volume(self, name: str) -> None:
        await self._volumes().ensure_volume(name)

    async def remove_volume(self, name: str) -> None:
        await self._volumes().remove_volume(name)

    def usd_per_s(self, template: Template) -> float | None:
        return self._price(template)

    # -- made when first needed --------------------------------------------------------------------

    @cached_property
    def _sandboxes(self) -> HostedSandboxes:
        return HostedSandboxes(self._host, self._store_id)

    @cached_property
    def _creating(self) -> HostedCreator:
        return HostedCreator(self._sandboxes, self._notify)

    # -- helpers -----------------------------------------------------------------------------------

    async def _begin(self, request: RunRequest) -> None:
        context = SandboxContext(handle=request.handle)
        order = guest_order(request, context)
        volumes = [
            {**it, "mount": await self._volumes().ensure_volume(str(it["name"])), "links": []}
            for it in order["volumes"]  # type: ignore[attr-defined]
        ]
        await self._hand_in(request, context, {**order, "volumes": volumes})

    def _volumes(self) -> VolumeHost:
        if isinstance(self._host, VolumeHost):
            return self._host
        raise Refused(f"provider `{self._name}` has no volumes", hint="place it on another")

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        name = account.name
        if template.is_function:
            yield Finding(("runtime",), f"provider `{name}` has no functions", "use a sandbox")
        if template.network is not None:
            yield no_network(name)
        if template.kubernetes is not None:
            yield no_pods(name)
        for field, given in (
            ("image", template.image is not None),
            ("source", template.source is not None),
            ("endpoints", bool(template.endpoints)),
            ("volumes", bool(template.volumes) and not isinstance(self._host, VolumeHost)),
        ):
            if given:
                text = f"provider `{name}` does not bring a task's `{field}`"
                yield Finding((field,), text, f"leave `{field}` out, or place it on another")
        yield from self._host_obstacles(template, account)


class HostedSandboxes:
    """The sandboxes of a host as the shared part of remote providers asks for them."""

    def __init__(self, host: SandboxHost, store_id: str) -> None:
        self._host = host
        self._store_id = store_id

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        words = ["attach", "--run", run, *at.words()]
        command = GuestCommand(words)
        if work is not None:
            order = order_input(work.order, posix=False)
            command = GuestCommand([*words, "--order", "-"], order, work.secrets)
        async with aclosing(self._host.execute(handle, command)) as pieces:
            async for data in pieces:
                yield data

    async def fate(self, handle: str) -> Fate | None:
        return await self._host.fate(handle)

    async def end(self, handle: str) -> None:
        await self._host.end(handle)

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        command = GuestCommand(["stop", "--run", run, "--grace", str(grace_s)])
        async with aclosing(self._host.execute(handle, command)) as pieces:
            async for _ in pieces:
                continue

    async def find(self, run: str) -> str | None:
        """By its tags, and not by its name: another store may have made a sandbox of that name."""
        for it in await self._host.list():
            if sandbox_names.is_of(dict(it.tags), self._store_id, run):
                return it.handle
        return None

    async def line(self, handle: str, run: str) -> ExecChannel:
        raise Refused(
            f"model calls are not carried out of sandbox `{handle}`",
            hint="leave `endpoints` out, or place it on another provider",
        )

    async def is_ours(self, handle: str) -> bool:
        return any(it.handle == handle for it in await self._list_own())

    async def owned(self) -> list[Owned]:
        found = []
        for it in await self._list_own():
            tags = dict(it.tags)
            since_s = sandbox_names.made_at_s(tags)
            found.append(Owned(sandbox_names.run_of(tags), it.handle, since_s))
        return found

    async def create(self, request: RunRequest) -> str:
        """Makes the sandbox of a run, or finds the one that an earlier request made."""
        found = await self.find(request.run)
        if found is not None:
            return found
        name = sandbox_names.sandbox_name(f"{self._store_id}-{request.run}")
        tags = sandbox_names.sandbox_tags(request, self._store_id, time.time())
        return await self._host.create(SandboxOrder(name, tags, request.template))

    async def _list_own(self) -> list[HostedSandbox]:
        listed = await self._host.list()
        return [it for it in listed if sandbox_names.is_ours(dict(it.tags), self._store_id)]


class HostedCreator:
    """Makes a sandbox for each run once, also when it is requested again."""

    def __init__(self, sandboxes: HostedSandboxes, notify: Notify) -> None:
        self._sandboxes = sandboxes
        self.makings = PendingCreates(notify, give_up_s=GIVE_UP_S)

    async def make(self, request: RunRequest) -> str:
        making = self.makings.get(request.run)
        making = making or self.makings.begin(request.run, self._sandboxes.create(request))
        handle = await self.makings.handle(making, patience=asyncio.sleep(PATIENCE_S))
        if handle is None:
            raise Unavailable(
                f"the sandbox of `{request.run}` is being made",
                reason="Queued",
                retry_after_s=AGAIN_S,
                perhaps_made=True,
            )
        return handle


class HostedOrphans:
    """The sandboxes of a host that carry a tag of any store; none of its volumes."""

    def __init__(self, host: SandboxHost, account: Account) -> None:
        self._host = host
        self._account = account

    async def find_all(self) -> Sequence[Orphan]:
        listed = await self._host.list()
        found = (
            sandbox_names.of_tags(self._account.name, it.handle, dict(it.tags)) for it in listed
        )
        return [it for it in found if it is not None]

    async def remove(self, orphan: Orphan) -> None:
        await self._host.end(orphan.handle)

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        del store_id, uid
        raise Refused(
            f"sandboxes of provider `{self._account.name}` keep their tags, so none is adopted",
            hint=GONE_HINT,
        )

    async def close(self) -> None:
        """Does no work: a host is asked without a connection of ours."""


_: type[Backend] = SandboxBackend
__: type[Foreseeing] = SandboxBackend
___: type[Orphans] = HostedOrphans


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
    env: Mapping[str, str] = data_field(default_factory=dict, repr=False)


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
