"""Pins the commit that all runs of a template get, looked up at the remote once and kept, and finds
the revision that a resource's runs really had.

Called before a start by providers that clone in the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

from fleetctl.common.errors import Unavailable
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources import archive, git
from fleetctl.specs.blocks.template import GitSource, Template

ASK_S = 20.0  # for a remote to list its commits; later the branch itself is cloned
HISTORY_S = 60.0  # for all commits, to find the one of a shortened id


async def pin_commit(template: Template, job: Path) -> str | None:
    """Returns the commit that all runs of a template get, kept in the resource's directory `job`.

    None where this machine could not ask: no git here, or a repository that only the sandbox may
    see; that is kept as well. Raises Refused for a ref that the remote does not have.
    """
    source = template.source.git if template.source is not None else None
    if source is None:
        return None
    kept = _pin_path(source, job)
    if not kept.exists():
        commit = await current_commit(source)
        make_private(job)
        temporary = kept.with_suffix(".new")
        temporary.write_text(json.dumps(commit), encoding="utf-8")
        temporary.replace(kept)
    found: str | None = json.loads(kept.read_text(encoding="utf-8"))
    return found


def known_commit(source: GitSource, job: Path) -> str:
    """Returns the commit that runs of the resource have got; "" before the first run, or while it
    is unknown. Never waits.
    """
    try:
        return str(json.loads(_pin_path(source, job).read_text(encoding="utf-8")) or "")
    except (OSError, ValueError):
        return ""


async def current_commit(source: GitSource, *, here: bool = False) -> str | None:
    """Returns the commit that a source's ref names now; None where this machine cannot ask. Raises
    Refused for a ref that the remote does not have. here: whether the task sees a path of this
    machine.
    """
    found = await find_current(source, here=here)
    if found is None:
        return None
    return found.commit


async def find_current(source: GitSource, *, here: bool = False) -> git.RefMatch | None:
    """Returns the commit as `current_commit`, with the other meanings of the ref."""
    git.check_source(source)
    if not (here or git.url_host(source.url)) or shutil.which("git") is None:
        return None
    try:
        async with asyncio.timeout(HISTORY_S if git.is_short(source.ref) else ASK_S):
            return await git.find_ref(source)
    except (Unavailable, TimeoutError):
        return None


def commit_variables(template: Template, secrets: Collection[str]) -> dict[str, str]:
    """Returns a task's variables about the commit that it works on, by names that programs know;
    without those that the template and its secrets, by name of variable, give themselves. {} for an
    unknown commit.
    """
    source = template.source.git if template.source is not None else None
    if source is None or source.ref is None or not git.is_commit(source.ref):
        return {}
    url = git.redact_url(source.url)
    tags = {"mlflow.source.git.commit": source.ref, "mlflow.source.git.repoURL": url}
    found = {
        "FLEETCTL_SOURCE_COMMIT": source.ref,
        "WANDB_GIT_COMMIT": source.ref,
        "WANDB_GIT_REMOTE_URL": url,
        "MLFLOW_RUN_CONTEXT": json.dumps(tags),
    }
    given = {*secrets, *template.env, *(template.image.env if template.image is not None else ())}
    return {name: text for name, text in found.items() if name not in given}


def _pin_path(source: GitSource, job: Path) -> Path:
    key = sha256(f"{source.url}\n{source.ref}".encode()).hexdigest()[:16]
    return job / f"commit-{key}.json"


def revision_in(template: Template, job: Path) -> str:
    """Returns a commit, or the revision of a directory; "" while it is unknown. Never waits."""
    source = template.source
    if source is None:
        return ""
    if source.git is not None:
        # A function's containers have the commit cloned when it was made ready, not a run's commit.
        if template.is_function:
            return ""
        return known_commit(source.git, job)
    return archive.read_frozen_revision(source, job)
