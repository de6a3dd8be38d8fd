"""Jobs in a namespace that carry a mark of ours, of any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import MERGE_PATCH
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, VOLUME, Orphan, Orphans, a_volume
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    ClusterLink,
    KubernetesConnection,
    used_namespaces,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call, is_not_found
from fleetctl.providers.kubernetes.kubernetes_volumes import (
    KubernetesVolumes,
    find_claim,
    link_of,
)
from fleetctl.providers.kubernetes.manifests.labels import MANAGED, split_marks, tags_of
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.kubernetes.runs.job_informers import JobEnds, JobInformers, job_of
from fleetctl.providers.kubernetes.runs.pod_statuses import handle_of, parse_handle, split_handle
from fleetctl.providers.paths import serves_cluster
from fleetctl.providers.remote import volume_listing
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_names import of_tags

LIST_S = 60.0
_OURS = ",".join(f"{name}={text}" for name, text in MANAGED.items())


class KubernetesOrphans:
    """A connection of its own, made at the first call."""

    def __init__(self, home: Path, account: Account) -> None:
        self._place = account.directory(home)
        self._name = account.name
        self._connection = KubernetesConnection(
            account=lambda: account, tenants=serves_cluster(home)
        )

    async def find_all(self) -> Sequence[Orphan]:
        there = set(used_namespaces(self._place))
        if not there or not self._connection.tenants:
            there.add((await self._connection.link()).namespace)
        jobs = [it for namespace in sorted(there) for it in await self._jobs_in(namespace)]
        used_volumes = volume_listing.list_used(self._place)
        known = [
            a_volume(self._name, volume)
            for volume in used_volumes
            if await find_claim(await link_of(self._connection, volume), volume) is not None
        ]
        return [*jobs, *known]

    async def _jobs_in(self, namespace: str) -> list[Orphan]:
        link = await self._connection.link(namespace)
        what = f"the Jobs of namespace `{link.namespace}` cannot be listed"
        async with cluster_call(what, deadline_s=LIST_S):
            listed = await link.list("jobs", {"labelSelector": _OURS})
            listed_pods = await link.list("pods", {"labelSelector": _OURS})
        pods = {job_of(pod): pod for pod in listed_pods if pod_statuses.node_of(pod) == 0}
        orphans = (
            of_tags(self._name, handle_of(job, pods.get(pod_statuses.name_of(job))), tags_of(job))
            for job in listed
            if not pod_statuses.is_leaving(job)
        )
        return [orphan for orphan in orphans if orphan is not None]

    async def remove(self, orphan: Orphan) -> None:
        if orphan.kind == VOLUME:
            link = await link_of(self._connection, orphan.handle)
            await KubernetesVolumes(self._place).remove(link, orphan.handle)
            volume_listing.forget_used(self._place, orphan.handle)
            return
        link = await self._connection.link(parse_handle(orphan.handle).namespace)
        cluster = JobInformers(link, _OURS, changed=lambda _cluster, _job: None)
        try:
            await cluster.ready(deadline_s=LIST_S)
            await JobEnds().end(cluster, *split_handle(orphan.handle))
        finally:
            await cluster.close()

    async def claim(
        self,
        orphan: Orphan,
        store_id: str,
        uid: str,
    ) -> None:
        link = await self._connection.link(parse_handle(orphan.handle).namespace)
        name = split_handle(orphan.handle)[0]
        try:
            async with cluster_call(
                f"the marks of job `{name}` cannot be changed", deadline_s=LIST_S
            ):
                await _claim_job(link, name, store_id, uid)
        except ApiError as error:
            if is_not_found(error):
                raise Refused(f"job `{name}` is gone by now", hint=GONE_HINT) from None
            raise

    async def close(self) -> None:
        await self._connection.close()


async def _claim_job(
    link: ClusterLink,
    name: str,
    store_id: str,
    uid: str,
) -> None:
    """Labels a Job and its pods as ours. Pods first, so that a labelled Job has labelled pods."""
    job = await link.get("jobs", name)
    pods = await link.list("pods", {"labelSelector": f"batch.kubernetes.io/job-name={name}"})
    for plural, found in (*(("pods", pod) for pod in pods), ("jobs", job)):
        labels, annotations = split_marks(sandbox_names.claim_tags(tags_of(found), store_id, uid))
        body = {"metadata": {"labels": labels, "annotations": annotations}}
        path = link.path(plural, pod_statuses.name_of(found))
        await link.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)


_: type[Orphans] = KubernetesOrphans
