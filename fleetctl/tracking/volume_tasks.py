"""Lists the volumes that `tasks.fromFiles` names, at every apply, plan and diff, and when a
Schedule makes an object: the files that match become the tasks of the manifest.

Called by manifest_sources.py. One look a directory of a volume; where a volume is shown to
sandboxes alone, the look has a small one. The content stands for a file where the look reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import NotFound, Refused, Unavailable, UsageError
from fleetctl.manifest.files.task_files import FilesError
from fleetctl.manifest.files.volume_globs import choose_files, names_below, split_volume_glob
from fleetctl.providers.contract.account import Account, account_of, built_in
from fleetctl.providers.contract.volume_files import FileEntry
from fleetctl.specs.blocks.file_tasks import FileTasks, FoundFile
from fleetctl.specs.builtin import BUILT_IN
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.specs.kinds.volume import VolumeSpec
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.specs.values.scalars import Spec
from fleetctl.tracking.task_inputs import files_of
from fleetctl.wiring.account_registry import volume_files

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest
    from fleetctl.stores.base import ReadableStore


async def list_volumes(
    manifests: Sequence[Manifest],
    stored: ReadableStore,
    home: Path,
) -> list[Manifest]:
    """Returns the manifests with the files of the volumes that they name. Raises UsageError."""
    if not any(map(awaits_listing, (it.spec for it in manifests))):
        return list(manifests)
    listing = _VolumeListing(manifests, stored, home)
    return [await listing.read_into(it) for it in manifests]


def awaits_listing(spec: object) -> bool:
    """Returns true for a spec whose tasks are files of a volume that has not been listed."""
    files = files_of(spec)
    return files is not None and files.volume is not None and not files.found


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
