"""Where a task finds its code in a sandbox on Modal, and how it gets there.

A directory of this machine joins the image (images.py), file by file; what an upload of files does
not carry joins as an archive, which the guest unpacks before the first task. A repository is cloned
in the sandbox, by commands that the guest runs before it, too.
"""

from __future__ import annotations

import shlex

from fleetctl.providers.sources import clone, git
from fleetctl.providers.sources.archive import REST, name_in_sandbox
from fleetctl.specs.blocks.template import Source, Template

HOME = "/root"  # of sandboxes on Modal
REST_DIR = "/.fleetctl-source"


def directory(source: Source) -> str:
    """Absolute path of the code in the sandbox."""
    if source.mount_path is not None:
        return source.mount_path.rstrip("/") or "/"
    if source.git is not None:
        return f"{HOME}/{git.directory_name(source.git.url)}"
    return f"{HOME}/{name_in_sandbox(source.path or '')}"


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
        archive = f"{REST_DIR}/{REST}"
        text = f"[ ! -e {archive} ] || tar -xf {archive} -C {shlex.quote(place)}"
        return [["/bin/sh", "-c", text]], place
    wanted = source.git.model_copy(update={"ref": commit}) if commit else source.git
    return [clone.command(wanted, place)], place
