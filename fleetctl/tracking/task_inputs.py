"""The files of tasks (`tasks.fromFiles`), from the manifest or the listing of a volume that found
them to the run that gets them.

One look a directory of a volume; where a volume is shown to sandboxes alone, the look has a small
one. The content stands for a file where the look reads it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import NotFound, Refused, Unavailable, UsageError
from fleetctl.manifest.files.task_files import (
    FilesError,
    choose_files,
    names_below,
    split_volume_glob,
)
from fleetctl.providers.contract.account import Account, account_of, built_in
from fleetctl.providers.contract.base import InputFile, MountedFile
from fleetctl.providers.contract.volume_files import FileEntry
from fleetctl.providers.sources.source_snapshots import ContentMoved, InputFiles, StoredContent
from fleetctl.specs.blocks.file_tasks import (
    CONTENT,
    FILE,
    FILES,
    NAME,
    PATH,
    VOLUME,
    FileTasks,
    FoundFile,
)
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import BUILT_IN
from fleetctl.specs.kinds.batchjob import BatchJobSpec, awaits_listing, files_of
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.kinds.volume import VolumeSpec
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.specs.values.scalars import Spec
from fleetctl.wiring.account_registry import volume_files

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest
    from fleetctl.stores.base import ReadableStore


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


async def list_volumes(
    manifests: Sequence[Manifest],
    stored: ReadableStore,
    home: Path,
) -> list[Manifest]:
    """Returns the manifests with the files of the volumes that they name. Raises UsageError."""
    listing = _VolumeListing(manifests, stored, home)
    return [await listing.read_into(it) for it in manifests]


class _VolumeListing:
    """The volumes of one apply; each directory of one is listed once."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        stored: ReadableStore,
        home: Path,
    ) -> None:
        self._declared = {(it.kind, it.name, it.namespace): it.spec for it in manifests}
        self._stored = stored
        self._home = home
        self._listed: dict[tuple[str, str, bool, str], Sequence[FileEntry]] = {}

    async def read_into(self, manifest: Manifest) -> Manifest:
        """Returns the manifest with the files. Raises UsageError."""
        files = files_of(manifest.spec)
        if files is None or not awaits_listing(manifest.spec):
            return manifest
        where = f"{manifest.path}:{manifest.line}: {manifest.key}: tasks.fromFiles"
        assert files.volume is not None
        try:
            account = self._account(files.volume, manifest.namespace)
            if not isinstance(manifest.spec, BatchJobSpec):
                return manifest  # it is listed again whenever an object is made
            found = await self._find(files, account, manifest.namespace)
        except FilesError as error:
            raise UsageError(f"{where} is `{files.glob}`; {error}", hint=error.hint) from error
        except (NotFound, Refused) as error:
            raise UsageError(f"{where}: {error}", hint=error.hint) from error
        except Unavailable as error:
            raise UsageError(f"{where}: {error}", hint=error.hint or "apply again") from error
        listed = files.model_copy(update={"found": found})
        assert manifest.spec.tasks is not None
        tasks = manifest.spec.tasks.model_copy(update={"files": listed})
        return replace(manifest, spec=manifest.spec.model_copy(update={"tasks": tasks}))

    async def _find(
        self,
        files: FileTasks,
        account: Account,
        namespace: str,
    ) -> tuple[FoundFile, ...]:
        assert files.glob is not None and files.volume is not None
        volume = files.volume
        base, parts = split_volume_glob(files.glob)
        key = (asset_name(volume, namespace), base, len(parts) > 1, names_below(parts))
        if key not in self._listed:
            reader = volume_files(account, self._home, store_id=self._stored.store_id)
            self._listed[key] = await reader.entries(
                key[0], base, recursive=key[2], contents=key[3]
            )
        entries = {it.path: it for it in self._listed[key] if not it.is_directory}
        return tuple(
            FoundFile(
                path=path,
                digest=entries[path].digest or None,
                bytes=entries[path].size,
                modified=None if entries[path].digest else entries[path].modified_at_s or None,
            )
            for path in choose_files(files.glob, entries, volume=volume)
        )

    def _account(self, volume: str, namespace: str) -> Account:
        """Returns the account that has a volume. Raises Refused where none is known."""
        spec = self._spec("Volume", volume, namespace)
        if not isinstance(spec, VolumeSpec):
            raise Refused(
                f"there is no volume `{volume}`",
                hint=f"declare it as `kind: Volume`, and fill it: `fleetctl cp -r DIR"
                f" volume/{volume}:/`",
            )
        return self._account_called(spec.provider)

    def _account_called(self, name: str) -> Account:
        spec = self._spec("Provider", name, None)
        if spec is not None:
            return account_of(name, json.loads(dump_spec(spec)))
        if name in BUILT_IN:
            return built_in(name)
        raise Refused(f"there is no provider `{name}`", hint="declare it as `kind: Provider`")

    def _spec(
        self,
        kind: str,
        name: str,
        namespace: str | None,
    ) -> Spec | None:
        """Returns the spec that is being applied, or else the stored one. namespace: None for an
        object of all.
        """
        for (its_kind, its_name, its_namespace), spec in self._declared.items():
            if (its_kind, its_name) == (kind, name) and namespace in (None, its_namespace):
                return spec
        for row in self._stored.resources.living(kind):
            if row.name == name and namespace in (None, row.namespace):
                return parse_spec(kind, row.spec)
        return None
