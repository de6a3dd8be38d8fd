"""Volumes as PersistentVolumeClaims: made when first wanted, deleted only where we made them."""

from __future__ import annotations

import asyncio

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.connection.client import Link
from fleetctl.providers.kubernetes.connection.errors import asking, is_conflict, is_not_found
from fleetctl.providers.kubernetes.manifests.claims import claim, claim_name, is_ours
from fleetctl.specs.blocks.template import Template

PLURAL = "persistentvolumeclaims"
CALL_S = 30.0
REMOVE_S = 120.0  # a claim stays while a pod that uses it does
LOOK_S = 0.5


class Volumes:
    def __init__(self) -> None:
        self._made: set[tuple[Link, str]] = set()

    async def mounts(self, link: Link, template: Template) -> dict[str, str]:
        """Names of claims by name of volume, each of which is there."""
        for mount in template.volumes:
            await self.ensure(link, mount.name)
        return {mount.name: claim_name(mount.name) for mount in template.volumes}

    async def ensure(self, link: Link, volume: str) -> None:
        """One that is there already is used as it is, whoever made it."""
        if (link, volume) in self._made:
            return
        try:
            async with asking(f"volume/{volume} cannot be made", deadline_s=CALL_S):
                await link.create(PLURAL, claim(volume, link.settings.volumes))
        except ApiError as error:
            if not is_conflict(error):
                raise Unavailable(
                    f"volume/{volume} cannot be made: {error}",
                    hint=f"kubectl create namespace {link.namespace}",
                ) from error
        self._made.add((link, volume))

    async def remove(self, link: Link, volume: str) -> None:
        """Gone when this returns. Raises Refused for a claim that somebody else made."""
        self.forget(volume)
        found = await find(link, volume)
        if found is None:
            return
        name = claim_name(volume)
        if not is_ours(found):
            raise Refused(
                f"claim `{name}` in namespace `{link.namespace}` was not made for volume/{volume}",
                hint=f"kubectl delete pvc {name} -n {link.namespace}",
            )
        uid = str(found["metadata"]["uid"])
        async with asking(f"volume/{volume} cannot be deleted", deadline_s=REMOVE_S):
            try:
                await link.delete(PLURAL, name, {"preconditions": {"uid": uid}})
            except ApiError as error:
                if not is_not_found(error):
                    raise
            while (left := await find(link, volume)) is not None:
                if str(left["metadata"]["uid"]) != uid:
                    return
                await asyncio.sleep(LOOK_S)

    def forget(self, volume: str) -> None:
        self._made = {one for one in self._made if one[1] != volume}


async def find(link: Link, volume: str) -> Object | None:
    name = claim_name(volume)
    try:
        async with asking(f"volume/{volume} cannot be looked up", deadline_s=CALL_S):
            return await link.get(PLURAL, name)
    except ApiError as error:
        if is_not_found(error):
            return None
        raise
