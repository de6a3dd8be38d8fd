"""One side of a comparison: the manifests of a revision, stored in an empty store, and priced by
the estimator that `plan` uses. Called by compare.py.

Uses dated prices alone, and no past run: so the same two revisions give the same report on any
machine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import Change
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.plan.build_plan import build_report
from fleetctl.apply.plan.plan_report import PlanReport
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, parallelism_of, select_providers
from fleetctl.apply.write.store_changes import store_changes
from fleetctl.common.errors import UsageError
from fleetctl.manifest.document.envelope import NamespaceChoice
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import Manifest, load_manifests
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.sources.source_snapshots import list_differing
from fleetctl.specs.blocks.template import Source
from fleetctl.specs.kinds.registry import dump_spec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.stores.read.read_only import StoreSnapshot, open_scratch
from fleetctl.tracking.annotations import REVISION
from fleetctl.tracking.manifest_sources import ManifestSources, source_of
from fleetctl.tracking.source_state import SourceState, files_text
from fleetctl.wiring.account_registry import AccountRegistry


@dataclass(frozen=True, slots=True)
class RevisionPlan:
    """One side. wrong: why its manifests are unreadable; then it has none. changes: effect of the
    manifests on an empty store.
    """

    manifests: tuple[Manifest, ...]
    looked: Mapping[str, SourceState]
    report: PlanReport
    changes: tuple[Change, ...]
    order: ApplyOptions
    providers: Mapping[str, Backend]
    wrong: ManifestErrors | UsageError | None = None

    @property
    def by_key(self) -> dict[str, Manifest]:
        return {it.key: it for it in self.manifests}


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The directories and the time for reading both sides. home: an empty directory. at_s: the
    moment of the reading, in seconds since the epoch; not now, or no two reports would be alike.
    """

    home: Path
    namespace: NamespaceChoice
    at_s: float


def side_of(
    documents: Sequence[Document],
    root: Path,
    room: ReviewContext,
) -> RevisionPlan:
    """Reads one side. root: of its files. Errors of reading become `wrong`."""
    try:
        manifests = [
            _relativize_files(it, root)
            for it in load_manifests(documents, room.namespace, may_be_empty=True)
        ]
        wrong = None
    except (ManifestErrors, UsageError) as error:
        manifests = []
        wrong = error
    sources = ManifestSources(room.home)
    looked = asyncio.run(sources.look([it for it in manifests if _has_path(it)]))
    accounts = AccountRegistry(room.home, store_id="")
    for name, spec in select_providers(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    order = ApplyOptions(
        parallelism=parallelism_of(accounts.backends),
        looked=looked,
        sources=sources,
        namespace=room.namespace.name,
        unjudged=True,  # the changes between the sides are judged, with their costs
    )
    _, stored = open_scratch()
    changes = propose_changes(stored, manifests, order, room.at_s)
    found = build_report(stored, changes, market_of(stored, changes, accounts.backends), room.at_s)
    providers = accounts.backends
    return RevisionPlan(
        tuple(manifests),
        looked,
        found,
        tuple(changes),
        order,
        providers,
        wrong,
    )


def stored_of(side: RevisionPlan, at_s: float) -> StoreSnapshot:
    """Returns a store that holds only the objects of a side."""
    store, stored = open_scratch()
    store_changes(store, side.changes, at_s)
    return stored


def changes_between(
    stored: StoreSnapshot,
    before: RevisionPlan,
    after: RevisionPlan,
    at_s: float,
) -> list[Change]:
    """Returns the changes of objects from one side to the other, without the deleted ones. stored:
    the first side's.
    """
    order = replace(after.order, sources=_RevisionSources(before.looked))
    return propose_changes(stored, after.manifests, order, at_s)


class _RevisionSources(ManifestSources):
    """Knows which files of a source differ between both sides."""

    def __init__(self, before: Mapping[str, SourceState]) -> None:
        self._by_revision = {it.revision: it for it in before.values() if it.revision}

    def settled(
        self,
        source: Source | None,  # both sides are looked at by one rule
        annotations: Mapping[str, str],
        looked: SourceState,
    ) -> SourceState:
        return looked

    def changed(self, annotations: Mapping[str, str], looked: SourceState) -> str:
        old = self._by_revision.get(annotations.get(REVISION, ""))
        if old is None:
            return ""
        return files_text(list_differing(old.files, looked.files))


def _has_path(manifest: Manifest) -> bool:
    """Returns true for a local path. Remotes are not read: their present state is no part of a
    revision."""
    source = source_of(manifest.spec)
    return source is not None and source.path is not None


def _relativize_files(manifest: Manifest, root: Path) -> Manifest:
    """Returns the manifest with files named from the top of the tree, not from its temporary
    directory."""
    spec = manifest.spec
    if isinstance(spec, SecretSpec) and spec.from_file:
        here = f"{root}/"
        files = {name: path.removeprefix(here) for name, path in spec.from_file.items()}
        return replace(manifest, spec=spec.model_copy(update={"from_file": files}))
    return manifest
