"""The shared base of all providers whose tasks run in their own sandboxes elsewhere; it also frees
the files that a resource's runs left on this machine.

Each such provider is built on this: it defines what its sandboxes are, how they are made, and how
a task begins in one; names, journals, stops and the files below $FLEETCTL_HOME are kept here.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Protocol

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.model import Observation
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.contract.base import (
    EndpointAccess,
    FunctionAsset,
    LogChunk,
    Notify,
    RunRef,
    RunRequest,
    ServerAddress,
)
from fleetctl.providers.paths import checked_name, jobs_dir, make_private
from fleetctl.providers.remote.relay import RelayLines, Relays
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.providers.remote.runs.guest_order import SandboxContext, guest_order, secrets_of
from fleetctl.providers.remote.runs.remote_runs import RemoteRuns
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreates
from fleetctl.providers.remote.sandboxes.sandbox_protocol import RunWork, Sandboxes
from fleetctl.providers.rundir.kept_outputs import contents_of, release_contents
from fleetctl.providers.sources.pinning import revision_in
from fleetctl.specs.blocks.template import Template

BEGIN_S = 120.0  # from the order to the run's first frame; the engine tries again after that
DISCARD_S = 5.0  # to end the sandbox of a start that failed
END_LOOK_S = 0.2  # between two requests to end a sandbox at once
REACH_S = 4.0  # for a service to answer whether it is there

KEPT = ("runs", "builds")  # journals and logs, and what leads to logs of builds
INTERPRETERS = "interpreters"  # their image builds, beside the objects'; no sweep is about those


class MarkedSandboxes(Sandboxes, RelayLines, Protocol):
    async def is_ours(self, handle: str) -> bool:
        """Returns whether our store made it; False if it is gone."""


class CreateVerbs(Protocol):
    """Makes the sandbox of an order once, also when it is requested again."""

    @property
    def makings(self) -> PendingCreates: ...

    async def make(self, request: RunRequest) -> str: ...


class RemoteProvider(ABC):
    """Base of the remote providers. Parts are made when first needed, so that a wrong setting is
    reported to callers that need it, and not to callers that only look.

    sort: its type, as in a Provider object. no_functions: why it has none, as a sentence.
    """

    sort: ClassVar[str]
    no_functions: ClassVar[str] = ""
    session_options: tuple[str, ...] = ()  # see run_session.py
    function_hint: ClassVar[str] = "use `runtime: sandbox`, or place it on `modal` or `local`"

    def __init__(
        self,
        home: Path,
        *,
        store_id: str,
        notify: Notify,
        account: AccountNow | None = None,
        pace: FollowPace | None = None,
    ) -> None:
        self._home = home
        self._account: AccountNow = account or partial(built_in, self.sort)
        self._name = self._account().name
        self._jobs = jobs_dir(home, self._name)
        self._store_id = store_id
        self._notify = notify
        self._pace = pace or FollowPace()
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Makes its connection and what belongs to it. Calls nobody yet."""

    @abstractmethod
    def _obstacles(self, template: Template, account: Account) -> Iterable[Finding]:
        """Yields as `foresee` does."""

    @property
    @abstractmethod
    def _sandboxes(self) -> MarkedSandboxes: ...

    @property
    @abstractmethod
    def _creating(self) -> CreateVerbs: ...

    @abstractmethod
    async def _begin(self, request: RunRequest) -> None:
        """Begins the run. Raises TimeoutError without an answer in time: the run may have begun."""

    @cached_property
    def _runs(self) -> RemoteRuns:
        return RemoteRuns(
            self._home,
            self._name,
            self._sandboxes,
            notify=self._changed,
            pace=self._pace,
        )

    @cached_property
    def _relays(self) -> Relays:
        return Relays(self._sandboxes, lives=self._runs.lives, pace=self._pace)

    async def start(self, request: RunRequest) -> str:
        return await self._start(request)

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        # The state of a sandbox that is being made is not known, even where a look-up by name
        # answers.
        return await self._runs.observe([ref for ref in runs if not self._is_making(ref)])

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        await self._creating.makings.give_up(ref.run)
        await self._stop(ref, grace_s=grace_s)

    async def end_run(self, uid: str, run: str, *, within_s: float, handle: str = "") -> bool:
        """Ends the sandbox of a run at once, confirmed, and removes its files here. Returns whether
        there was one. handle: where it is known. Raises Unavailable.
        """
        await self._creating.makings.give_up(run)
        handle = handle or self._runs.handle_of(uid, run)
        handle = handle or await self._sandboxes.find(run) or ""
        await self._runs.forget(uid, run)
        until_s = time.monotonic() + within_s
        while handle:
            try:
                await self._sandboxes.end(handle)
                break
            except Unavailable:
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(END_LOOK_S)
        return bool(handle)

    async def discard_run(self, uid: str, run: str, *, late_s: float) -> None:
        """Ends the sandbox of a run whose start failed, as far as possible: its own life is the
        net. late_s: seconds to look out for one that is not there yet.
        """
        until_s = time.monotonic() + late_s
        while True:
            with suppress(FleetctlError):  # that of the start is more informative
                if await self.end_run(uid, run, within_s=DISCARD_S):
                    return
            if time.monotonic() > until_s:
                return
            await asyncio.sleep(END_LOOK_S)

    async def ensure_function(self, asset: FunctionAsset) -> ServerAddress | None:
        name = asset.order.name
        raise Refused(
            f"function `{name}` cannot be on provider `{self._name}`: {self.no_functions}",
            hint=self.function_hint,
        )

    async def remove_function(self, name: str) -> None:
        del name  # no function was ever made

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        await self._remove_files(uid, keep_logs=keep_logs)

    async def foresee(self, template: Template, account: Account) -> AsyncIterator[Finding]:
        for it in self._obstacles(template, account):
            yield it

    def lacks(self, template: Template) -> str:
        found = self._obstacles(template, self._account())
        return next((it.what for it in found if it.severity is Severity.NEVER), "")

    async def _start(self, request: RunRequest) -> str:
        """Starts a run in two phases: the sandbox's id first, and once that is durable the work."""
        if request.endpoints is not None:
            request = replace(request, template=request.template.carried())
        if request.handle:
            await self._begin(request)
            return request.handle
        known = self._runs.handle_of(request.uid, request.run)
        if known:
            return known
        make_private(self._job(request.uid))  # from now on the service may hold something of ours
        return await self._creating.make(request)

    async def _hand_in(
        self,
        request: RunRequest,
        place: SandboxContext,
        order: Mapping[str, object] | None = None,
    ) -> None:
        """Begins the work in its sandbox. order: the guest's order, where it differs from the
        request's own. Raises TimeoutError as `_begin` does.
        """
        work = RunWork(order or guest_order(request, place), secrets_of(request))
        if request.endpoints is not None:  # before: its first call may come at once
            self._relays.hold(request.run, request.handle, request.endpoints)
        try:
            async with asyncio.timeout(BEGIN_S):
                await self._runs.begin(request, work)
        except (Refused, Unavailable):
            self._stop_relay(request.run)
            raise

    def relay(self, ref: RunRef, access: EndpointAccess) -> None:
        if ref.handle and self._runs.lives(ref.run) is not False:
            self._relays.hold(ref.run, ref.handle, access)

    def _stop_relay(self, run: str) -> None:
        if "_relays" in self.__dict__:
            self._relays.end(run)

    def _changed(self, run: str) -> None:
        if "_relays" in self.__dict__:
            self._relays.look(run)
        self._notify(run)

    async def _stop(self, ref: RunRef, *, grace_s: float) -> None:
        handle = ref.handle or (self._runs.handle_of(ref.uid, ref.run) if ref.uid else "")
        handle = handle or await self._sandboxes.find(ref.sandbox) or ""
        if handle and await self._sandboxes.is_ours(handle):
            self._runs.stop(ref, handle, grace_s=grace_s)

    def logs(
        self,
        ref: RunRef,
        *,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogChunk]:
        return self._runs.logs(ref, offset=offset, follow=follow)

    def revision(self, uid: str, template: Template, template_hash: str) -> str:
        # All runs of an object get the same copy, whatever the rest of their template.
        return revision_in(template, self._job(uid))

    def unresolved(self) -> bool:
        making = "_creating" in self.__dict__ and len(self._creating.makings) > 0
        return making or ("_runs" in self.__dict__ and self._runs.busy)

    async def close(self) -> None:
        if "_relays" in self.__dict__:
            await self._relays.close()
        if "_runs" in self.__dict__:
            await self._runs.close()
        if "_creating" in self.__dict__:
            await self._creating.makings.close()

    def _is_making(self, ref: RunRef) -> bool:
        return not ref.handle and ref.run in self._creating.makings

    def _job(self, uid: str) -> Path:
        return self._jobs / checked_name(uid)

    async def _remove_files(self, uid: str, *, keep_logs: bool) -> None:
        """Removes the files and followers of a resource's runs here."""
        if not keep_logs:
            await self._runs.forget_all_of(uid)
        await asyncio.to_thread(
            remove_job_files,
            self._home,
            self._name,
            uid,
            keep_logs=keep_logs,
        )


def any_left(jobs: Path) -> bool:
    """Returns whether some object has files there: only then may its provider hold objects of
    ours.
    """
    return jobs.is_dir() and any(one.name != INTERPRETERS for one in jobs.iterdir())


def remove_job_files(
    home: Path,
    provider: str,
    uid: str,
    *,
    keep_logs: bool,
) -> None:
    """Idempotent. Raises Unavailable when something cannot be removed."""
    job = jobs_dir(home, provider) / checked_name(uid)
    if not job.exists():
        return
    contents = set() if keep_logs else contents_of(job)
    for path in job.iterdir() if keep_logs else [job]:
        if keep_logs and path.name in KEPT:
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(
                f"the scratch space of `{uid}` cannot be removed completely: {error.strerror}",
                hint=f"look at {path}",
            ) from error
    release_contents(job.parents[1], contents)
