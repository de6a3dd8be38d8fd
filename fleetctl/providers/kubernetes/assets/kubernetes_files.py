"""Reads and writes files in volumes of a cluster, for `cp`, `ls` and `rm`. A claim is shown to pods
alone, so each verb has a small pod of its own and deletes it. A pod that a killed command leaves
ends by itself.
"""

from __future__ import annotations

import asyncio
import shlex
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
    FileEntry,
    Tell,
    VolumeFiles,
    clean_path,
    download_beside,
    is_a_directory,
    no_volume,
    split_batches,
)
from fleetctl.providers.kubernetes.assets import kubernetes_volumes
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    ClusterLink,
    KubernetesConnection,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call, is_not_found
from fleetctl.providers.kubernetes.connection.pod_channel import STDOUT, run
from fleetctl.providers.kubernetes.manifests import security
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.kubernetes.manifests.labels import MANAGED
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.paths import serves_cluster
from fleetctl.providers.remote.assets.recipes import DEFAULT_PYTHON
from fleetctl.providers.remote.assets.volume_listing import (
    list_command,
    listing_error,
    look_command,
    parse_listing,
)

MOUNT = "/volume"
CALL_S = 30.0
START_S = 180.0
LOOK_S = 0.5
TRANSFER_S = 3600.0
LIFE_S = 3 * 3600  # the helper ends then, whatever becomes of us
BATCH_FILES_MAX = 200
BATCH_BYTES_MAX = 256 * 1024**2
READ_BYTES = 512 * 1024


class KubernetesFiles:
    """Keeps no state between two verbs."""

    def __init__(
        self,
        home: Path,
        account: Account,
        *,
        store_id: str = "",
    ) -> None:
        del store_id
        self._account, self._tenants = account, serves_cluster(home)

    async def entries(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
        contents: str = "",
    ) -> Sequence[FileEntry]:
        async with self._helper(volume) as helper:
            return await helper.entries(clean_path(path), recursive=recursive, contents=contents)

    async def put(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        async with self._helper(volume) as helper:
            for batch in split_batches(files, files_max=BATCH_FILES_MAX, bytes_max=BATCH_BYTES_MAX):
                with TemporaryFile() as archive:
                    await asyncio.to_thread(_pack_files, archive, batch)
                    size = archive.tell()
                    archive.seek(0)
                    await helper.run(f"cd {MOUNT} && head -c {size} | tar -xf -", given=archive)
                tell(sum(one.size for one in batch))

    async def get(
        self,
        volume: str,
        files: Sequence[FileCopy],
        *,
        tell: Tell,
    ) -> None:
        async with self._helper(volume) as helper:
            for one in files:
                quoted = shlex.quote(f"./{clean_path(one.remote)}")
                with download_beside(one.local) as temporary, temporary.open("wb") as file:
                    await helper.run(
                        look_command(MOUNT, quoted) + f"cat {quoted}", path=one.remote, taken=file
                    )
                tell(one.size)

    async def remove(
        self,
        volume: str,
        path: str,
        *,
        recursive: bool = False,
    ) -> None:
        wanted = clean_path(path)
        quoted = shlex.quote(f"./{wanted}")
        async with self._helper(volume) as helper:
            reply = await helper.entries(wanted, recursive=False)
            if not recursive and [one.path for one in reply] != [wanted]:
                raise is_a_directory(path)
            # The volume's top stays: it is a mount.
            command = f"rm -rf {quoted}" if wanted else "find . -mindepth 1 -delete"
            await helper.run(look_command(MOUNT, quoted) + command, path=path)

    async def size(self, volume: str) -> int | None:
        del volume
        return None  # a pod for a number would cost more than it is worth

    @asynccontextmanager
    async def _helper(self, volume: str) -> AsyncIterator[Helper]:
        """Yields a pod with the volume in it, for the time of a verb."""
        connection = KubernetesConnection(account=lambda: self._account, tenants=self._tenants)
        try:
            link = await kubernetes_volumes.link_of(connection, volume)
            if await kubernetes_volumes.find_claim(link, volume) is None:
                raise no_volume(f"namespace `{link.namespace}`", volume)
            helper = Helper(link, volume)
            try:
                await helper.start()
                yield helper
            finally:
                await asyncio.shield(helper.end())
        finally:
            await connection.close()


class Helper:
    def __init__(self, link: ClusterLink, volume: str) -> None:
        self._link = link
        self._volume = volume
        self._name = f"fleetctl-files-{token_hex(6)}"

    async def start(self) -> None:
        """Raises Unavailable with what its pod waits for."""
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

    async def entries(
        self,
        path: str,
        *,
        recursive: bool,
        contents: str = "",
    ) -> list[FileEntry]:
        command = list_command(MOUNT, path, recursive=recursive, contents=contents)
        reply = (await self.run(command, path=path)).decode("utf-8", "surrogateescape")
        return parse_listing(reply, path)

    async def run(
        self,
        command: str,
        *,
        path: str = "",
        given: IO[bytes] | None = None,
        taken: IO[bytes] | None = None,
    ) -> bytes:
        """Returns the command's output, unless a file takes it. given: its input. taken: the file
        that takes its output.
        """
        what = f"volume/{self._volume} cannot be reached"
        volume = self._volume
        out = bytearray()
        err = bytearray()
        async with cluster_call(what, deadline_s=TRANSFER_S):
            try:
                words = ["sh", "-c", command]
                channel = await run(
                    self._link,
                    self._name,
                    words,
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
        if channel.exit_code is not None and (
            error_of_ours := listing_error(channel.exit_code, volume, path)
        ):
            raise error_of_ours
        if channel.exit_code is None:
            raise Unavailable(f"{what}: {channel.failure or 'the line broke'}")
        if channel.exit_code:
            words_ = " ".join(err.decode("utf-8", "replace").split())[-300:]
            raise Refused(f"volume/{volume}: {words_}", hint=f"fleetctl ls volume/{volume}")
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
            **({"securityContext": security.pod_context(nobody=True)} if nobody else {}),
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
                    **({"securityContext": security.CONTAINER} if nobody else {}),
                    "volumeMounts": [{"name": "volume", "mountPath": MOUNT}],
                }
            ],
            "volumes": [
                {
                    "name": "volume",
                    "persistentVolumeClaim": {
                        "claimName": kubernetes_volumes.claim_in(link, volume)
                    },
                }
            ],
        },
    }


_: type[VolumeFiles] = KubernetesFiles
