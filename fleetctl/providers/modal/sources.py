"""Where a task finds its code in a sandbox on Modal, and how it gets there.

A directory of this machine joins the image (images.py); a repository is cloned in the sandbox, by
commands that the guest runs before the first task.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

from fleetctl.errors import Refused, Unavailable
from fleetctl.providers.rundir.places import make_private
from fleetctl.providers.sources import clone, git
from specs.template import GitSource, Source, Template

HOME = "/root"  # of sandboxes on Modal
ASK_S = 20.0  # for a remote to tell its commits; later the branch itself is cloned

_SHORT = re.compile(r"[0-9a-f]{7,39}")


def directory(source: Source) -> str:
    """Absolute path of the code in the sandbox."""
    if source.mount_path is not None:
        return source.mount_path.rstrip("/") or "/"
    if source.git is not None:
        return f"{HOME}/{git.directory_name(source.git.url)}"
    return f"{HOME}/{Path(source.path or '').resolve().name or 'source'}"


def setup(template: Template, commit: str | None = None) -> tuple[list[list[str]], str | None]:
    """(commands to run once a sandbox, the directory of the code or None). Raises Refused.

    commit: what `pinned` told; without it the ref is cloned as it stands when the sandbox starts.
    The commands read tokens from the environment that the task's secrets make.
    """
    source = template.source
    if source is None:
        return [], None
    place = directory(source)
    if source.git is None:
        return [], place
    wanted = source.git.model_copy(update={"ref": commit}) if commit else source.git
    return [clone.command(wanted, place)], place


async def pinned(template: Template, job: Path) -> str | None:
    """The commit that all runs of a template get, kept in the resource's directory `job`.

    None where this machine could not ask: no git here, or a repository that only the sandbox may
    see; that is kept as well. Raises Refused for a ref that the remote does not have.
    """
    source = template.source.git if template.source is not None else None
    if source is None:
        return None
    kept = job / f"commit-{_key(source)}.json"
    if not kept.exists():
        commit = await current(source)
        make_private(job)
        temporary = kept.with_suffix(".new")
        temporary.write_text(json.dumps(commit), encoding="utf-8")
        temporary.replace(kept)
    found: str | None = json.loads(kept.read_text(encoding="utf-8"))
    return found


async def current(source: GitSource) -> str | None:
    """The commit that a source's ref names now; None where this machine cannot ask. Raises Refused
    for a ref that the remote does not have.
    """
    git.check(source)
    if not git.host(source.url) or shutil.which("git") is None:
        return None
    try:
        async with asyncio.timeout(ASK_S):
            return await git.resolve(source)
    except (Unavailable, TimeoutError):
        return None
    except Refused:
        if _SHORT.fullmatch(source.ref or ""):
            return None  # a shortened commit, which only a whole clone can tell
        raise


def _key(source: GitSource) -> str:
    return sha256(f"{source.url}\n{source.ref}".encode()).hexdigest()[:16]
