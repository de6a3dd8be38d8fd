"""Volumes as PersistentVolumeClaims: made when first wanted, deleted only where we made them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    ClusterLink,
    KubernetesConnection,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import (
    cluster_call,
    is_conflict,
    is_not_found,
)
from fleetctl.providers.kubernetes.connection.namespaces import EARLIER, namespace_in
from fleetctl.providers.kubernetes.manifests.claims import build_claim, claim_name, is_ours
from fleetctl.providers.remote.assets import volumes_used
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.namespaces import own_name

PLURAL = "persistentvolumeclaims"
CALL_S = 30.0
REMOVE_S = 120.0  # a claim stays while a pod that uses it does
LOOK_S = 0.5


class KubernetesVolumes:
    """Volumes as claims. place: the directory of the provider's account."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._made: set[tuple[ClusterLink, str]] = set()

    async def mounts(self, link: ClusterLink, template: Template) -> dict[str, str]:
        """Ensures a claim for each volume; returns names of claims by name of volume."""
        for mount in template.volumes:
            await self.ensure(link, mount.name)
        return {mount.name: claim_in(link, mount.name) for mount in template.volumes}

    async def ensure(self, link: ClusterLink, volume: str) -> None:
        """Makes the claim; an existing claim of this name is used as it is, even a foreign one."""
        if (link, volume) in self._made:
            return
        await self._refuse_left_behind(link, volume)
        try:
            async with cluster_call(f"volume/{volume} cannot be made", deadline_s=CALL_S):
                await link.create(
                    PLURAL, build_claim(claim_in(link, volume), volume, link.settings.volumes)
                )
        except ApiError as error:
            if not is_conflict(error):
                raise Unavailable(
                    f"volume/{volume} cannot be made: {error}",
                    hint=f"kubectl create namespace {link.namespace}",
                ) from error
        self._made.add((link, volume))

    async def _refuse_left_behind(self, link: ClusterLink, volume: str) -> None:
        """Raises Refused for a Volume whose claim an earlier version made in the namespace of all
        work: work that resumes from a checkpoint must not begin with an empty claim.
        """
        own = link.tenants and link.namespace == namespace_in(volume) != EARLIER
        if not own or volume not in volumes_used.list_used(self._place):
            return
        earlier = replace(link, namespace=EARLIER)
        try:
            there = (
                await find_claim(earlier, volume)
                if await find_claim(link, volume) is None
                else None
            )
        except Unavailable as error:
            if not error.account:
                raise
            return  # without rights there no claim was ever made there
        if there is not None and is_ours(there):
            raise Refused(
                f"volume/{own_name(volume)} is claim `{claim_in(earlier, volume)}` of namespace"
                f" `{EARLIER}`, and its work is to run in `{link.namespace}`",
                hint=f"`namespaces: {{{link.namespace}: {EARLIER}}}` in the Provider object's"
                " `kubernetes` keeps it there; or copy it, and delete that claim",
            )

    async def remove(self, link: ClusterLink, volume: str) -> None:
        """Deletes the claim and waits until it is gone. Raises Refused for a foreign claim."""
        self.forget(volume)
        found = await find_claim(link, volume)
        if found is None:
            return
        name = claim_in(link, volume)
        if not is_ours(found):
            raise Refused(
                f"claim `{name}` in namespace `{link.namespace}` was not made for volume/{volume}",
                hint=f"kubectl delete pvc {name} -n {link.namespace}",
            )
        uid = str(found["metadata"]["uid"])
        async with cluster_call(f"volume/{volume} cannot be deleted", deadline_s=REMOVE_S):
            try:
                await link.delete(PLURAL, name, {"preconditions": {"uid": uid}})
            except ApiError as error:
                if not is_not_found(error):
                    raise
            while (left := await find_claim(link, volume)) is not None:
                if str(left["metadata"]["uid"]) != uid:
                    return
                await asyncio.sleep(LOOK_S)

    def forget(self, volume: str) -> None:
        self._made = {one for one in self._made if one[1] != volume}


async def link_of(connection: KubernetesConnection, volume: str) -> ClusterLink:
    """Returns the link to the namespace that its claim is in."""
    return await connection.link_for(namespace_in(volume))


def claim_in(link: ClusterLink, volume: str) -> str:
    """Returns the name of a Volume's claim: in the object's namespace the object's own name."""
    if link.tenants and link.namespace == namespace_in(volume):
        return claim_name(own_name(volume))
    return claim_name(volume)


async def find_claim(link: ClusterLink, volume: str) -> Object | None:
    name = claim_in(link, volume)
    try:
        async with cluster_call(f"volume/{volume} cannot be looked up", deadline_s=CALL_S):
            return await link.get(PLURAL, name)
    except ApiError as error:
        if is_not_found(error):
            return None
        raise
