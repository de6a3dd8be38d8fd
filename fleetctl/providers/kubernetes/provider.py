"""Provider `kubernetes`: the four verbs for runs, and the assets, in a cluster.

Built by wiring; called by the engine. It keeps no truth of its own: Jobs carry their names and
marks, and what runs said is mirrored below $FLEETCTL_HOME/kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Observation
from fleetctl.guest.nodes.names import whole_name
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.contract.base import (
    Backend,
    Foreseen,
    FunctionAsset,
    Notify,
    Owned,
    Relaying,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.kubernetes import foreseen
from fleetctl.providers.kubernetes.assets import sources
from fleetctl.providers.kubernetes.assets.volumes import Volumes
from fleetctl.providers.kubernetes.connection import settings
from fleetctl.providers.kubernetes.connection.client import SORT, Connection, Link
from fleetctl.providers.kubernetes.connection.errors import asking
from fleetctl.providers.kubernetes.gangs.nodes import Nodes
from fleetctl.providers.kubernetes.gangs.sandboxes import GangSandboxes
from fleetctl.providers.kubernetes.manifests import gangs
from fleetctl.providers.kubernetes.runs.creates import Creating, Parts
from fleetctl.providers.kubernetes.runs.handles import parsed
from fleetctl.providers.paths import provider_dir
from fleetctl.providers.remote.assets import volumes_used
from fleetctl.providers.remote.provider import REACH_S, RemoteProvider
from fleetctl.providers.remote.runs import scratch
from fleetctl.providers.remote.runs.follower import Pace
from fleetctl.providers.remote.runs.guest_order import Place, guest_order
from fleetctl.providers.remote.runs.lifetimes import work_s
from fleetctl.providers.sources.pinning import pinned
from fleetctl.specs.blocks.template import Template

# Before a pod is as old as it may be, so that the task can save what it has; of a short life a
# part.
LEAVE_S, LEAVE_PART = 300.0, 0.2

CONTRACT = Contract(
    visibility_bound_s=3.0,  # of what the watch tells; a look by name is never stale
    list_shows_finished=False,  # what has ended is deleted once its end is on our disk
    strong_get=True,
    name_scope="live",  # within a namespace, as long as the Job is there
    max_lifetime_s=None,
    usual_lifetime_s=settings.Settings().lifetime_s,
    billing_quantum_s=1.0,
    calls_per_s=100.0,
    calls_at_once=256,
    call_deadline_s=900.0,  # a source may travel
    default_parallelism=50,
    poll_s=30.0,
    # A name finds its Job at once, and only we delete it, after its end is on our disk. But its
    # time to live or a person may delete it too, and then its name is free again: so the pod's name
    # is known first, and the work begins in that pod alone.
    two_phase=True,
    secrets=True,  # names of Kubernetes Secrets of the namespace
    nodes_max=gangs.NODES_MAX,
    ray=True,
)


class KubernetesProvider(RemoteProvider):
    contract = CONTRACT

    def __init__(
        self,
        home: Path,
        *,
        store_id: str,
        notify: Notify,
        account: AccountNow = lambda: built_in(SORT),
        pace: Pace | None = None,
    ) -> None:
        super().__init__(home, store_id=store_id, notify=notify, account=account, pace=pace)
        self._connection = Connection(account=account)
        self._volumes = Volumes()

    async def start(self, request: RunRequest) -> str:
        return await self._start(request)

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        # Of a Job that is being made nothing is known, whatever a look-up by name would say.
        asked = [ref for ref in runs if not self._is_making(ref)]
        for ref in asked:
            await self._nodes.join(ref)
        refs = {ref.run: ref for ref in asked}
        return [self._nodes.seen(it, refs[it.run]) for it in await self._runs.observe(asked)]

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        await self._creating.makings.give_up(ref.run)
        await self._nodes.join(ref)
        await self._stop(ref, grace_s=grace_s)

    async def owned(self) -> list[Owned]:
        # Without a cluster, or with nothing to do there, the sweep must cost nothing. Who has been
        # there goes on looking: a create that was given up may have landed since.
        if not self._connection.is_open and not scratch.any_left(self._jobs):
            return []
        return await self._sandboxes.owned()

    async def ensure_volume(self, name: str) -> None:
        await self._volumes.ensure(await self._connection.link(), name)
        volumes_used.note(provider_dir(self._home, self._name), name)

    async def remove_volume(self, name: str) -> None:
        await self._volumes.remove(await self._connection.link(), name)
        volumes_used.forget(provider_dir(self._home, self._name), name)

    async def ensure_function(self, asset: FunctionAsset) -> None:
        raise Refused(
            f"function `{asset.order.name}` cannot be on provider `{self._name}`:"
            f" {foreseen.NO_FUNCTIONS}",
            hint=foreseen.FUNCTION_HINT,
        )

    async def remove_function(self, name: str) -> None:
        """Nothing is to be removed: no function was ever made."""

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        await self._remove_files(uid, keep_logs=keep_logs)

    def usd_per_s(self, template: Template) -> float | None:
        """Nobody knows: a cluster has no price but the one that its Provider object says, which is
        looked at before this.
        """
        del template
        return None

    async def foresee(self, template: Template, account: Account) -> Foreseen | None:
        return foreseen.first(template, account)

    def lacks(self, template: Template) -> str:
        found = foreseen.of_template(template, settings.of_account(self._account()))
        return "" if found is None else found.message

    async def reach(self) -> None:
        """Asks for what any token that may start Jobs may see."""
        link = await self._connection.link()
        async with asking(f"provider `{self._name}`", deadline_s=REACH_S):
            await link.api.request("GET", link.path("jobs"), query={"limit": 1}, tries=1)

    async def close(self) -> None:
        await super().close()
        if "_sandboxes" in self.__dict__:
            await self._sandboxes.close()
        await self._connection.close()

    # -- made when first needed, so that a wrong setting is told to who needs it -------------------

    @cached_property
    def _settings(self) -> settings.Settings:
        return settings.from_environment()

    @cached_property
    def _sandboxes(self) -> GangSandboxes:
        return GangSandboxes(self._connection, self._store_id, self._settings)

    @cached_property
    def _nodes(self) -> Nodes:
        return Nodes(self._sandboxes, self._runs, self._hand_in)

    @cached_property
    def _creating(self) -> Creating:
        return Creating(
            self._sandboxes,
            self._settings,
            parts=self._parts,
            finish=self._finish,
            store_id=self._store_id,
            notify=self._notify,
        )

    # -- helpers -----------------------------------------------------------------------------------

    async def _parts(self, link: Link, request: RunRequest) -> Parts:
        # What is cheap to refuse is refused before anything is made.
        found = foreseen.of_template(request.template, link.settings)
        if found is not None:
            raise Refused(found.message, hint=found.hint)
        await pinned(request.template, self._job(request.uid))
        return Parts(await self._volumes.mounts(link, request.template))

    async def _finish(self, link: Link, request: RunRequest, pod: str) -> None:
        source = request.template.source
        if source is not None:
            await sources.bring(link, pod, source, self._job(request.uid))

    async def _begin(self, request: RunRequest) -> None:
        """Raises TimeoutError when nothing is heard in time: the run may have begun."""
        template, source = request.template, request.template.source
        life_s = self._creating.life_s(await self._connection.link(), request)
        left_s = max(0.0, life_s - await self._sandboxes.age_s(request.handle))
        leave_s = min(LEAVE_S, LEAVE_PART * life_s)
        setup = []
        if source is not None:
            setup = sources.setup(source, await pinned(template, self._job(request.uid)))
        place = Place(
            handle=request.handle,
            setup=setup,
            source=None if source is None else sources.directory(source),
            left_s=work_s(
                left_s, leave_s=leave_s, grace_s=template.termination_grace_period_seconds
            ),
        )
        if parsed(request.handle).nodes == 1:
            await self._hand_in(request, place)
            return
        order, tokens = guest_order(request, place), self._job(request.uid)
        await self._nodes.begin(request, place, order, tokens=tokens)

    def _changed(self, run: str) -> None:
        super()._changed(whole_name(run))


_: type[Backend] = KubernetesProvider
__: type[Relaying] = KubernetesProvider
