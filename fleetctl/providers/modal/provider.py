"""Provider `modal`: the four verbs for runs, and the assets, on Modal.

Built by wiring; called by the engine. It keeps no truth of its own: sandboxes carry their names
and tags, and what runs said is mirrored below $FLEETCTL_HOME/modal.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Gone, Observation
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.contract.base import (
    SANDBOX_CLOSED,
    Backend,
    Foreseen,
    FunctionAsset,
    FunctionRequest,
    LivePrices,
    LogChunk,
    Notify,
    Owned,
    Relaying,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.endpoints import EndpointAccess, ServerAddress, Serving
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.modal import foreseen
from fleetctl.providers.modal.assets import sources
from fleetctl.providers.modal.assets.images import Images
from fleetctl.providers.modal.assets.secrets import Secrets
from fleetctl.providers.modal.assets.volumes import Volumes, names
from fleetctl.providers.modal.connection import credentials, rates, settings, whereabouts
from fleetctl.providers.modal.connection.client import Connection
from fleetctl.providers.modal.connection.errors import asking
from fleetctl.providers.modal.connection.rates import Rates
from fleetctl.providers.modal.connection.whereabouts import Memory
from fleetctl.providers.modal.functions.deployments import Parts as FunctionParts
from fleetctl.providers.modal.functions.deployments import Wanted
from fleetctl.providers.modal.functions.runs import Functions
from fleetctl.providers.modal.runs import clusters, machines
from fleetctl.providers.modal.runs.creates import Creating, Parts
from fleetctl.providers.modal.runs.sandboxes import ModalSandboxes
from fleetctl.providers.paths import provider_dir
from fleetctl.providers.remote.assets import volumes_used
from fleetctl.providers.remote.provider import REACH_S, RemoteProvider
from fleetctl.providers.remote.runs import resumption, scratch
from fleetctl.providers.remote.runs.follower import Pace
from fleetctl.providers.remote.runs.guest_order import Place
from fleetctl.providers.remote.runs.lifetimes import work_s
from fleetctl.providers.sources.pinning import pinned
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import SCALEDOWN_S_MIN

# Before Modal ends a sandbox at its age, so that the task can save and its volumes are committed.
LEAVE_S = 300.0

CONTRACT = Contract(
    visibility_bound_s=5.0,  # a guess: no figure is published
    list_shows_finished=False,
    strong_get=True,
    name_scope="live",
    max_lifetime_s=86_400.0,
    billing_quantum_s=1.0,
    calls_per_s=500.0,  # most are answered here; creates have a bucket of their own
    calls_at_once=256,
    call_deadline_s=900.0,  # starts in line for creates, and uploads
    default_parallelism=20,
    poll_s=30.0,
    two_phase=True,
    nodes_max=clusters.NODES_MAX,
    rdma=True,
    ray=True,
    secrets=True,
    functions=True,
)


class ModalProvider(RemoteProvider):
    contract = CONTRACT

    def __init__(
        self,
        home: Path,
        *,
        store_id: str,
        notify: Notify,
        account: AccountNow = lambda: built_in("modal"),
        pace: Pace | None = None,
    ) -> None:
        super().__init__(home, store_id=store_id, notify=notify, account=account, pace=pace)
        own = provider_dir(home, self._name)
        self._connection = Connection(store_id, account=account, memory=Memory(own))
        self._images = Images(own)
        self._volumes = Volumes()
        self._secrets = Secrets()
        self._rates = Rates(self._account_rates)

    async def start(self, request: RunRequest) -> str:
        called = request.function is not None or clusters.size(request.template) > 1
        if called and request.endpoints is not None:
            no = foreseen.no_line(request.endpoints.names[0])
            raise Refused(no.message, hint=no.hint)
        if not request.handle:
            # Who does not get there has asked Modal for nothing, and nothing is to be looked for.
            await self._connection.app()
        self._rates.refresh_soon()
        if request.function is None and clusters.size(request.template) > 1:
            # Sandboxes form no clusters.
            request = replace(request, function=FunctionRequest("", 0, None, SCALEDOWN_S_MIN))
        if request.function is not None:
            return await self._functions.start(request)
        return await self._start(request)

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        calls: list[RunRef] = []
        boxes: list[RunRef] = []
        for ref in runs:
            (calls if self._functions.has(ref) else boxes).append(ref)
        # Of a sandbox that is being made nothing is known, whatever a look-up by name would say.
        boxes = [ref for ref in boxes if not self._is_making(ref)]
        never = [ref for ref in boxes if self._is_unasked(ref)]
        boxes = [ref for ref in boxes if ref not in never]
        seen = await self._functions.observe(calls) if calls else []
        seen += [Gone(ref.run, time.time()) for ref in never]
        return [*seen, *(await self._runs.observe(boxes) if boxes else [])]

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        if self._functions.has(ref):
            await self._functions.stop(ref, grace_s=grace_s)
            return
        await self._creating.makings.give_up(ref.run)
        if self._is_unasked(ref):
            return
        await self._stop(ref, grace_s=grace_s)

    async def owned(self) -> Sequence[Owned]:
        # Without an account, or with nothing to do at Modal, nobody pays for the sweep's question.
        if not self._jobs.exists():
            return []
        await self._functions.collect()
        # Who has been there goes on looking: a create that was given up may have landed since.
        if self._connection.open_client is None and not scratch.any_left(self._jobs):
            return []
        return await self._sandboxes.owned()

    def relay(self, ref: RunRef, access: EndpointAccess) -> None:
        if not self._functions.has(ref):
            super().relay(ref, access)

    def logs(
        self, ref: RunRef, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[LogChunk]:
        if self._functions.has(ref):
            return self._functions.logs(ref, offset=offset, follow=follow)
        return super().logs(ref, offset=offset, follow=follow)

    async def ensure_volume(self, name: str) -> None:
        await self._volumes.ensure(await self._connection.client_to_make(), name)
        volumes_used.note(provider_dir(self._home, self._name), name)

    async def remove_volume(self, name: str) -> None:
        await self._volumes.remove(await self._connection.client(), name)
        volumes_used.forget(provider_dir(self._home, self._name), name)

    async def ensure_function(self, asset: FunctionAsset) -> ServerAddress | None:
        return await self._functions.ensure(asset)

    async def containers(self, name: str) -> int:
        return await self._functions.containers(name)

    async def remove_function(self, name: str) -> None:
        await self._functions.remove(name)
        self._images.forget(self._job(f"function-{name}"))
        await self._remove_files(f"function-{name}", keep_logs=False)

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        await self._functions.remove_scratch(uid, keep_logs=keep_logs)
        self._images.forget(self._job(uid))
        await self._remove_files(uid, keep_logs=keep_logs)

    def usd_per_s(self, template: Template) -> float | None:
        return self._rates.usd_per_s(template, clustered=clusters.size(template) > 1)

    @property
    def has_live_prices(self) -> bool:
        return self._rates.live

    async def ask_prices(self) -> None:
        if credentials.may_be_there(self._account()):
            await self._rates.refresh()

    async def foresee(self, template: Template, account: Account) -> Foreseen | None:
        return foreseen.first(template, account)

    def lacks(self, template: Template) -> str:
        try:
            machines.machine(template.sandbox_resources)
            clusters.check(template)
        except Refused as error:
            return str(error)
        return ""

    async def reach(self) -> None:
        """Asks for what every token that may work here sees."""
        client = await self._connection.client()
        try:
            async with asking(f"provider `{self._name}`", deadline_s=REACH_S):
                await whereabouts.asked(client)
        except Unavailable as error:
            if error.account:
                self._connection.doubt(client)
            raise

    def unresolved(self) -> bool:
        return super().unresolved() or ("_functions" in self.__dict__ and self._functions.busy)

    async def close(self) -> None:
        await super().close()
        if "_functions" in self.__dict__:
            await self._functions.close()
        await self._rates.close()
        await self._images.close()
        await self._connection.close()

    # -- made when first needed, so that a wrong setting is told to who needs it -------------------

    @cached_property
    def _settings(self) -> settings.Settings:
        return settings.from_environment()

    @cached_property
    def _sandboxes(self) -> ModalSandboxes:
        return ModalSandboxes(self._connection, self._store_id, self._settings)

    @cached_property
    def _creating(self) -> Creating:
        return Creating(
            self._sandboxes,
            self._parts,
            self._settings,
            stale=lambda order: self._forget_parts(order.template),
            store_id=self._store_id,
            notify=self._notify,
        )

    @cached_property
    def _functions(self) -> Functions:
        return Functions(
            self._home,
            self._store_id,
            self._connection,
            self._settings,
            parts=self._function_parts,
            stale=self._forget_parts,
            notify=self._notify,
            pace=self._pace,
            provider=self._name,
        )

    # -- helpers -----------------------------------------------------------------------------------

    def _is_unasked(self, ref: RunRef) -> bool:
        """Modal was never asked for anything of the run's resource."""
        return not ref.handle and bool(ref.uid) and not self._job(ref.uid).exists()

    async def _parts(self, request: RunRequest) -> Parts:
        template = request.template
        # What is cheap to refuse is refused before an image is built.
        machines.machine(template.sandbox_resources)
        await pinned(template, self._job(request.uid))
        client, app = await self._connection.client(), await self._connection.app()
        if (asked := resumption.wanted(request)) is not None:
            found = await names(client, asked.volume, asked.path)
            resumption.refuse_what_is_missing(asked, found)
        return Parts(
            app=app,
            client=client,
            image=await self._images.ready(client, app, template, self._job(request.uid)),
            volumes=dict((await self._volumes.mounts(client, template)).items()),
            secrets=await self._secrets.named(client, request.secret_refs),
        )

    async def _function_parts(self, wanted: Wanted) -> FunctionParts:
        client, app = await self._connection.client(), await self._connection.app()
        return FunctionParts(
            image=await self._images.ready(client, app, wanted.template, wanted.job),
            volumes=dict((await self._volumes.mounts(client, wanted.template)).items()),
            secrets=await self._secrets.named(client, wanted.secret_refs),
        )

    async def _account_rates(self) -> Mapping[str, Decimal]:
        return await rates.of_account(await self._connection.client())

    def _forget_parts(self, template: Template) -> None:
        """Let the next start look again: somebody deleted a volume, an image or our app since."""
        self._connection.forget_app()
        if (client := self._connection.open_client) is not None:
            self._images.doubt(client)
            for mount in template.volumes:
                self._volumes.forget(client, mount.name)

    async def _begin(self, request: RunRequest) -> None:
        """Raises TimeoutError when nothing is heard in time: the run may have begun."""
        further = request.sandbox != request.run
        if (
            further
            and request.template.volumes
            and not self._runs.was_tried(request.uid, request.run)
        ):
            await self._reload(request)
        note = await self._note_of_volumes(request)
        # A task's writes are committed when its end is told: here only its sandbox's end does that.
        request = replace(request, reusable=request.reusable and not note)
        commit = await pinned(request.template, self._job(request.uid))
        setup, directory = sources.setup(request.template, commit)
        age_s = await self._sandboxes.age_s(request.handle)
        grace_s = request.template.termination_grace_period_seconds
        place = Place(
            handle=request.handle,
            setup=setup,
            source=directory,
            syncs=True,
            left_s=work_s(self._settings.lifetime_s - age_s, leave_s=LEAVE_S, grace_s=grace_s),
            note=note,
        )
        await self._hand_in(request, place)

    async def _note_of_volumes(self, request: RunRequest) -> str:
        """What people should know of the volumes that they brought; "" when nothing is special."""
        if not request.template.volumes:
            return ""
        client = await self._connection.client()
        late = await self._volumes.committed_late(client, request.template)
        if not late:
            return ""
        which = ", ".join(f"`{name}`" for name in late)
        return (
            f"a sandbox for each task: its end alone commits a volume of version 1, as {which} is"
        )

    async def _reload(self, request: RunRequest) -> None:
        """Show a further task of an open sandbox what others have committed to its volumes.

        Modal refuses that while a file of them is open there, such as one that an earlier task left
        open in its worker. Old data would make a wrong result without a word; so such a sandbox is
        ended and its next task goes to a fresh one. That costs a start, and no retry.
        """
        if not await self._sandboxes.reload(request.handle):
            await self._runs.closings.close(request.handle)
            raise Unavailable(
                f"the volumes of `{request.sandbox}` cannot be reloaded: it has files of them open",
                reason=SANDBOX_CLOSED,
            )


_: type[Backend] = ModalProvider
__: type[LivePrices] = ModalProvider
___: type[Relaying] = ModalProvider
____: type[Serving] = ModalProvider
