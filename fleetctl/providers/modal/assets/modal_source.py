"""Brings a task's code into a sandbox on Modal, and names its directory.

A directory of this machine joins the image (modal_images.py), file by file; files that an upload
cannot carry join as an archive, which the guest unpacks before the first task. A repository is
cloned in the sandbox, by commands that the guest runs before it, too.
"""

from __future__ import annotations

import shlex

from fleetctl.providers.sources import clone_command, git
from fleetctl.providers.sources.archive import REST, name_in_sandbox
from fleetctl.specs.blocks.template import Source, Template

HOME = "/root"  # of sandboxes on Modal
REST_DIR = "/.fleetctl-source"


def source_directory(source: Source) -> str:
    """Returns the absolute path of the code in the sandbox."""
    if source.mount_path is not None:
        return source.mount_path.rstrip("/") or "/"
    if source.git is not None:
        return f"{HOME}/{git.directory_name(source.git.url)}"
    return f"{HOME}/{name_in_sandbox(source.path or '')}"


def setup_commands(
    template: Template, commit: str | None = None
) -> tuple[list[list[str]], str | None]:
    """Returns (commands to run once a sandbox, the directory of the code or None). Raises Refused.

    commit: as `pinned` returned it; without it the ref is cloned as it stands when the sandbox
        starts.
    The commands read tokens from the environment that the task's secrets set.
    """
    source = template.source
    if source is None:
        return [], None
    place = source_directory(source)
    if source.git is None:
        archive = f"{REST_DIR}/{REST}"
        text = f"[ ! -e {archive} ] || tar -xf {archive} -C {shlex.quote(place)}"
        return [["/bin/sh", "-c", text]], place
    wanted = source.git.model_copy(update={"ref": commit}) if commit else source.git
    return [clone_command.clone_command(wanted, place)], place
