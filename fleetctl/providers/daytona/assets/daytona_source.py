"""Brings a task's code into a sandbox on Daytona, once a sandbox, and names its directory.

A repository is cloned by Daytona itself into `workspace/`; a directory of this machine is uploaded
as an archive, which the guest unpacks before the first task.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_errors import (
    error_words,
    is_conflict,
    is_not_found,
    retryable_call,
)
from fleetctl.providers.remote.service_calls import ToleratedAnswer
from fleetctl.providers.sources import clone_command, git
from fleetctl.providers.sources.archive import archive_of, name_in_sandbox
from fleetctl.specs.blocks.template import GitSource, Source

log = logging.getLogger("fleetctl.providers")

WORKSPACE = "workspace"
ARCHIVE = "/tmp/fleetctl-source.tar.gz"  # in the sandbox, which has no other user
CLONE_S = 900.0
UPLOAD_S = 1800.0
CALL_S = 30.0
TAIL_CHARACTERS = 400


def source_directory(source: Source, work_dir: str) -> str:
    """Absolute path of the code. work_dir: where commands of the sandbox begin."""
    if source.mount_path is not None:
        return source.mount_path.rstrip("/") or "/"
    if source.git is not None:
        return f"{work_dir}/{WORKSPACE}/{git.directory_name(source.git.url)}"
    return f"{work_dir}/{WORKSPACE}/{name_in_sandbox(source.path or '')}"


def setup_commands(source: Source, place: str) -> list[list[str]]:
    """Commands for the guest to run before the first task."""
    if source.git is not None:
        return []
    quoted = shlex.quote(place)
    text = f"mkdir -p {quoted} && tar -xzf {ARCHIVE} -C {quoted} && rm -f {ARCHIVE}"
    return [["/bin/sh", "-c", text]]


async def bring_source(
    sandbox: sdk.AsyncSandbox,
    source: Source,
    place: str,
    *,
    commit: str | None,
    secrets: Mapping[str, str],
    job: Path,
) -> None:
    """Puts the code into a sandbox where no work has begun. Idempotent. Raises Refused and
    Unavailable.
    """
    if source.git is not None:
        await _clone_source(
            sandbox,
            source.git,
            place,
            commit,
            secrets,
        )
        return
    archive = await asyncio.to_thread(archive_of, source, job)
    async with retryable_call("the source cannot be uploaded", deadline_s=UPLOAD_S):
        await sandbox.fs.upload_file(str(archive), ARCHIVE)


async def _clone_source(
    sandbox: sdk.AsyncSandbox,
    source: GitSource,
    place: str,
    commit: str | None,
    secrets: Mapping[str, str],
) -> None:
    what = f"{git.redact_url(source.url)} cannot be cloned"
    problem = "it has submodules, files of Git LFS, or a path"
    if not (source.submodules or source.lfs or source.path):
        problem = await _try_native_clone(
            sandbox,
            source,
            place,
            commit,
            secrets,
        )
    if not problem:
        return
    log.info("cloned by git itself", extra={"why": problem})
    await _clear_directory(sandbox, place, what)
    # Daytona clones branches and commits near their ends; all else is for git itself.
    wanted = source.model_copy(update={"ref": commit}) if commit else source
    command = shlex.join(clone_command.clone_command(wanted, place))
    async with retryable_call(what, deadline_s=CLONE_S):
        answer = await sandbox.process.exec(
            f"{command} 2>&1 </dev/null", env=dict(secrets), timeout=int(CLONE_S)
        )
    if answer.exit_code != 0:
        output = " ".join(answer.result.split())[-TAIL_CHARACTERS:]
        raise Refused(
            f"{what}: {problem}; git says: {output}",
            hint="check source.git, and the secret with its token",
        )


async def _try_native_clone(
    sandbox: sdk.AsyncSandbox,
    source: GitSource,
    place: str,
    commit: str | None,
    secrets: Mapping[str, str],
) -> str:
    """Returns why Daytona's own clone did not work, or "": it may not find the ref, or find a part
    of an earlier clone.
    """
    what = f"{git.redact_url(source.url)} cannot be cloned"
    is_commit = git.is_commit(source.ref)
    user, token = clone_command.clone_credentials(source, secrets) or (None, None)
    try:
        async with asyncio.timeout(CLONE_S):
            await sandbox.git.clone(
                url=source.url,
                path=place,
                branch=None if is_commit else source.ref,
                commit_id=source.ref if is_commit else commit,
                username=user,
                password=token,
            )
    except (sdk.DaytonaAuthenticationError, sdk.DaytonaForbiddenError) as error:
        raise Refused(
            f"{what}: the repository asks for a password",
            hint="add a secret with GIT_TOKEN to template.secrets",
        ) from error
    except TimeoutError as error:
        raise Unavailable(f"{what}: it takes longer than {CLONE_S:.0f} s") from error
    except (sdk.DaytonaConnectionError, sdk.DaytonaBadGatewayError) as error:
        raise Unavailable(f"{what}: {error_words(error)}", reason="SourceUnreachable") from error
    except sdk.DaytonaError as error:
        return error_words(error)
    return ""


async def _clear_directory(
    sandbox: sdk.AsyncSandbox,
    place: str,
    what: str,
) -> None:
    """Clears a directory: an earlier try may have left a part. No work has begun in the sandbox."""
    with ToleratedAnswer(is_not_found, is_conflict):
        async with retryable_call(what, deadline_s=CALL_S):
            await sandbox.fs.delete_file(place, recursive=True)
