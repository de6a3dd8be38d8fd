"""Provider `modal`: the four verbs for runs, and the assets, on Modal.

Built by wiring; called by the engine. It keeps no truth of its own: sandboxes carry their names and
tags, and the runs' output is mirrored below $FLEETCTL_HOME/modal.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.controllers.model import Gone, Observation
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    SANDBOX_CLOSED,
    Backend,
    EndpointAccess,
    FunctionAsset,
    FunctionRequest,
    LivePrices,
    LogChunk,
    Owned,
    Relaying,
    RunRef,
    RunRequest,
    ServerAddress,
    Serving,
)
from fleetctl.providers.contract.sandbox_access import SessionRequest
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.modal import modal_check
from fleetctl.providers.modal.assets import modal_images
from fleetctl.providers.modal.assets.modal_images import ModalImages
from fleetctl.providers.modal.assets.modal_volumes import ModalVolumes, Secrets, list_names
from fleetctl.providers.modal.connection import modal_connection, modal_credentials, modal_rates
from fleetctl.providers.modal.connection.modal_connection import ModalConnection, WorkspaceMemory
from fleetctl.providers.modal.connection.modal_errors import retryable_call
from fleetctl.providers.modal.connection.modal_rates import Rates
from fleetctl.providers.modal.functions.deployments import FunctionDeployment, FunctionParts
from fleetctl.providers.modal.functions.function_runs import FunctionRuns
from fleetctl.providers.modal.runs import modal_driver, modal_machines
from fleetctl.providers.modal.runs.modal_creator import ModalCreator, ModalParts
from fleetctl.providers.modal.runs.modal_sandboxes import ModalSandboxes
from fleetctl.providers.paths import provider_dir
from fleetctl.providers.remote import remote_provider, volume_listing
from fleetctl.providers.remote.remote_provider import REACH_S, RemoteProvider
from fleetctl.providers.remote.runs import guest_order
from fleetctl.providers.remote.runs.guest_order import INPUTS_BYTES_MAX, SandboxContext, work_s
from fleetctl.providers.remote.runs.run_session import NAMED, AppHost, DriverHost, SessionDriver
from fleetctl.providers.sources.pinning import pin_commit
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.function import SCALEDOWN_S_MIN

# Before Modal ends a sandbox at its age, so that the task can save and its volumes are committed.
LEAVE_S = 300.0

CONTRACT = Contract(
    visibility_bound_s=5.0,  # a guess: no figure is published
    list_shows_finished=False,
    strong_get=True,
    max_lifetime_s=86_400.0,
    billing_quantum_s=1.0,
    calls_per_s=500.0,  # most are answered here; creates have a bucket of their own
    calls_at_once=256,
    call_deadline_s=900.0,  # starts in line for creates, and uploads
    default_parallelism=20,
    poll_s=30.0,
    two_phase=True,
    nodes_max=modal_machines.NODES_MAX,
    rdma=True,
    ray=True,
    secrets=True,
    functions=True,
    inputs_bytes_max=INPUTS_BYTES_MAX,
)


class ModalProvider(RemoteProvider):
    contract = CONTRACT
    sort = "modal"
    session_options = ("image", "app", "secrets", NAMED)

    def _open(self) -> None:
        own = provider_dir(self._home, self._name)
        self._connection = ModalConnection(
            self._store_id, account=self._account, memory=WorkspaceMemory(own)
        )
        self._images = ModalImages(own)
        self._volumes = ModalVolumes()
        self._secrets = Secrets()
        self._rates = Rates(self._account_rates)

    async def start(self, request: RunRequest) -> str:
        if request.session is not None:
            return await self._start(request)
        called = request.function is not None or modal_machines.cluster_size(request.template) > 1
        if called and request.endpoints is not None:
            no = modal_check.refuse_endpoint(request.endpoints.names[0])
            raise Refused(no.what, hint=no.fix)
        if not request.handle:
            # A failed connection has sent no request to Modal, so there is no object to look for.
            await self._connection.app()
        self._rates.refresh_soon()
        if request.function is None and modal_machines.cluster_size(request.template) > 1:
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
        # The state of a sandbox that is being made is not known, even where a look-up by name
        # answers.
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
        # Without an account, or without runs at Modal, the sweep must cost no call.
        if not self._jobs.exists():
            return []
        await self._functions.collect()
        # After a connection the sweep goes on: a create that was given up may have landed since.
        if self._connection.open_client is None and not remote_provider.any_left(self._jobs):
            return []
        return await self._sandboxes.owned()

    def relay(self, ref: RunRef, access: EndpointAccess) -> None:
        if not self._functions.has(ref):
            super().relay(ref, access)

    def logs(
        self,
        ref: RunRef,
        *,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogChunk]:
        if self._functions.has(ref):
            return self._functions.logs(ref, offset=offset, follow=follow)
        return super().logs(ref, offset=offset, follow=follow)

    async def ensure_volume(self, name: str) -> None:
        await self._volumes.ensure(await self._connection.client_to_make(), name)
        volume_listing.note_used(provider_dir(self._home, self._name), name)

    async def remove_volume(self, name: str) -> None:
        await self._volumes.remove(await self._connection.client(), name)
        volume_listing.forget_used(provider_dir(self._home, self._name), name)

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
        return self._rates.usd_per_s(template, clustered=modal_machines.cluster_size(template) > 1)

    @property
    def has_live_prices(self) -> bool:
        return self._rates.live

    async def ask_prices(self) -> None:
        if modal_credentials.may_be_there(self._account()):
            await self._rates.refresh()

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        return modal_check.find_obstacles(template, account)

    def lacks(self, template: Template) -> str:
        try:
            modal_machines.choose_machine(template.sandbox_resources)
            modal_machines.check_cluster(template)
        except Refused as error:
            return str(error)
        return ""

    async def reach(self) -> None:
        """Asks for what every token that may work here sees."""
        client = await self._connection.client()
        try:
            async with retryable_call(f"provider `{self._name}`", deadline_s=REACH_S):
                await modal_connection.ask_workspace(client)
        except Unavailable as error:
            if error.account:
                self._connection.mark_refused(client)
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

    # -- sessions of interpreters ------------------------------------------------------------------

    def use_app(self, name: str) -> None:
        self._connection = modal_driver.ProgramConnection(self._store_id, account=self._account)
        self._connection.app_name = name

    async def start_driver(
        self, request: RunRequest, hear_error: Callable[[str], None]
    ) -> SessionDriver:
        """Starts the driver of a session; see DriverHost."""
        client = await self._connection.client()
        late = await self._volumes.committed_late(client, request.template)
        return await modal_driver.start_driver(
            await self._sandboxes.living(request.handle),
            request,
            hear_error,
            lives_s=self._creating.life_s(request),
            late=late[0] if late else "",
        )

    async def rest(self) -> None:
        """Does no work: a connection costs more calls than a session."""

    # -- made when first needed, so that a wrong setting is reported to callers that need it -------

    @cached_property
    def _settings(self) -> modal_connection.ModalSettings:
        return modal_connection.from_environment()

    @cached_property
    def _sandboxes(self) -> ModalSandboxes:
        return ModalSandboxes(self._connection, self._store_id, self._settings)

    @cached_property
    def _drivers(self) -> modal_driver.DriverImages:
        return modal_driver.DriverImages(provider_dir(self._home, self._name))

    @cached_property
    def _creating(self) -> ModalCreator:
        return ModalCreator(
            self._sandboxes,
            self._parts,
            self._settings,
            stale=lambda order: self._forget_parts(order.template),
            store_id=self._store_id,
            notify=self._notify,
        )

    @cached_property
    def _functions(self) -> FunctionRuns:
        return FunctionRuns(
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

    async def _parts(self, request: RunRequest) -> ModalParts:
        template = request.template
        if request.session is not None:
            return await self._session_parts(request, request.session)
        # Cheap refusals come before an image is built.
        modal_machines.choose_machine(template.sandbox_resources)
        await pin_commit(template, self._job(request.uid))
        client, app = await self._connection.client(), await self._connection.app()
        if (asked := guest_order.wanted_checkpoint(request)) is not None:
            found = await list_names(client, asked.volume, asked.path)
            guest_order.refuse_what_is_missing(asked, found)
        return ModalParts(
            app=app,
            client=client,
            image=await self._images.ready(client, app, template, self._job(request.uid)),
            volumes=dict((await self._volumes.mounts(client, template)).items()),
            secrets=await self._secrets.named(client, request.secret_refs),
        )

    async def _session_parts(self, request: RunRequest, session: SessionRequest) -> ModalParts:
        client = await self._connection.client()
        import modal

        app, base = session.native.get("app"), session.native.get("image")
        if not isinstance(app, modal.App):
            app = await self._connection.app()
        if isinstance(base, modal.Image):
            base = await modal_driver.build_given_image(base, app)
        else:
            template = modal_driver.session_template(request)
            base = await self._images.ready(client, app, template, self._job(request.uid))
        own = session.native.get("secrets")
        given = [it for it in own if isinstance(it, modal.Secret)] if isinstance(own, tuple) else []
        return ModalParts(
            app=app,
            client=client,
            image=await self._drivers.ready(client, app, base, session),
            volumes=dict((await self._volumes.mounts(client, request.template)).items()),
            secrets=[*await self._secrets.named(client, session.secrets), *given],
        )

    async def _function_parts(self, wanted: FunctionDeployment) -> FunctionParts:
        client, app = await self._connection.client(), await self._connection.app()
        return FunctionParts(
            image=await self._images.ready(client, app, wanted.template, wanted.job),
            volumes=dict((await self._volumes.mounts(client, wanted.template)).items()),
            secrets=await self._secrets.named(client, wanted.secret_refs),
        )

    async def _account_rates(self) -> Mapping[str, Decimal]:
        return await modal_rates.of_account(await self._connection.client())

    def _forget_parts(self, template: Template) -> None:
        """Makes the next start look again, after a volume, an image or our app was deleted."""
        self._connection.forget_app()
        if (client := self._connection.open_client) is not None:
            self._images.forget_images(client)
            for mount in template.volumes:
                self._volumes.forget(client, mount.name)

    async def _begin(self, request: RunRequest) -> None:
        """Begins the run. Raises TimeoutError without an answer in time: the run may have begun."""
        further = request.sandbox != request.run
        if (
            further
            and request.template.volumes
            and not self._runs.was_tried(request.uid, request.run)
        ):
            await self._reload(request)
        note = await self._note_of_volumes(request)
        # A task's writes are committed when its end is reported: here only its sandbox's end does
        # that.
        request = replace(request, reusable=request.reusable and not note)
        commit = await pin_commit(request.template, self._job(request.uid))
        setup, directory = modal_images.setup_commands(request.template, commit)
        age_s = await self._sandboxes.age_s(request.handle)
        grace_s = request.template.termination_grace_period_seconds
        place = SandboxContext(
            handle=request.handle,
            setup=setup,
            source=directory,
            syncs=True,
            left_s=work_s(self._settings.lifetime_s - age_s, leave_s=LEAVE_S, grace_s=grace_s),
            note=note,
        )
        await self._hand_in(request, place)

    async def _note_of_volumes(self, request: RunRequest) -> str:
        """Returns a note for users about the volumes that they brought; "" without anything
        special.
        """
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
        """Reloads the volumes of an open sandbox, so that its next task sees the commits of others.

        Modal refuses that while a file of the volumes is open there, such as one that an earlier
        task left open in its worker. Old data would make a wrong result silently; so such a sandbox
        is ended and its next task goes to a fresh one. That costs a start, and no retry.
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
_____: type[DriverHost] = ModalProvider
______: type[AppHost] = ModalProvider
