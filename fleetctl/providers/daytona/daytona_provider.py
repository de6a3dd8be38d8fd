"""Provider `daytona`: the four verbs for runs, and the assets, on Daytona.

Built by wiring; called by the engine. It keeps no truth of its own: sandboxes carry their names and
labels, and the runs' output is mirrored below $FLEETCTL_HOME/daytona.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache

from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.finding import Finding
from fleetctl.guest.ship.assemble import posix_source, remote_source
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    Owned,
    Relaying,
    RunRequest,
)
from fleetctl.providers.contract.orphans import INTERPRETERS
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.daytona import daytona_check
from fleetctl.providers.daytona.assets import daytona_source
from fleetctl.providers.daytona.assets.daytona_images import DaytonaImages
from fleetctl.providers.daytona.assets.daytona_volumes import DaytonaVolumes
from fleetctl.providers.daytona.connection import daytona_connection, sdk
from fleetctl.providers.daytona.connection.daytona_connection import DaytonaConnection
from fleetctl.providers.daytona.connection.daytona_errors import retryable_call
from fleetctl.providers.daytona.runs import daytona_driver, daytona_endings, daytona_machines
from fleetctl.providers.daytona.runs.daytona_creator import DaytonaCreator, DaytonaParts
from fleetctl.providers.daytona.runs.daytona_sandboxes import DaytonaSandboxes
from fleetctl.providers.daytona.runs.daytona_streams import Guest
from fleetctl.providers.paths import provider_dir
from fleetctl.providers.prices import price_table as prices
from fleetctl.providers.remote import remote_provider, volume_listing
from fleetctl.providers.remote.remote_provider import REACH_S, RemoteProvider
from fleetctl.providers.remote.runs.guest_order import INPUTS_BYTES_MAX, SandboxContext, work_s
from fleetctl.providers.remote.runs.run_session import NAMED, DriverHost, SessionDriver
from fleetctl.providers.sources.pinning import current_commit, pin_commit
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.template import Template

SORT = "daytona"
# Time before Daytona ends a sandbox at its age, so that the task can save its work; for a short
# life a part of the life.
LEAVE_S = 300.0
LEAVE_PART = 0.2
UPLOAD_S = 60.0  # of the guest

CONTRACT = Contract(
    visibility_bound_s=10.0,  # of lists: the vendor's own tests wait 5 s for their index
    list_shows_finished=False,
    strong_get=True,
    max_lifetime_s=None,  # no limit but the TTL that we ask for
    usual_lifetime_s=daytona_connection.DaytonaSettings().lifetime_s,
    billing_quantum_s=1.0,  # priced by the second
    calls_per_s=150.0,  # 10,000 a minute in the smallest tier
    calls_at_once=256,
    call_deadline_s=900.0,  # starts in line for creates, and uploads
    default_parallelism=10,  # 10 cores in the smallest tier
    poll_s=30.0,
    # A name finds its sandbox at once, and only we delete it, after its end is on our disk. But a
    # TTL, an eviction or a user may destroy it too, and then its name is free again: a caller that
    # lost the answer of a start would find no sandbox and begin the work twice. So its id comes
    # first.
    two_phase=True,
    ray=True,
    inputs_bytes_max=INPUTS_BYTES_MAX,
)


class DaytonaProvider(RemoteProvider):
    contract = CONTRACT
    sort = "daytona"
    no_functions = "Daytona has no functions"
    session_options = ("sandbox_spec", NAMED)

    def _open(self) -> None:
        self._connection = DaytonaConnection(account=self._account)
        self._images = DaytonaImages(
            provider_dir(self._home, self._name), store=self._store_id, account=self._name
        )
        self._volumes = DaytonaVolumes()

    async def owned(self) -> Sequence[Owned]:
        # Without an account, or without runs at Daytona, the sweep must cost no call. After a
        # connection the sweep goes on: a create that was given up may have landed since.
        if not self._connection.is_open and not remote_provider.any_left(self._jobs):
            return []
        found = await self._sandboxes.owned()
        await self._images.collect(await self._connection.client())
        return found

    async def ensure_volume(self, name: str) -> None:
        await self._volumes.ensure(await self._connection.client(), name)
        volume_listing.note_used(provider_dir(self._home, self._name), name)

    async def remove_volume(self, name: str) -> None:
        await self._volumes.remove(await self._connection.client(), name)
        volume_listing.forget_used(provider_dir(self._home, self._name), name)

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        self._images.forget(self._job(uid))
        await self._remove_files(uid, keep_logs=keep_logs)

    def usd_per_s(self, template: Template) -> float | None:
        return _usd_per_s(template.sandbox_resources)

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        return daytona_check.find_obstacles(template, account)

    def lacks(self, template: Template) -> str:
        if template.is_function:
            return "Daytona has no functions"
        try:
            daytona_machines.choose_machine(template.sandbox_resources)
        except Refused as error:
            return str(error)
        return ""

    async def reach(self) -> None:
        """Asks for what any key that may start sandboxes may see."""
        client = await self._connection.client()
        async with retryable_call(f"provider `{self._name}`", deadline_s=REACH_S):
            await client.snapshot.list(limit=1)

    async def close(self) -> None:
        await super().close()
        await self._images.close()
        await self._connection.close()

    # -- sessions of interpreters ------------------------------------------------------------------

    async def start_driver(
        self, request: RunRequest, hear_error: Callable[[str], None]
    ) -> SessionDriver:
        """Starts the driver of a session; see DriverHost."""
        workspace = await self._workspace(request, request.handle)
        return await daytona_driver.start_driver(self._sandboxes, request, workspace, hear_error)

    async def rest(self) -> None:
        await self._connection.close()

    async def end_run(self, uid: str, run: str, *, within_s: float, handle: str = "") -> bool:
        if daytona_endings.process_exits():
            await self._creating.makings.give_up(run)
            client = await self._connection.client()
            return daytona_endings.end_while_exiting(client, self._sandboxes.name_of(run))
        return await super().end_run(uid, run, within_s=within_s, handle=handle)

    async def discard_run(self, uid: str, run: str, *, late_s: float) -> None:
        await self._creating.makings.give_up(run)
        with suppress(FleetctlError):  # without a connection there is no sandbox
            client = await self._connection.client()
            name = self._sandboxes.name_of(run)
            await daytona_endings.discard_sandbox(client, name, late_s=late_s)

    # -- made when first needed, so that a wrong setting is reported to callers that need it -------

    @cached_property
    def _settings(self) -> daytona_connection.DaytonaSettings:
        return daytona_connection.from_environment()

    @cached_property
    def _sandboxes(self) -> DaytonaSandboxes:
        return DaytonaSandboxes(self._connection, self._store_id, self._settings)

    @cached_property
    def _creating(self) -> DaytonaCreator:
        return DaytonaCreator(
            self._sandboxes,
            self._settings,
            parts=self._parts,
            finish=self._finish,
            stale=self._forget_parts,
            store_id=self._store_id,
            notify=self._notify,
        )

    # -- helpers -----------------------------------------------------------------------------------

    async def _parts(self, request: RunRequest) -> DaytonaParts:
        template = request.template
        if request.session is not None:
            return await self._session_parts(template)
        # Cheap refusals come before an image is built.
        daytona_machines.choose_machine(template.sandbox_resources)
        if request.secret_refs:
            raise Refused(
                f"secret `{request.secret_refs[0]}` has `fromProvider`, and Daytona puts the"
                " values of its secrets into outgoing requests alone",
                hint="use fromEnv or fromFile in the Secret",
            )
        await pin_commit(template, self._job(request.uid))
        client = await self._connection.client()
        return DaytonaParts(
            client=client,
            snapshot=await self._images.ready(client, template, self._job(request.uid)),
            volumes=await self._volumes.mounts(client, template),
        )

    async def _session_parts(self, template: Template) -> DaytonaParts:
        client = await self._connection.client()
        snapshot = ""
        if template.image is not None:
            snapshot = await self._images.ready(client, template, self._job(INTERPRETERS))
        for mount in template.volumes:
            self._volumes.forget(mount.name)  # sessions are few, and somebody may have deleted it
        return DaytonaParts(client, snapshot, await self._volumes.mounts(client, template))

    def _forget_parts(self, request: RunRequest) -> None:
        for mount in request.template.volumes:
            self._volumes.forget(mount.name)
        image = request.template.image
        named = image.snapshot if image is not None else None
        self._images.forget(self._job(request.uid), named or "")

    async def _finish(self, request: RunRequest, sandbox: sdk.AsyncSandbox) -> None:
        """Puts the files that its image lacks into a fresh sandbox."""
        handle = self._sandboxes.keep(sandbox)
        guest = Guest.of_template(request.template)
        if request.session is not None:
            workspace = await self._workspace(request, handle)
            await daytona_driver.bring_driver(sandbox, request.session, workspace)
        elif guest.uploaded:
            text = posix_source() if guest.posix else remote_source()
            what = "the guest cannot be uploaded"
            toolbox = self._sandboxes.throttles.toolbox
            async with retryable_call(what, deadline_s=UPLOAD_S, throttle=toolbox):
                await sandbox.fs.upload_file(text.encode(), guest.path)
        source = request.template.source
        if source is not None:
            await daytona_source.bring_source(
                sandbox,
                source,
                daytona_source.source_directory(source, await self._sandboxes.work_dir(handle)),
                commit=await self._commit(request),
                secrets=request.secrets,
                job=self._job(request.uid),
            )

    async def _commit(self, request: RunRequest) -> str | None:
        """Returns the commit to clone: of runs the one that all of their object get."""
        if request.session is None or request.session.repository is None:
            return await pin_commit(request.template, self._job(request.uid))
        return await current_commit(request.session.repository)

    async def _workspace(self, request: RunRequest, handle: str) -> str:
        """Returns the directory that a session's code works in; "" where it has none."""
        if request.session is None or not request.session.workspace:
            return ""
        work_dir = await self._sandboxes.work_dir(handle)
        if request.template.source is None:
            return f"{work_dir}/{daytona_driver.EMPTY_WORKSPACE}"
        return daytona_source.source_directory(request.template.source, work_dir)

    async def _begin(self, request: RunRequest) -> None:
        """Begins the run. Raises TimeoutError without an answer in time: the run may have begun."""
        source = request.template.source
        directory = None
        if source is not None:
            directory = daytona_source.source_directory(
                source, await self._sandboxes.work_dir(request.handle)
            )
        left_s = await self._sandboxes.left_s(request.handle)
        leave_s = min(LEAVE_S, LEAVE_PART * left_s)
        grace_s = request.template.termination_grace_period_seconds
        place = SandboxContext(
            handle=request.handle,
            setup=()
            if source is None or directory is None
            else daytona_source.setup_commands(source, directory),
            source=directory,
            left_s=work_s(left_s, leave_s=leave_s, grace_s=grace_s),
            note=daytona_machines.choose_machine(request.template.sandbox_resources).note,
        )
        await self._hand_in(request, place)


@lru_cache(maxsize=256)
def _usd_per_s(resources: Resources) -> float | None:
    """Remembered, as it is asked several times for each run."""
    return prices.load_prices(SORT).usd_per_s(daytona_machines.billed_resources(resources))


_: type[Backend] = DaytonaProvider
__: type[Relaying] = DaytonaProvider
___: type[DriverHost] = DaytonaProvider
