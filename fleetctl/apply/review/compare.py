"""Compares two revisions of a repository: their objects, costs and risks.

Called by the CLI. Decides nothing itself: changes come from propose.py, costs from the planner.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import CREATED, UNCHANGED, Change
from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.cost.forecast import costs_of
from fleetctl.apply.cost.plan_report import ObjectPlan
from fleetctl.apply.policies.judge import judge_changes
from fleetctl.apply.policies.policy_files import (
    merge_policies,
    policies_among,
    policies_in,
    refuse_wrong,
)
from fleetctl.apply.predictions.policies import wrong_in
from fleetctl.apply.predictions.predict import make_predictions, raise_if_refused
from fleetctl.apply.predictions.world import Certainty, world_of
from fleetctl.apply.review.budgets import budgets_of
from fleetctl.apply.review.checkout import RevisionTree, checked_out, resolve_names
from fleetctl.apply.review.live import LiveState, live_of
from fleetctl.apply.review.repository import GitCommit, repository_of
from fleetctl.apply.review.reruns import units_of
from fleetctl.apply.review.review import CostComparison, Review, ReviewAction, ReviewedObject
from fleetctl.apply.review.revision_plan import (
    ReviewContext,
    RevisionPlan,
    changes_between,
    side_of,
    stored_of,
)
from fleetctl.apply.review.risks import in_order, of_changes, risks_of
from fleetctl.controllers.model import Resource
from fleetctl.manifest.document.namespaces import NamespaceChoice
from fleetctl.manifest.files.documents import MANIFEST, VALUES, Document
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.read_only import StoreSnapshot

# The texts of a side, with `--set` applied. lenient: settings unknown to this side are left out.
Settle = Callable[[list[Document], bool], list[Document]]


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """A comparison. before, after: revisions. files, values: as the user wrote them. home: of a
    store to read as well.
    """

    directory: Path
    before: str
    after: str
    files: tuple[str, ...]
    values: tuple[str, ...]
    recursive: bool
    namespace: NamespaceChoice
    settle: Settle
    policies: tuple[str, ...] = ()
    home: Path | None = None


def compare_revisions(asked: ReviewRequest) -> Review:
    """Compares. Raises ManifestErrors for errors on the new side, NotFound and Refused for
    revisions that the clone does not have.
    """
    repository = repository_of([_directory_of(asked), asked.directory])
    named_before = repository.commit(asked.before)
    after = repository.commit(asked.after)
    before = repository.parting(named_before, after)
    with (
        checked_out(repository, (before, after)) as (old_tree, new_tree),
        tempfile.TemporaryDirectory(prefix="fleetctl-review-") as home,
    ):
        trees = (old_tree, new_tree)
        files, values, beside = (
            resolve_names(repository, trees, names, asked.directory)
            for names in (asked.files, asked.values, asked.policies)
        )
        room = ReviewContext(Path(home), asked.namespace, float(after.at_s))
        new = _plan_side(
            new_tree,
            files,
            values,
            asked,
            room,
            lenient=False,
        )
        if new.wrong is not None:
            raise new.wrong
        refuse_wrong(new.manifests, wrong_in)
        with fence_directory(new_tree.root):
            texts = new_tree.documents(beside, recursive=True)
            policies = policies_in(texts, wrong_in) if texts else []
        old = _plan_side(
            old_tree,
            files,
            values,
            asked,
            room,
            lenient=True,
        )
        stored = stored_of(old, room.at_s)
        changes = changes_between(stored, old, new, room.at_s)
        _refuse_what_never_works(stored, new, changes)
        gone = _list_deleted(stored, old, new)
        live = None if asked.home is None else live_of(asked.home, new, [it.key for it in gone])
        holding = policies_among(new.manifests) if live is None else live.policies
        policies = merge_policies(holding, policies)
        changes = judge_changes(changes, policies, room.at_s, costs=costs_of(new.report))
    found = _build_review(
        before,
        after,
        old,
        new,
        changes,
        gone,
        live,
    )
    if named_before == before:
        return found
    return replace(found, asked=named_before)


def _directory_of(asked: ReviewRequest) -> Path:
    """Returns the directory of the first file, or the nearest existing one: the file may be in one
    revision alone, and in another repository than the working directory.
    """
    place = Path(asked.directory / asked.files[0]).absolute()
    return next(it for it in (place, *place.parents) if it.is_dir())


def _plan_side(
    tree: RevisionTree,
    files: Sequence[tuple[str, str]],
    values: Sequence[tuple[str, str]],
    asked: ReviewRequest,
    room: ReviewContext,
    *,
    lenient: bool,
) -> RevisionPlan:
    with fence_directory(tree.root):
        documents = [
            *tree.documents(files, recursive=asked.recursive, role=MANIFEST),
            *tree.documents(values, role=VALUES),
        ]
        return side_of(asked.settle(documents, lenient), tree.root, room)


def _refuse_what_never_works(
    stored: StoreSnapshot,
    new: RevisionPlan,
    changes: Sequence[Change],
) -> None:
    """Raises ManifestErrors for errors with which every machine would refuse an apply of the new
    side. Missing parts of a machine (a Secret, a key, a provider) are no such errors.
    """

    def unknown(_: str) -> None:
        return None  # no variable of this machine is part of a revision

    # Provider objects are among the changes.
    world = world_of(
        stored,
        changes,
        new.providers,
        {},
        unknown,
        starts_here=False,
    )
    found = asyncio.run(make_predictions(new.manifests, changes, world))
    raise_if_refused([it for it in found if it.sort is Certainty.NEVER], frozenset())


def _list_deleted(
    stored: StoreSnapshot,
    old: RevisionPlan,
    new: RevisionPlan,
) -> list[Resource]:
    """Returns the objects that the new side does not declare. A volume that was only named
    stays."""
    there = new.by_key
    rows = (stored.resources.get(it.kind, it.name, it.namespace) for it in old.manifests)
    return [row for row in rows if row is not None and row.key not in there]


def _build_review(
    before: GitCommit,
    after: GitCommit,
    old: RevisionPlan,
    new: RevisionPlan,
    changes: Sequence[Change],
    gone: Sequence[Resource],
    live: LiveState | None,
) -> Review:
    planned_before = {it.change.key: it for it in old.report.objects}
    planned = {it.change.key: it for it in new.report.objects}
    moving = [it for it in changes if it.outcome != UNCHANGED]
    objects = [_review_change(it, planned_before.get(it.key), planned.get(it.key)) for it in moving]
    objects += [_review_deletion(it, planned_before.get(it.key)) for it in gone]
    found = Review(
        before,
        after,
        tuple(sorted(objects, key=_sort_key)),
        _compare_costs(old, new, planned_before, planned),
        unchanged=len(changes) - len(moving),
        budgets=live.budgets if live is not None else budgets_of(new.report),
        prices=new.report.sources,
        warnings=tuple(_list_warnings(before, old, new)),
        live=live is not None,
    )
    rows = {it.after.key: it.after for it in changes} | {it.key: it for it in gone}
    risks = risks_of(found, rows, (old.report, new.report), live)
    return replace(found, risks=tuple(in_order([*risks, *of_changes(moving)])))


def _compare_costs(
    old: RevisionPlan,
    new: RevisionPlan,
    planned_before: Mapping[str, ObjectPlan],
    planned: Mapping[str, ObjectPlan],
) -> CostComparison:
    left = come = FREE
    for key in {**planned_before, **planned}:
        was = _cost_of(planned_before.get(key))
        now = _cost_of(planned.get(key))
        if was != now:
            left = left + was
            come = come + now
    known = old.wrong is None
    return CostComparison(
        old.report.now,
        new.report.now,
        known_before=known,
        left=left,
        come=come,
    )


def _cost_of(it: ObjectPlan | None) -> Cost:
    if it is None or it.work is None:
        return FREE
    return it.work.now


def _sort_key(it: ReviewedObject) -> tuple[int, str]:
    return (ReviewAction.DELETED, ReviewAction.CHANGED, ReviewAction.CREATED).index(it.turn), it.key


def _review_change(
    change: Change,
    old: ObjectPlan | None,
    new: ObjectPlan | None,
) -> ReviewedObject:
    created = change.outcome == CREATED
    units = units_of(change.before, change.after)
    return ReviewedObject(
        change.key,
        ReviewAction.CREATED if created else ReviewAction.CHANGED,
        fields=change.fields,
        notes=() if new is None else new.notes,
        unit=KINDS[change.after.kind].unit,
        units=units,
        total=None if new is None or new.work is None else new.work.to_run,
        before=None if old is None or old.work is None else old.work.now,
        after=None if new is None or new.work is None else new.work.now,
        standing="" if new is None or new.warm is None else new.warm.sentence,
        where="" if new is None else _describe_placement(new),
    )


def _review_deletion(row: Resource, old: ObjectPlan | None) -> ReviewedObject:
    return ReviewedObject(
        row.key,
        ReviewAction.DELETED,
        unit=KINDS[row.kind].unit,
        units=units_of(row, None),
        before=None if old is None or old.work is None else old.work.now,
    )


def _describe_placement(planned: ObjectPlan) -> str:
    taken: Counter[str] = Counter()
    for place in planned.work.places if planned.work is not None else ():
        taken[place.judged.provider] += place.units
    return ", ".join(f"{name} {count:,}" for name, count in taken.items() if count)


def _list_warnings(
    before: GitCommit,
    old: RevisionPlan,
    new: RevisionPlan,
) -> Iterator[str]:
    if old.wrong is not None:
        first = str(old.wrong).splitlines()[0].removeprefix("error: ")
        yield (
            f"the manifests of {before.shown} cannot be read, so everything is shown as new and"
            f" nothing is known of the cost before: {first}"
        )
    yield from (text for manifest in new.manifests for text in manifest.warnings)
    yield from (text for it in new.looked.values() for text in it.warnings)
