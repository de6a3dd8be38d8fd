"""Volumes as PersistentVolumeClaims: made when first wanted, deleted only where we made them; their
files are read and written for `cp`, `ls` and `rm`.

A claim is shown to pods alone, so each verb has a small pod of its own and deletes it. A pod that
a killed command leaves ends by itself.
"""

from __future__ import annotations

import asyncio
import shlex
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from secrets import token_hex
from tempfile import TemporaryFile
from typing import IO

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.volume_files import (
    FileCopy,
    VolumeFiles,
    clean_path,
    no_volume,
)
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    EARLIER,
    ClusterLink,
    KubernetesConnection,
    namespace_in,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import (
    cluster_call,
    is_conflict,
    is_not_found,
)
from fleetctl.providers.kubernetes.connection.pod_channel import STDOUT, run
from fleetctl.providers.kubernetes.manifests import pod_parts
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.kubernetes.manifests.labels import MANAGED, build_claim, claim_name, is_ours
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.paths import serves_cluster
from fleetctl.providers.remote import volume_listing
from fleetctl.providers.remote.recipes import DEFAULT_PYTHON
from fleetctl.providers.remote.volume_listing import (
    MOUNT,
    TRANSFER_S,
    HelperFiles,
    check_exit,
    look_command,
)
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.namespaces import own_name

PLURAL = "persistentvolumeclaims"
CALL_S = 30.0
REMOVE_S = 120.0  # a claim stays while a pod that uses it does
LOOK_S = 0.5

START_S = 180.0
LIFE_S = 3 * 3600  # the helper ends then, whatever becomes of us
READ_BYTES = 512 * 1024


class KubernetesVolumes:
    """Volumes as claims. place: path of the directory of the provider's account."""

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
        if not own or volume not in volume_listing.list_used(self._place):
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


class KubernetesFiles(HelperFiles):
    """Keeps no state between two verbs."""

    batch_files_max = 200

    def __init__(self, home: Path, account: Account, *, store_id: str = "") -> None:
        del store_id
        self._account, self._tenants = account, serves_cluster(home)

    @asynccontextmanager
    async def _helper(self, volume: str) -> AsyncIterator[HelperPod]:
        connection = KubernetesConnection(account=lambda: self._account, tenants=self._tenants)
        try:
            link = await link_of(connection, volume)
            if await find_claim(link, volume) is None:
                raise no_volume(f"namespace `{link.namespace}`", volume)
            helper = HelperPod(link, volume)
            try:
                await helper.start()
                yield helper
            finally:
                await asyncio.shield(helper.end())
        finally:
            await connection.close()


class HelperPod:
    def __init__(self, link: ClusterLink, volume: str) -> None:
        self._link = link
        self._volume = volume
        self._name = f"fleetctl-files-{token_hex(6)}"

    async def start(self) -> None:
        """Makes the pod through which files are copied, and waits until it is ready. Raises
        Unavailable with the reason why it waits.
        """
        what = f"no pod for the files of volume/{self._volume}"
        loop = asyncio.get_running_loop()
        until_s = loop.time() + START_S
        try:
            await self._make(what)
            while not pod_statuses.is_ready(pod := await self._pod(what)):
                if pod_statuses.is_over(pod):
                    raise Unavailable(f"{what}: {pod_statuses.fate_of(pod, ours=False).detail}")
                wait = pod_statuses.wait_of({}, pod)
                if loop.time() >= until_s or wait.reason in pod_statuses.NEVER:
                    raise Unavailable(f"{what}: {wait.message}", hint=wait.hint)
                await asyncio.sleep(LOOK_S)
        except ApiError as error:
            raise Unavailable(f"{what}: {error}") from error

    async def _make(self, what: str) -> None:
        """Makes the pod as root, who may touch all files; where Pod Security forbids root, as user
        nobody.
        """
        for nobody in (False, True):
            body = _helper_pod(self._name, self._volume, self._link, nobody=nobody)
            try:
                async with cluster_call(what, deadline_s=CALL_S):
                    await self._link.create("pods", body)
                return
            except Unavailable as error:
                if nobody or "violates PodSecurity" not in str(error):
                    raise

    async def _pod(self, what: str) -> Object:
        async with cluster_call(what, deadline_s=CALL_S):
            return await self._link.get("pods", self._name)

    async def end(self) -> None:
        async with cluster_call("a pod for files cannot be ended", deadline_s=TRANSFER_S):
            try:
                await self._link.delete("pods", self._name, {"gracePeriodSeconds": 1})
            except ApiError as error:
                if not is_not_found(error):
                    raise

    async def run(self, command: str, *, path: str = "", deadline_s: float = TRANSFER_S) -> str:
        output = await self._exec(command, path=path, deadline_s=deadline_s)
        return output.decode("utf-8", "surrogateescape")

    async def upload(self, batch: Sequence[FileCopy]) -> None:
        with TemporaryFile() as archive:
            await asyncio.to_thread(_pack_files, archive, batch)
            size = archive.tell()
            archive.seek(0)
            await self._exec(f"cd {MOUNT} && head -c {size} | tar -xf -", given=archive)

    async def download(self, one: FileCopy, target: Path) -> None:
        quoted = shlex.quote(f"./{clean_path(one.remote)}")
        with target.open("wb") as file:
            command = look_command(MOUNT, quoted) + f"cat {quoted}"
            await self._exec(command, path=one.remote, taken=file)

    async def _exec(
        self,
        command: str,
        *,
        path: str = "",
        deadline_s: float = TRANSFER_S,
        given: IO[bytes] | None = None,
        taken: IO[bytes] | None = None,
    ) -> bytes:
        """Returns the command's output, unless a file takes it. given: its input. taken: the file
        that takes its output.
        """
        what = f"volume/{self._volume} cannot be reached"
        out = bytearray()
        err = bytearray()
        async with cluster_call(what, deadline_s=deadline_s):
            try:
                channel = await run(
                    self._link,
                    self._name,
                    ["sh", "-c", command],
                    container=MAIN,
                    stdin=given is not None,
                )
                try:
                    while given is not None and (piece := given.read(READ_BYTES)):
                        await channel.send(piece)
                    async for stream, data in channel.frames():
                        if stream != STDOUT:
                            err += data
                        elif taken is not None:
                            taken.write(data)
                        else:
                            out += data
                finally:
                    await channel.close()
            except (ApiError, ConnectionError) as error:
                raise Unavailable(f"{what}: {error}") from error
        if channel.exit_code is None:
            raise Unavailable(f"{what}: {channel.failure or 'the line broke'}")
        words = err.decode("utf-8", "replace")
        check_exit(channel.exit_code, words, volume=self._volume, path=path)
        return bytes(out)


def _pack_files(archive: IO[bytes], batch: Sequence[FileCopy]) -> None:
    with tarfile.open(
        fileobj=archive,
        mode="w",
        format=tarfile.GNU_FORMAT,
    ) as tar:
        for one in batch:
            tar.add(one.local, arcname=str(PurePosixPath(clean_path(one.remote))), recursive=False)


def _helper_pod(
    name: str,
    volume: str,
    link: ClusterLink,
    *,
    nobody: bool,
) -> Object:
    image = link.settings.python_image.replace("{python}", DEFAULT_PYTHON)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(MANAGED)},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE_S,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            **({"securityContext": pod_parts.pod_context(nobody=True)} if nobody else {}),
            "imagePullSecrets": [{"name": one} for one in link.settings.image_pull_secrets],
            "tolerations": [
                taint.model_dump(exclude_none=True, by_alias=True)
                for taint in link.settings.tolerations
            ],
            "nodeSelector": dict(link.settings.node_selector),
            "containers": [
                {
                    "name": MAIN,
                    "image": image.replace("{slim}", "-slim"),
                    "command": ["sleep", str(LIFE_S)],
                    **({"securityContext": pod_parts.CONTAINER} if nobody else {}),
                    "volumeMounts": [{"name": "volume", "mountPath": MOUNT}],
                }
            ],
            "volumes": [
                {
                    "name": "volume",
                    "persistentVolumeClaim": {"claimName": claim_in(link, volume)},
                }
            ],
        },
    }


_: type[VolumeFiles] = KubernetesFiles
