"""Jobs in a namespace that carry a mark of ours, of any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import MERGE_PATCH
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.orphans import GONE_HINT, VOLUME, Orphan, Orphans, a_volume
from fleetctl.providers.kubernetes.assets.volumes import Volumes, find
from fleetctl.providers.kubernetes.connection.client import Connection, Link
from fleetctl.providers.kubernetes.connection.errors import asking, is_not_found
from fleetctl.providers.kubernetes.manifests.labels import MANAGED, marks, tags_of
from fleetctl.providers.kubernetes.runs import statuses
from fleetctl.providers.kubernetes.runs.cluster import Cluster, job_of
from fleetctl.providers.kubernetes.runs.ends import Ends
from fleetctl.providers.kubernetes.runs.handles import handle_of, parts
from fleetctl.providers.remote.assets import volumes_used
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.remote.sandboxes.names import of_tags

LIST_S = 60.0
_OURS = ",".join(f"{name}={text}" for name, text in MANAGED.items())


class KubernetesOrphans:
    """A connection of its own, made at the first call."""

    def __init__(self, home: Path, account: Account) -> None:
        self._place = account.directory(home)
        self._name = account.name
        self._connection = Connection(account=lambda: account)

    async def found(self) -> Sequence[Orphan]:
        link = await self._connection.link()
        what = f"the Jobs of namespace `{link.namespace}` cannot be listed"
        async with asking(what, deadline_s=LIST_S):
            listed = await link.list("jobs", {"labelSelector": _OURS})
            listed_pods = await link.list("pods", {"labelSelector": _OURS})
        pods = {job_of(pod): pod for pod in listed_pods if statuses.node_of(pod) == 0}
        orphans = (
            of_tags(self._name, handle_of(job, pods.get(statuses.name_of(job))), tags_of(job))
            for job in listed
            if not statuses.is_leaving(job)
        )
        known = [
            a_volume(self._name, volume)
            for volume in volumes_used.used(self._place)
            if await find(link, volume) is not None
        ]
        return [*(orphan for orphan in orphans if orphan is not None), *known]

    async def remove(self, orphan: Orphan) -> None:
        link = await self._connection.link()
        if orphan.kind == VOLUME:
            await Volumes().remove(link, orphan.handle)
            volumes_used.forget(self._place, orphan.handle)
            return
        cluster = Cluster(link, _OURS, changed=lambda _: None)
        try:
            await cluster.ready(deadline_s=LIST_S)
            await Ends().end(cluster, *parts(orphan.handle))
        finally:
            await cluster.close()

    async def claim(self, orphan: Orphan, store_id: str, uid: str) -> None:
        link = await self._connection.link()
        name = parts(orphan.handle)[0]
        try:
            async with asking(f"the marks of job `{name}` cannot be changed", deadline_s=LIST_S):
                await _claim(link, name, store_id, uid)
        except ApiError as error:
            if is_not_found(error):
                raise Refused(f"job `{name}` is gone by now", hint=GONE_HINT) from None
            raise

    async def close(self) -> None:
        await self._connection.close()


async def _claim(link: Link, name: str, store_id: str, uid: str) -> None:
    """The pods first: a Job that is ours has pods that are."""
    job = await link.get("jobs", name)
    pods = await link.list("pods", {"labelSelector": f"batch.kubernetes.io/job-name={name}"})
    for plural, found in (*(("pods", pod) for pod in pods), ("jobs", job)):
        labels, annotations = marks(names.claimed(tags_of(found), store_id, uid))
        body = {"metadata": {"labels": labels, "annotations": annotations}}
        path = link.path(plural, statuses.name_of(found))
        await link.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)


_: type[Orphans] = KubernetesOrphans
