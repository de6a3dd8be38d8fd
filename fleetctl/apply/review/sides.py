"""One side of a comparison: the manifests of a revision, stored where nothing else is, and priced
by the estimator that `plan` uses. Called by compare.py.

By dated prices alone, and as if nothing of it had ever run: so the same two revisions give the same
report wherever it is made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import Change
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.cost.plan import report
from fleetctl.apply.cost.report import Report
from fleetctl.apply.propose import commit, propose
from fleetctl.apply.request.options import Order, declared_in, parallelism_of
from fleetctl.common.errors import UsageError
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import Manifest, load
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.providers.sources.snapshots import differing
from fleetctl.specs.blocks.template import Source
from fleetctl.specs.kinds.registry import dump_spec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.stores.read.read_only import Snapshot, scratch
from fleetctl.tracking.annotations import REVISION
from fleetctl.tracking.looked import Looked, files_text
from fleetctl.tracking.sources import Sources, source_of
from fleetctl.wiring.accounts import Accounts


@dataclass(frozen=True, slots=True)
class Side:
    """wrong: why its manifests cannot be read; then it has none. changes: what they make of an
    empty store.
    """

    manifests: tuple[Manifest, ...]
    looked: Mapping[str, Looked]
    report: Report
    changes: tuple[Change, ...]
    order: Order
    wrong: ManifestErrors | UsageError | None = None

    @property
    def by_key(self) -> dict[str, Manifest]:
        return {it.key: it for it in self.manifests}


@dataclass(frozen=True, slots=True)
class Room:
    """What both sides are read with. home: an empty directory. at_s: the moment that they are
    looked at, in seconds since the epoch; not now, or no two reports would be alike.
    """

    home: Path
    namespace: Chosen
    at_s: float


def side_of(documents: Sequence[Document], root: Path, room: Room) -> Side:
    """root: of its files. What it cannot read it tells as `wrong`."""
    try:
        manifests = [_placed(it, root) for it in load(documents, room.namespace, may_be_empty=True)]
        wrong = None
    except (ManifestErrors, UsageError) as error:
        manifests, wrong = [], error
    sources = Sources(room.home)
    looked = asyncio.run(sources.look([it for it in manifests if _has_path(it)]))
    accounts = Accounts(room.home, store_id="")
    for name, spec in declared_in(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    order = Order(
        parallelism=parallelism_of(accounts.backends),
        looked=looked,
        sources=sources,
        namespace=room.namespace.name,
        unjudged=True,  # the changes between the sides are judged, with their costs
    )
    _, stored = scratch()
    changes = propose(stored, manifests, order, room.at_s)
    found = report(stored, changes, market_of(stored, changes, accounts.backends), room.at_s)
    return Side(tuple(manifests), looked, found, tuple(changes), order, wrong)


def stored_of(side: Side, at_s: float) -> Snapshot:
    """A store that holds the objects of a side and nothing else."""
    store, stored = scratch()
    commit(store, side.changes, at_s)
    return stored


def changes_between(stored: Snapshot, before: Side, after: Side, at_s: float) -> list[Change]:
    """What the objects of one side become on the other, but for those that it has no more. stored:
    the first one's.
    """
    order = replace(after.order, sources=_Between(before.looked))
    return propose(stored, after.manifests, order, at_s)


class _Between(Sources):
    """Knows which files of a source differ, of both sides."""

    def __init__(self, before: Mapping[str, Looked]) -> None:
        self._by_revision = {it.revision: it for it in before.values() if it.revision}

    def settled(
        self,
        source: Source | None,  # noqa: ARG002 - both sides are looked at by one rule
        annotations: Mapping[str, str],  # noqa: ARG002
        looked: Looked,
    ) -> Looked:
        return looked

    def changed(self, annotations: Mapping[str, str], looked: Looked) -> str:
        old = self._by_revision.get(annotations.get(REVISION, ""))
        return "" if old is None else files_text(differing(old.files, looked.files))


def _has_path(manifest: Manifest) -> bool:
    """Repositories are not asked: what a remote says now is no part of a revision."""
    source = source_of(manifest.spec)
    return source is not None and source.path is not None


def _placed(manifest: Manifest, root: Path) -> Manifest:
    """With files named from the top of the tree, not from where that lies for a moment."""
    spec = manifest.spec
    if isinstance(spec, SecretSpec) and spec.from_file:
        here = f"{root}/"
        files = {name: path.removeprefix(here) for name, path in spec.from_file.items()}
        return replace(manifest, spec=spec.model_copy(update={"from_file": files}))
    return manifest
