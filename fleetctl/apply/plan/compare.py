"""Compares two revisions of a repository: their objects, costs and risks.

Called by the CLI. Decides nothing itself: changes come from propose.py, costs from the planner.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import CREATED, UNCHANGED, Change
from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.plan.build_plan import costs_of
from fleetctl.apply.plan.checkout import RevisionTree, checked_out, resolve_names
from fleetctl.apply.plan.live import LiveState, live_of
from fleetctl.apply.plan.plan_report import (
    ObjectPlan,
    PlanAction,
    PlannedWork,
    PlanReport,
    RevisionComparison,
)
from fleetctl.apply.plan.repository import GitCommit, repository_of
from fleetctl.apply.plan.reruns import UnitChanges, units_of
from fleetctl.apply.plan.revision_plan import (
    ReviewContext,
    RevisionPlan,
    changes_between,
    side_of,
    stored_of,
)
from fleetctl.apply.plan.risks import (
    list_comparison_risks,
    list_verdict_risks,
    sort_risks,
    sum_budgets,
)
from fleetctl.apply.policies.judge import judge_changes
from fleetctl.apply.policies.policy_files import (
    merge_policies,
    policies_among,
    policies_in,
    refuse_wrong,
)
from fleetctl.apply.policies.report import refuse_problems
from fleetctl.apply.predictions.policies import wrong_in
from fleetctl.apply.predictions.predict import make_predictions
from fleetctl.apply.predictions.world import world_of
from fleetctl.common.finding import Severity
from fleetctl.controllers.model import Resource
from fleetctl.controllers.reuse.impact import RepeatedWork
from fleetctl.manifest.document.namespaces import NamespaceChoice
from fleetctl.manifest.files.documents import MANIFEST, VALUES, Document
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.stores.read.read_only import StoreSnapshot

_SORTED = (PlanAction.DESTROY, PlanAction.UPDATE, PlanAction.CREATE, PlanAction.KEEP)
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


def compare_revisions(asked: ReviewRequest) -> PlanReport:
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
    both = RevisionComparison(
        before,
        after,
        asked=None if named_before == before else named_before,
        cost=old.report.cost,
        known=old.wrong is None,
        live=live is not None,
    )
    return _build_comparison(
        both,
        old,
        new,
        changes,
        gone,
        live,
    )


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
    certain = [it for it in found if it.severity is Severity.NEVER]
    refuse_problems([problem for it in certain for problem in it.problems()], new.manifests)


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


def _build_comparison(
    both: RevisionComparison,
    old: RevisionPlan,
    new: RevisionPlan,
    changes: Sequence[Change],
    gone: Sequence[Resource],
    live: LiveState | None,
) -> PlanReport:
    before = {it.key: it for it in old.report.objects}
    after = {it.key: it for it in new.report.objects}
    objects = [_compare_object(it, before.get(it.key), after.get(it.key)) for it in changes]
    objects += [_compare_deletion(it, before.get(it.key)) for it in gone]
    objects.sort(key=lambda it: (_SORTED.index(it.action), it.key))
    rows = {it.after.key: it.after for it in changes} | {it.key: it for it in gone}
    moving = [it for it in objects if it.action is not PlanAction.KEEP]
    stopped = None if live is None else live.stopped
    risks = [
        *list_comparison_risks(moving, rows, (old.report, new.report), stopped),
        *list_verdict_risks(it for it in changes if it.outcome != UNCHANGED),
    ]
    costs = [(_cost_of(before.get(key)), _cost_of(after.get(key))) for key in {**before, **after}]
    differing = [(was, now) for was, now in costs if was != now]
    budgets = (it.sentence for it in sum_budgets(new.report) if it.shared)
    return replace(
        new.report,
        objects=tuple(objects),
        risks=sort_risks(risks),
        budgets=tuple(budgets) if live is None else live.budgets,
        warnings=tuple(_list_warnings(both.before, old, new)),
        comparison=replace(
            both,
            left=sum((was for was, _ in differing), FREE),
            come=sum((now for _, now in differing), FREE),
        ),
    )


def _cost_of(it: ObjectPlan | None) -> Cost:
    return (None if it is None else it.cost) or FREE


def _compare_object(
    change: Change,
    old: ObjectPlan | None,
    new: ObjectPlan | None,
) -> ObjectPlan:
    if change.outcome == UNCHANGED:
        return ObjectPlan(change.key, PlanAction.KEEP)
    work = None if new is None else new.work
    units = units_of(change.before, change.after)
    return ObjectPlan(
        change.key,
        PlanAction.CREATE if change.outcome == CREATED else PlanAction.UPDATE,
        message=change.message,
        fields=change.fields,
        notes=() if new is None else new.notes,
        work=work if work is None or units is None else _count_again(work, units),
        warm=None if new is None else new.warm,
        before=None if old is None else old.cost,
    )


def _compare_deletion(row: Resource, old: ObjectPlan | None) -> ObjectPlan:
    work = None if old is None else old.work
    units = units_of(row, None)
    if work is not None and units is not None:
        work = replace(
            _count_again(work, units), to_run=0, places=(), now=FREE, total=FREE, caps=()
        )
    return ObjectPlan(
        row.key,
        PlanAction.DESTROY,
        work=work,
        before=None if old is None else old.cost,
    )


def _count_again(work: PlannedWork, units: UnitChanges) -> PlannedWork:
    """Returns the work of a side with the units that would run, had all of the other been done. Its
    cost stays that of all of the work."""
    if units.kept is None or units.again is None or units.new is None:
        return replace(work, kept=None)
    return replace(
        work,
        to_run=units.again + units.new,
        kept=units.kept,
        again=RepeatedWork(units.again),
        gone=units.gone or 0,
    )


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
