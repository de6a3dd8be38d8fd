"""Provider `kubernetes`: the four verbs for runs, and the assets, in a cluster.

Built by wiring; called by the engine. It keeps no truth of its own: Jobs carry their names and
marks, and the runs' output is mirrored below $FLEETCTL_HOME/kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Finding
from fleetctl.controllers.model import Observation
from fleetctl.guest.nodes.gang import strip_node
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    Owned,
    Relaying,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.kubernetes import kubernetes_check, kubernetes_source
from fleetctl.providers.kubernetes.connection import kubernetes_connection
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    SORT,
    ClusterLink,
    KubernetesConnection,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import ACCESS_DENIED, cluster_call
from fleetctl.providers.kubernetes.kubernetes_volumes import KubernetesVolumes, link_of
from fleetctl.providers.kubernetes.manifests import gang_manifests
from fleetctl.providers.kubernetes.runs.gang_sandboxes import GangSandboxes
from fleetctl.providers.kubernetes.runs.job_creator import JobCreator, JobParts
from fleetctl.providers.kubernetes.runs.pod_statuses import parse_handle
from fleetctl.providers.paths import provider_dir, serves_cluster
from fleetctl.providers.remote import remote_provider, volume_listing
from fleetctl.providers.remote.gangs.gang_nodes import GangNodes, Meeting, NodeWork
from fleetctl.providers.remote.remote_provider import REACH_S, RemoteProvider
from fleetctl.providers.remote.runs.guest_order import (
    INPUTS_BYTES_MAX,
    SandboxContext,
    guest_order,
    work_s,
)
from fleetctl.providers.sources.pinning import pin_commit
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.namespaces import split_key

# Seconds before a pod's age limit at which its task is asked to end, so that it can save its state;
# for short limits a part of the limit.
LEAVE_S = 300.0
LEAVE_PART = 0.2

# Reasons to wait that concern one namespace alone, if each namespace has an owner.
OF_NAMESPACE = frozenset((ACCESS_DENIED, "Quota", "NoNamespace"))

CONTRACT = Contract(
    visibility_bound_s=3.0,  # of events of the watches; a look by name is never stale
    list_shows_finished=False,  # an ended Job is deleted once its end is on our disk
    strong_get=True,
    max_lifetime_s=None,
    usual_lifetime_s=kubernetes_connection.KubernetesSettings().lifetime_s,
    billing_quantum_s=1.0,
    calls_per_s=100.0,
    calls_at_once=256,
    call_deadline_s=900.0,  # a source may travel
    default_parallelism=50,
    poll_s=30.0,
    # A name finds its Job at once, and only we delete it, after its end is on our disk. But its
    # time to live or a user may delete it too, and then its name is free again: so the pod's name
    # is known first, and the work begins in that pod alone.
    two_phase=True,
    secrets=True,  # names of Kubernetes Secrets of the namespace
    guards_secrets=True,
    keeps_index_login=True,
    nodes_max=gang_manifests.NODES_MAX,
    groups=True,
    ray=True,
    inputs_bytes_max=INPUTS_BYTES_MAX,
)


class KubernetesProvider(RemoteProvider):
    contract = CONTRACT
    sort = SORT
    no_functions = kubernetes_check.NO_FUNCTIONS
    function_hint = kubernetes_check.FUNCTION_HINT

    def _open(self) -> None:
        self._place = provider_dir(self._home, self._name)
        self._connection = KubernetesConnection(
            account=self._account, tenants=serves_cluster(self._home)
        )
        self._volumes = KubernetesVolumes(self._place)

    async def start(self, request: RunRequest) -> str:
        try:
            return await self._start(request)
        except Unavailable as error:
            if self._connection.tenants and error.reason in OF_NAMESPACE:
                # Another team's rights and quota are another's: it must not wait for these.
                error.account = False
                if error.reason == ACCESS_DENIED:
                    error.hint = await self._rights_hint(request)
            raise

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        # The state of a Job that is being made is not known, even where a look-up by name answers.
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
        # Without a cluster, or without runs there, the sweep must cost no call. After a connection
        # the sweep goes on: a create that was given up may have landed since.
        if not self._connection.is_open and not remote_provider.any_left(self._jobs):
            return []
        return await self._sandboxes.owned()

    async def ensure_volume(self, name: str) -> None:
        await self._volumes.ensure(await link_of(self._connection, name), name)
        volume_listing.note_used(self._place, name)

    async def remove_volume(self, name: str) -> None:
        await self._volumes.remove(await link_of(self._connection, name), name)
        volume_listing.forget_used(self._place, name)

    def usd_per_s(self, template: Template) -> float | None:
        """Returns None: a cluster has no price but that of its Provider object, which is read
        before this.
        """
        del template
        return None

    def _obstacles(self, template: Template, account: Account) -> Iterator[Finding]:
        return kubernetes_check.find_obstacles(template, account)

    def lacks(self, template: Template) -> str:
        settings = kubernetes_connection.of_account(self._account())
        return next((it.what for it in kubernetes_check.of_template(template, settings)), "")

    async def reach(self) -> None:
        """Asks for what any token that may start Jobs may see. Where each namespace has rights of
        its own, that is no namespace's.
        """
        link = await self._connection.link()
        tenants = self._connection.tenants
        path, query = ("/version", {}) if tenants else (link.path("jobs"), {"limit": 1})
        async with cluster_call(f"provider `{self._name}`", deadline_s=REACH_S):
            await link.api.request("GET", path, query=query, tries=1)

    async def close(self) -> None:
        await super().close()
        if "_sandboxes" in self.__dict__:
            await self._sandboxes.close()
        await self._connection.close()

    # -- made when first needed, so that a wrong setting is reported to callers that need it -------

    @cached_property
    def _settings(self) -> kubernetes_connection.KubernetesSettings:
        return kubernetes_connection.from_environment()

    @cached_property
    def _sandboxes(self) -> GangSandboxes:
        return GangSandboxes(self._connection, self._store_id, self._settings, self._place)

    @cached_property
    def _nodes(self) -> GangNodes:
        return GangNodes(self._sandboxes, self._runs, self._hand_in)

    @cached_property
    def _creating(self) -> JobCreator:
        return JobCreator(
            self._sandboxes,
            self._settings,
            parts=self._parts,
            finish=self._finish,
            store_id=self._store_id,
            notify=self._notify,
        )

    # -- helpers -----------------------------------------------------------------------------------

    async def _rights_hint(self, request: RunRequest) -> str:
        link = await self._connection.link_for(split_key(request.resource)[2])
        return (
            f"kubectl create rolebinding fleetctl-runs -n {link.namespace}"
            " --clusterrole=fleetctl-runs --serviceaccount=fleetctl:fleetctl-operator"
        )

    async def _parts(self, link: ClusterLink, request: RunRequest) -> JobParts:
        # Cheap refusals come before any object is made.
        for found in kubernetes_check.of_template(request.template, link.settings):
            raise Refused(found.what, hint=found.fix)
        await pin_commit(request.template, self._job(request.uid))
        return JobParts(await self._volumes.mounts(link, request.template))

    async def _finish(
        self,
        link: ClusterLink,
        request: RunRequest,
        pod: str,
    ) -> None:
        source = request.template.source
        if source is not None:
            await kubernetes_source.bring_source(link, pod, source, self._job(request.uid))

    async def _begin(self, request: RunRequest) -> None:
        """Begins the run. Raises TimeoutError without an answer in time: the run may have begun."""
        template, source = request.template, request.template.source
        link = await self._connection.link(parse_handle(request.handle).namespace)
        life_s = self._creating.life_s(link, request)
        left_s = max(0.0, life_s - await self._sandboxes.age_s(request.handle))
        leave_s = min(LEAVE_S, LEAVE_PART * life_s)
        setup = []
        if source is not None:
            setup = kubernetes_source.setup_commands(
                source, await pin_commit(template, self._job(request.uid))
            )
        place = SandboxContext(
            handle=request.handle,
            setup=setup,
            source=None if source is None else kubernetes_source.source_directory(source),
            left_s=work_s(
                left_s, leave_s=leave_s, grace_s=template.termination_grace_period_seconds
            ),
        )
        request = await self._sandboxes.acquaint(request)
        if parse_handle(request.handle).nodes == 1:
            await self._hand_in(request, place)
            return
        work = NodeWork(place, guest_order(request, place))

        async def meet(token: str) -> Meeting:
            del token
            return await self._sandboxes.meeting(request.handle)

        async def work_of(rank: int) -> NodeWork:
            del rank
            return work

        await self._nodes.begin(request, work_of, meet, tokens=self._job(request.uid))

    def _changed(self, run: str) -> None:
        super()._changed(strip_node(run))


_: type[Backend] = KubernetesProvider
__: type[Relaying] = KubernetesProvider
