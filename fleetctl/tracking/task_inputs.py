"""The files of tasks (`tasks.fromFiles`), from the manifest that found them to the run that gets
one: kept when an object is stored, found by their content when a run starts.

Called by manifest_sources.py when manifests are stored, and by the executor.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import InputFile, MountedFile
from fleetctl.providers.sources.input_files import ContentMoved, InputFiles, StoredContent
from fleetctl.specs.blocks.common import work_in
from fleetctl.specs.blocks.file_tasks import (
    CONTENT,
    FILE,
    FILES,
    NAME,
    PATH,
    VOLUME,
    FileTasks,
)
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.batchjob import BatchJobSpec

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

INPUT_MISSING = "InputMissing"
_MARK = '"files":'
_DIGEST = re.compile(r'"sha256":\s*"([0-9a-f]{64})"')


class TaskInputs:
    """stored: the contents of this state directory."""

    def __init__(self, stored: InputFiles) -> None:
        self._stored = stored

    def keep(self, manifest: Manifest) -> None:
        """Stores the contents of all files of a manifest's tasks. Raises Refused."""
        tasks = files_of(manifest.spec)
        for it in tasks.found if tasks is not None else ():
            assert tasks is not None
            if it.sha256 is None:
                continue  # it stays in its volume
            origin = manifest.inputs.get(it.sha256)
            if origin is None and self._stored.path_of(it.sha256) is None:
                raise Refused(
                    f"{manifest.key}: the content of `{tasks.shown(it)}` is not in the state"
                    " directory",
                    hint="name the files by `tasks.fromFiles`, where they are",
                )
            try:
                if origin is not None:
                    self._stored.keep(it.sha256, origin)
            except ContentMoved as error:
                raise Refused(
                    f"{manifest.key}: `{tasks.shown(it)}` was edited while it was read",
                    hint="apply again",
                ) from error
            except OSError as error:
                raise Refused(
                    f"{manifest.key}: `{tasks.shown(it)}` cannot be copied: {error.strerror}",
                    hint="the copy lies in the state directory; see that its disk has room",
                ) from error

    def of_run(
        self, params: Mapping[str, Any], template: Template
    ) -> tuple[InputFile | MountedFile, ...]:
        """Returns the files that the parameters of a task of `fromFiles` name. template: with all
        its volumes, by the names of their objects. Raises Unavailable for a content that is gone,
        and Refused for a volume that is not mounted.
        """
        named = [params[FILE]] if FILE in params else params.get(FILES, ())
        return tuple(
            _find_mounted(it, template) if VOLUME in it else self._find(it) for it in named
        )

    def listed(self) -> list[StoredContent]:
        """Returns all contents that are kept. Blocks."""
        return self._stored.listed()

    def drop(self, digest: str, *, unused_since_s: float) -> None:
        """Deletes a content, unless an apply has kept it again since."""
        self._stored.drop(digest, unused_since_s=unused_since_s)

    def sweep(self, specs: Sequence[object]) -> None:
        """Deletes contents that no spec names. To be called in a thread."""
        found = (files_of(spec) for spec in specs)
        named = (it.sha256 for tasks in found if tasks for it in tasks.found)
        self._stored.sweep({it for it in named if it is not None})

    def _find(self, named: Mapping[str, str]) -> InputFile:
        path = self._stored.path_of(named[CONTENT])
        if path is None:
            raise Unavailable(
                f"the content of the task's file `{named[NAME]}` is not in the state directory"
                " any more",
                reason=INPUT_MISSING,
                hint="apply the manifest again",
            )
        return InputFile(named[NAME], named[CONTENT], path, path.stat().st_size)


def _find_mounted(named: Mapping[str, Any], template: Template) -> MountedFile:
    for mount in template.volumes:
        if mount.name == named[VOLUME]:
            return MountedFile(posixpath.normpath(mount.mount_path), named[PATH])
    raise Refused(
        f"the task's file is on volume `{named[VOLUME]}`, which its template does not mount",
        hint="add it to `template.volumes`",
    )


def digests_in(spec: str) -> tuple[str, ...]:
    """Returns the digests of the files that the tasks of a stored spec are made of, without reading
    it as a whole: it may have 100,000 of them. spec: JSON.
    """
    if _MARK not in spec:
        return ()
    return tuple(dict.fromkeys(_DIGEST.findall(spec)))


def files_of(spec: object) -> FileTasks | None:
    """Returns the files of a spec's tasks, or of those that it makes; None without any."""
    work = work_in(spec)
    tasks = work.tasks if isinstance(work, BatchJobSpec) else None
    if tasks is not None:
        return tasks.files
    return None
