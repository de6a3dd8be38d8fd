"""Brings a task's code into a pod, once a pod, before any work begins, and names its directory.

A repository is cloned by git in the pod, with the task's secrets; a directory of this machine
travels as an archive on a command's input, so no registry holds it.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call
from fleetctl.providers.kubernetes.connection.pod_channel import run
from fleetctl.providers.kubernetes.manifests.entry import STATE_DIR
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.sources import clone_command, git
from fleetctl.providers.sources.archive import archive_of, name_in_sandbox
from fleetctl.specs.blocks.template import Source

WORKSPACE = "/tmp/workspace"  # in the pod, which has no other user
ARCHIVE = f"{STATE_DIR}.source.tar.gz"
UPLOAD_S = 1800.0
READ_BYTES = 512 * 1024


def source_directory(source: Source) -> str:
    """Absolute path of the code."""
    if source.mount_path is not None:
        return source.mount_path.rstrip("/") or "/"
    if source.git is not None:
        return f"{WORKSPACE}/{git.directory_name(source.git.url)}"
    return f"{WORKSPACE}/{name_in_sandbox(source.path or '')}"


def setup_commands(source: Source, commit: str | None) -> list[list[str]]:
    """Commands for the guest to run before the first task. Raises Refused for a url that git could
    misread.
    """
    place = source_directory(source)
    if source.git is not None:
        wanted = source.git.model_copy(update={"ref": commit}) if commit else source.git
        return [clone_command.clone_command(wanted, place)]
    quoted = shlex.quote(place)
    text = f"mkdir -p {quoted} && tar -xzf {ARCHIVE} -C {quoted} && rm -f {ARCHIVE}"
    return [["/bin/sh", "-c", text]]


async def bring_source(
    link: ClusterLink,
    pod: str,
    source: Source,
    job: Path,
) -> None:
    """Puts a directory's archive into a pod where no work has begun. Idempotent."""
    if source.path is None:
        return
    archive = await asyncio.to_thread(archive_of, source, job)
    what = "the source cannot be brought to the pod"
    size = archive.stat().st_size
    words = f"umask 077; head -c {size} >{ARCHIVE}.new && mv {ARCHIVE}.new {ARCHIVE}"
    async with cluster_call(what, deadline_s=UPLOAD_S):
        try:
            channel = await run(
                link,
                pod,
                ["sh", "-c", words],
                container=MAIN,
                stdin=True,
            )
            try:
                with archive.open("rb") as file:
                    while piece := await asyncio.to_thread(file.read, READ_BYTES):
                        await channel.send(piece)
                async for _frame in channel.frames():
                    pass  # its only message is its end
            finally:
                await channel.close()
        except (ApiError, ConnectionError) as error:
            raise Unavailable(f"{what}: {error}", retry_after_s=1.0) from error
    if channel.exit_code != 0:
        raise Unavailable(f"{what}: {channel.failure or channel.exit_code}", retry_after_s=1.0)
