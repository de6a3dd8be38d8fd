"""The paths of provider `local` below $FLEETCTL_HOME/local, and which paths of a sandbox would hide
that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.providers.paths import checked_name, jobs_dir, journal_path

if TYPE_CHECKING:
    from fleetctl.common.finding import Path as FieldPath
    from fleetctl.specs.blocks.template import Template


class LocalLayout:
    """The paths of a state directory."""

    def __init__(self, home: Path) -> None:
        # Resolved once: in its namespaces a supervisor sees real paths only.
        self.home = Path(os.path.realpath(home))
        self.root = self.home / "local"
        self.volumes = self.root / "volumes"
        self.environments = self.root / "envs"
        self.repositories = self.root / "git"
        self.supervisors = self.root / "keepers"
        self.tree = self.root / "tree"  # where supervisors mount theirs, each in its own namespace
        self.jobs = jobs_dir(self.home, "local")
        self.gpus = self.root / "gpus"
        self.guests = self.root / "guest"

    def volume(self, name: str) -> Path:
        return self.volumes / checked_name(name)

    def job(self, uid: str) -> Path:
        return self.jobs / checked_name(uid)

    def runs(self, uid: str) -> Path:
        """Journals and logs; hidden from the runs themselves."""
        return self.job(uid) / "runs"

    def work(self, uid: str) -> Path:
        """Returns the directory of work directories, one a sandbox, which the runs see."""
        return self.job(uid) / "work"

    def inputs(self, uid: str) -> Path:
        """Returns the directory of the files of its tasks, by content; the runs may read it."""
        return self.job(uid) / "inputs"

    def journal(self, uid: str, run: str) -> Path:
        return journal_path(self.runs(uid), run)

    def supervisor(self, name: str) -> Path:
        return self.supervisors / checked_name(name)


def supervisor_name(uid: str, template_hash: str) -> str:
    return f"{checked_name(uid)}.{checked_name(template_hash)}"


def uid_of(handle: str) -> str:
    """Returns the resource's uid in a handle `<uid>.<template hash>/<supervisor>`."""
    return handle.partition("/")[0].rpartition(".")[0]


COVERING_HINT = "mount it at another path, such as /mnt/data"


def covering_mount(template: Template, home: Path) -> tuple[FieldPath, str] | None:
    """Returns (field, sentence) of the first path of a volume or source below which the state
    directory lies: mounted there, it would hide the directories that runs work in.
    """
    for field, path in _list_mounts(template):
        if covers_state_dir(path, home):
            return field, f"`{path}` holds the state directory `{home}`, which runs work in"
    return None


def _list_mounts(template: Template) -> Iterator[tuple[FieldPath, str]]:
    """Yields each field of the template that sets a path of the sandbox, and the path."""
    for number, mount in enumerate(template.volumes):
        yield ("volumes", number, "mountPath"), mount.mount_path
        for position, link in enumerate(mount.links):
            yield ("volumes", number, "links", position), link
    if template.source is not None and template.source.mount_path is not None:
        yield ("source", "mountPath"), template.source.mount_path


def covers_state_dir(path: str, home: Path) -> bool:
    """Returns whether the state directory is at that path or below it."""
    return home.is_relative_to(os.path.realpath(path))
